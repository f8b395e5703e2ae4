import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java clients, driven by lines of JSON, so that tests of them can be written in Python.
 *
 * A request is {"on": HANDLE, "do": OPERATION, ...arguments}; its answer, the next line of standard output, is
 * {"result": ...} or {"error": KAFKA'S NAME OF IT, "message": ...}. Bytes travel as Base64. Requests are
 * served one by one. The program ends with its standard input, and takes its clients with it without a word to
 * the broker.
 */
public class ClientShell {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long WAIT_S = 30;

    private final Map<String, Object> handles = new HashMap<>();
    private final Extension extension = extension();

    /** Clients and operations that older clients don't have: a class that is compiled with this one, or isn't. */
    public interface Extension {
        /** Open a client of one of its kinds. */
        Object open(String kind, Properties settings);

        /** Do something with one of its clients, or with an administrator. */
        Object execute(Object client, String operation, JsonNode request) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientShell shell = new ClientShell();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(shell.answer(JSON.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("result", execute(request));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            answer.put("error", nameOf(cause));
            answer.put("message", String.valueOf(cause));
        }
        return answer;
    }

    /** Kafka's name of an error; for those that never cross the wire, the name of their class. */
    static String nameOf(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            Errors known = Errors.forException(each);
            if (known != Errors.UNKNOWN_SERVER_ERROR) return known.name();
        }
        return error.getClass().getSimpleName();
    }

    private Object execute(JsonNode request) throws Exception {
        String handle = request.get("on").asText();
        String operation = request.get("do").asText();
        if (operation.equals("open")) {
            handles.put(handle, open(request.get("kind").asText(), properties(request.get("settings"))));
            return null;
        }
        Object client = handles.get(handle);
        if (operation.equals("close")) {
            handles.remove(handle);
            if (client instanceof Sender sender) sender.producer.close(Duration.ZERO);
            else if (client instanceof AutoCloseable closeable) closeable.close();
            return null;
        }
        if (client instanceof Sender sender) return produce(sender, operation, request);
        if (client instanceof KafkaConsumer<?, ?>) return consume(consumerOf(handle), operation, request);
        if (client instanceof Admin admin) return administer(admin, operation, request);
        if (client != null) return extension.execute(client, operation, request);
        throw new IllegalArgumentException("no client was opened as " + handle);
    }

    private static Extension extension() {
        try {
            return (Extension) Class.forName("ShareClients").getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException notCompiled) {
            return new NoExtension();
        }
    }

    private static final class NoExtension implements Extension {
        @Override
        public Object open(String kind, Properties settings) {
            throw new IllegalArgumentException("no such kind of client: " + kind);
        }

        @Override
        public Object execute(Object client, String operation, JsonNode request) {
            throw new IllegalArgumentException("these clients can't " + operation);
        }
    }

    private Object open(String kind, Properties settings) {
        return switch (kind) {
            case "producer" -> new Sender(
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
            case "consumer" -> new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            case "admin" -> Admin.create(settings);
            default -> extension.open(kind, settings);
        };
    }

    private static final class Sender {
        final KafkaProducer<byte[], byte[]> producer;
        final List<Future<RecordMetadata>> inFlight = new ArrayList<>();

        Sender(KafkaProducer<byte[], byte[]> producer) {
            this.producer = producer;
        }
    }

    @SuppressWarnings("unchecked")
    private KafkaConsumer<byte[], byte[]> consumerOf(String handle) {
        return (KafkaConsumer<byte[], byte[]>) handles.get(handle);
    }

    private Object produce(Sender sender, String operation, JsonNode request) throws Exception {
        switch (operation) {
            case "send" -> {
                for (JsonNode record : request.get("records")) sender.inFlight.add(sender.producer.send(record(record)));
            }
            case "flush" -> {
                sender.producer.flush();
                return outcomes(sender.inFlight);
            }
            case "init_transactions" -> sender.producer.initTransactions();
            case "begin_transaction" -> sender.producer.beginTransaction();
            case "send_offsets" -> sender.producer.sendOffsetsToTransaction(
                offsets(request.get("offsets")), consumerOf(request.get("consumer").asText()).groupMetadata());
            case "commit_transaction" -> sender.producer.commitTransaction();
            case "abort_transaction" -> sender.producer.abortTransaction();
            default -> throw new IllegalArgumentException("a producer can't " + operation);
        }
        return null;
    }

    private static Object outcomes(List<Future<RecordMetadata>> inFlight) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>(inFlight);
        inFlight.clear();
        List<Object> outcomes = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata outcome = each.get(WAIT_S, TimeUnit.SECONDS);
            outcomes.add(List.of(outcome.partition(), outcome.hasOffset() ? outcome.offset() : -1));
        }
        return outcomes;
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = record.get("partition").isNull() ? null : record.get("partition").asInt();
        Long timestamp = record.get("timestamp_ms").isNull() ? null : record.get("timestamp_ms").asLong();
        return new ProducerRecord<>(record.get("topic").asText(), partition, timestamp,
            bytes(record.get("key")), bytes(record.get("value")), headers);
    }

    private Object consume(KafkaConsumer<byte[], byte[]> consumer, String operation, JsonNode request) {
        switch (operation) {
            case "subscribe" -> consumer.subscribe(strings(request.get("topics")));
            case "assign" -> consumer.assign(partitions(request.get("partitions")));
            case "poll" -> {
                List<Object> records = new ArrayList<>();
                consumer.poll(Duration.ofMillis(request.get("timeout_ms").asLong()))
                    .forEach(record -> records.add(described(record)));
                return records;
            }
            case "seek" -> consumer.seek(partition(request), request.get("offset").asLong());
            case "seek_to_end" -> {
                consumer.seekToEnd(List.of(partition(request)));
                consumer.position(partition(request));
            }
            case "position" -> {
                return consumer.position(partition(request));
            }
            case "assignment" -> {
                return described(consumer.assignment());
            }
            case "commit" -> consumer.commitSync(offsets(request.get("offsets")));
            case "committed" -> {
                OffsetAndMetadata found = consumer.committed(Set.of(partition(request))).get(partition(request));
                return found == null ? null : found.offset();
            }
            case "offset_for_time" -> {
                var found = consumer.offsetsForTimes(Map.of(partition(request), request.get("timestamp_ms").asLong()))
                    .get(partition(request));
                return found == null ? null : found.offset();
            }
            case "beginning" -> {
                return consumer.beginningOffsets(List.of(partition(request))).get(partition(request));
            }
            case "end" -> {
                return consumer.endOffsets(List.of(partition(request))).get(partition(request));
            }
            default -> throw new IllegalArgumentException("a consumer can't " + operation);
        }
        return null;
    }

    static Map<String, Object> described(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> described = new HashMap<>();
        described.put("topic", record.topic());
        described.put("partition", record.partition());
        described.put("offset", record.offset());
        described.put("timestamp_ms", record.timestamp());
        described.put("key", text(record.key()));
        described.put("value", text(record.value()));
        described.put("headers", headers);
        return described;
    }

    private Object administer(Admin admin, String operation, JsonNode request) throws Exception {
        String name = request.has("name") ? request.get("name").asText() : null;
        switch (operation) {
            case "create_topic" -> {
                NewTopic topic = new NewTopic(name, Optional.of(request.get("partition_count").asInt()),
                    Optional.empty());
                got(admin.createTopics(List.of(topic.configs(texts(request.get("config"))))).all());
            }
            case "delete_topic" -> got(admin.deleteTopics(List.of(name)).all());
            case "topic_names" -> {
                return got(admin.listTopics().names());
            }
            case "partition_count" -> {
                TopicDescription topic = got(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
                return topic.partitions().size();
            }
            case "create_partitions" -> got(admin.createPartitions(
                Map.of(name, NewPartitions.increaseTo(request.get("partition_count").asInt()))).all());
            case "config" -> {
                ConfigResource resource = resource(request);
                return described(got(admin.describeConfigs(List.of(resource)).all()).get(resource));
            }
            case "alter_config" -> got(
                admin.incrementalAlterConfigs(Map.of(resource(request), changes(request.get("changes")))).all());
            case "delete_records" -> {
                TopicPartition partition = partition(request);
                RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("offset").asLong());
                return got(admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition)).lowWatermark();
            }
            case "list_offsets" -> {
                ListOffsetsResult.ListOffsetsResultInfo found = got(admin.listOffsets(
                    Map.of(partition(request), spec(request.get("spec")))).partitionResult(partition(request)));
                return List.of(found.offset(), found.timestamp());
            }
            case "cluster" -> {
                List<Object> nodes = new ArrayList<>();
                for (Node node : got(admin.describeCluster().nodes())) nodes.add(node.host() + ":" + node.port());
                return Map.of("id", got(admin.describeCluster().clusterId()), "nodes", nodes,
                    "has_controller", got(admin.describeCluster().controller()) != null);
            }
            case "quorum" -> {
                QuorumInfo quorum = got(admin.describeMetadataQuorum().quorumInfo());
                List<Object> voters = new ArrayList<>();
                for (QuorumInfo.ReplicaState voter : quorum.voters()) voters.add(voter.replicaId());
                return Map.of("leader", quorum.leaderId(), "voters", voters);
            }
            case "log_dirs" -> {
                Map<String, Long> sizes = new HashMap<>();
                got(admin.describeLogDirs(List.of(request.get("broker_id").asInt())).allDescriptions()).values()
                    .forEach(dirs -> dirs.values().forEach(dir -> dir.replicaInfos()
                        .forEach((partition, replica) -> sizes.put(partition.toString(), replica.size()))));
                return sizes;
            }
            default -> {
                return administerGroups(admin, operation, request, name);
            }
        }
        return null;
    }

    private Object administerGroups(Admin admin, String operation, JsonNode request, String name)
            throws Exception {
        switch (operation) {
            case "list_groups" -> {
                Map<String, Object> states = new HashMap<>();
                got(admin.listConsumerGroups().all())
                    .forEach(group -> states.put(group.groupId(), group.state().map(Object::toString).orElse("")));
                return states;
            }
            case "describe_group" -> {
                return described(got(admin.describeConsumerGroups(List.of(name)).all()).get(name));
            }
            case "delete_group" -> got(admin.deleteConsumerGroups(List.of(name)).all());
            case "group_offsets" -> {
                List<Object> offsets = new ArrayList<>();
                got(admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata()).forEach((partition, offset) ->
                    offsets.add(List.of(partition.topic(), partition.partition(), offset.offset())));
                return offsets;
            }
            case "alter_group_offsets" -> got(
                admin.alterConsumerGroupOffsets(name, offsets(request.get("offsets"))).all());
            case "delete_group_offsets" -> got(
                admin.deleteConsumerGroupOffsets(name, Set.copyOf(partitions(request.get("partitions")))).all());
            default -> {
                return administerTransactions(admin, operation, request, name);
            }
        }
        return null;
    }

    private Object administerTransactions(Admin admin, String operation, JsonNode request, String name)
            throws Exception {
        switch (operation) {
            case "list_transactions" -> {
                Map<String, String> states = new HashMap<>();
                got(admin.listTransactions().all())
                    .forEach(each -> states.put(each.transactionalId(), each.state().toString()));
                return states;
            }
            case "describe_transaction" -> {
                TransactionDescription found = got(admin.describeTransactions(List.of(name)).all()).get(name);
                return Map.of("state", found.state().toString(), "producer_id", found.producerId(),
                    "timeout_ms", found.transactionTimeoutMs(), "partitions", described(found.topicPartitions()));
            }
            case "describe_producers" -> {
                List<Object> producers = new ArrayList<>();
                got(admin.describeProducers(List.of(partition(request))).all()).get(partition(request))
                    .activeProducers().forEach(each -> producers.add(Map.of(
                        "producer_id", each.producerId(), "epoch", each.producerEpoch(), "sequence", each.lastSequence(),
                        "transaction_start", each.currentTransactionStartOffset().orElse(-1))));
                return producers;
            }
            case "fence_producer" -> got(admin.fenceProducers(List.of(name)).all());
            case "abort_transaction" -> got(admin.abortTransaction(new AbortTransactionSpec(partition(request),
                request.get("producer_id").asLong(), (short) request.get("epoch").asInt(), 0)).all());
            default -> {
                return extension.execute(admin, operation, request);
            }
        }
        return null;
    }

    private static Map<String, Object> described(ConsumerGroupDescription group) {
        List<Object> members = new ArrayList<>();
        group.members().forEach(member -> members.add(Map.of("client_id", member.clientId(),
            "instance_id", member.groupInstanceId().orElse(""),
            "partitions", described(member.assignment().topicPartitions()))));
        return Map.of("state", group.state().toString(), "members", members,
            "assignor", group.partitionAssignor());
    }

    private static Map<String, Object> described(Config config) {
        Map<String, Object> entries = new LinkedHashMap<>();
        for (ConfigEntry entry : config.entries()) {
            List<Object> described = new ArrayList<>();
            described.add(entry.value());
            described.add(entry.source().toString());
            entries.put(entry.name(), described);
        }
        return entries;
    }

    static List<Object> described(Collection<TopicPartition> partitions) {
        List<Object> described = new ArrayList<>();
        partitions.forEach(partition -> described.add(List.of(partition.topic(), partition.partition())));
        return described;
    }

    private static List<AlterConfigOp> changes(JsonNode changes) {
        List<AlterConfigOp> operations = new ArrayList<>();
        changes.fields().forEachRemaining(change -> {
            AlterConfigOp.OpType kind =
                change.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
            String value = change.getValue().isNull() ? "" : change.getValue().asText();
            operations.add(new AlterConfigOp(new ConfigEntry(change.getKey(), value), kind));
        });
        return operations;
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(
            ConfigResource.Type.valueOf(request.get("kind").asText()), request.get("name").asText());
    }

    private static OffsetSpec spec(JsonNode spec) {
        return switch (spec.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(spec.asLong());
        };
    }

    static <T> T got(KafkaFuture<T> future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode offsets) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (JsonNode each : offsets) {
            found.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                new OffsetAndMetadata(each.get(2).asLong()));
        }
        return found;
    }

    static List<TopicPartition> partitions(JsonNode partitions) {
        List<TopicPartition> found = new ArrayList<>();
        for (JsonNode each : partitions) found.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt()));
        return found;
    }

    static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static Properties properties(JsonNode settings) {
        Properties properties = new Properties();
        properties.putAll(texts(settings));
        return properties;
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> texts = new HashMap<>();
        object.fields().forEachRemaining(field -> texts.put(field.getKey(), field.getValue().asText()));
        return texts;
    }

    static List<String> strings(JsonNode array) {
        List<String> strings = new ArrayList<>();
        for (JsonNode each : array) strings.add(each.asText());
        return strings;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
