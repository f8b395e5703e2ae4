import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share groups, which Kafka's clients have since 4.2: share consumers, and what an administrator does with groups. */
public class ShareClients implements ClientShell.Extension {
    @Override
    public Object open(String kind, Properties settings) {
        if (!kind.equals("share_consumer")) throw new IllegalArgumentException("no such kind of client: " + kind);
        return new Member(
            new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
    }

    /** A share consumer with the records that its last poll brought: it acknowledges only these very objects. */
    private static final class Member implements AutoCloseable {
        final ShareConsumer<byte[], byte[]> consumer;
        final Map<List<Object>, ConsumerRecord<byte[], byte[]>> polled = new HashMap<>();

        Member(ShareConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    @Override
    public Object execute(Object client, String operation, JsonNode request) throws Exception {
        if (client instanceof Admin admin) return administer(admin, operation, request);
        return consume((Member) client, operation, request);
    }

    private static Object consume(Member member, String operation, JsonNode request) {
        switch (operation) {
            case "subscribe" -> member.consumer.subscribe(ClientShell.strings(request.get("topics")));
            case "poll" -> {
                List<Object> records = new ArrayList<>();
                var polled = member.consumer.poll(Duration.ofMillis(request.get("timeout_ms").asLong()));
                member.polled.clear();
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    member.polled.put(List.of(record.topic(), record.partition(), record.offset()), record);
                    records.add(described(record));
                }
                return records;
            }
            case "acknowledge" -> {
                TopicPartition partition = ClientShell.partition(request);
                List<Object> place =
                    List.of(partition.topic(), partition.partition(), request.get("offset").asLong());
                String answer = request.get("answer").asText().toUpperCase(Locale.ROOT);
                member.consumer.acknowledge(member.polled.get(place), AcknowledgeType.valueOf(answer));
            }
            case "commit" -> {
                List<Object> outcomes = new ArrayList<>();
                member.consumer.commitSync().forEach((partition, error) -> {
                    List<Object> outcome = new ArrayList<>(List.of(partition.topic(), partition.partition()));
                    outcome.add(error.map(ClientShell::nameOf).orElse(null));
                    outcomes.add(outcome);
                });
                return outcomes;
            }
            default -> throw new IllegalArgumentException("a share consumer can't " + operation);
        }
        return null;
    }

    private static Map<String, Object> described(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> described = ClientShell.described(record);
        described.put("delivery_count", record.deliveryCount().map(Short::intValue).orElse(null));
        return described;
    }

    private static Object administer(Admin admin, String operation, JsonNode request) throws Exception {
        String name = request.has("name") ? request.get("name").asText() : null;
        switch (operation) {
            case "group_kinds" -> {
                Map<String, String> kinds = new HashMap<>();
                ClientShell.got(admin.listGroups().all())
                    .forEach(group -> kinds.put(group.groupId(), group.type().map(Object::toString).orElse("")));
                return kinds;
            }
            case "describe_share_group" -> {
                return described(ClientShell.got(admin.describeShareGroups(List.of(name)).all()).get(name));
            }
            case "delete_share_group" -> ClientShell.got(admin.deleteShareGroups(List.of(name)).all());
            case "share_group_offsets" -> {
                List<Object> rows = new ArrayList<>();
                ClientShell.got(admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(name)).forEach((partition, found) -> {
                        if (found == null) return;
                        List<Object> row = new ArrayList<>(List.of(partition.topic(), partition.partition()));
                        row.add(found.startOffset());
                        row.add(found.lag().orElse(null));
                        rows.add(row);
                    });
                return rows;
            }
            case "alter_share_group_offsets" -> ClientShell.got(
                admin.alterShareGroupOffsets(name, offsets(request.get("offsets"))).all());
            case "delete_share_group_offsets" -> ClientShell.got(
                admin.deleteShareGroupOffsets(name, Set.copyOf(ClientShell.strings(request.get("topics")))).all());
            default -> throw new IllegalArgumentException("an administrator can't " + operation);
        }
        return null;
    }

    private static Map<String, Object> described(ShareGroupDescription group) {
        List<Object> members = new ArrayList<>();
        group.members().forEach(member -> members.add(Map.of("client_id", member.clientId(),
            "partitions", ClientShell.described(member.assignment().topicPartitions()))));
        return Map.of("state", group.groupState().toString(), "members", members);
    }

    private static Map<TopicPartition, Long> offsets(JsonNode offsets) {
        Map<TopicPartition, Long> found = new HashMap<>();
        for (JsonNode each : offsets) {
            found.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()), each.get(2).asLong());
        }
        return found;
    }
}
