import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/**
 * One node of OpenSearch, with nothing but HTTP: `java -cp JARS OneNode.java NAME=VALUE...`.
 *
 * Its own start class loads the transport from a directory of modules, by a class that is in no repository. A
 * node that is made here is given the transport by its class, and is the same node.
 */
public final class OneNode extends Node {
  private OneNode(Environment environment) {
    super(environment, List.of(Netty4Plugin.class), false);
  }

  public static void main(String[] arguments) throws Exception {
    Settings.Builder settings = Settings.builder();
    for (String argument : arguments) {
      String[] parts = argument.split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    Environment environment =
        InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), null, () -> "one");
    Node node = new OneNode(environment).start();
    HttpServerTransport http = node.injector().getInstance(HttpServerTransport.class);
    System.out.println("listening on port " + http.boundAddress().publishAddress().getPort());
    new CountDownLatch(1).await();
  }
}
