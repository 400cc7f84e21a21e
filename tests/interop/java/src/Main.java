import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.Result;
import org.apache.arrow.flight.SyncPutListener;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * Reads and writes through a server with nothing but Arrow's own Java client.
 *
 * <p>Main LOCATION FOLDER carries out FOLDER/errand.json: each step names a call and its request, and what is read or
 * written is an IPC stream in FOLDER. What the server said goes to standard output, one JSON object for each step.
 */
public final class Main {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final BufferAllocator allocator;
  private final FlightClient client;
  private final File folder;

  private Main(BufferAllocator allocator, FlightClient client, File folder) {
    this.allocator = allocator;
    this.client = client;
    this.folder = folder;
  }

  public static void main(String[] arguments) throws Exception {
    File folder = new File(arguments[1]);
    String[] address = arguments[0].split(":");
    Location location = Location.forGrpcInsecure(address[0], Integer.parseInt(address[1]));
    try (BufferAllocator allocator = new RootAllocator();
        FlightClient client = FlightClient.builder(allocator, location).build()) {
      Main main = new Main(allocator, client, folder);
      for (JsonNode step : JSON.readTree(new File(folder, "errand.json"))) {
        ObjectNode said = JSON.createObjectNode();
        said.put("code", "OK");
        try {
          main.carryOut(step, said);
        } catch (FlightRuntimeException error) {
          said.put("code", error.status().code().name());
          said.put("message", error.status().description());
        }
        System.out.println(JSON.writeValueAsString(said));
      }
    }
  }

  private void carryOut(JsonNode step, ObjectNode said) throws Exception {
    byte[] request = JSON.writeValueAsBytes(step.get("request"));
    String name = step.path("file").asText();
    switch (step.get("call").asText()) {
      case "list" -> list(said);
      case "get" -> get(request, new File(folder, name), said);
      case "put" -> put(request, new File(folder, name), said);
      case "action" -> action(name, request, said);
      default -> throw new IllegalArgumentException("no such call");
    }
  }

  private void list(ObjectNode said) {
    for (FlightInfo info : client.listFlights(Criteria.ALL)) {
      byte[] ticket = info.getEndpoints().get(0).getTicket().getBytes();
      said.withArray("texts").add(new String(ticket, StandardCharsets.UTF_8));
    }
  }

  /** Asks for the flight's endpoints and reads each, in order, into one file. */
  private void get(byte[] request, File file, ObjectNode said) throws Exception {
    FlightInfo info = client.getInfo(FlightDescriptor.command(request));
    long rows = 0;
    ArrowStreamWriter writer = null;
    VectorSchemaRoot kept = null;
    try (FileOutputStream out = new FileOutputStream(file)) {
      for (FlightEndpoint endpoint : info.getEndpoints()) {
        try (FlightStream stream = client.getStream(endpoint.getTicket())) {
          if (writer == null) {
            kept = VectorSchemaRoot.create(stream.getSchema(), allocator);
            writer = new ArrowStreamWriter(kept, stream.getDictionaryProvider(), out);
          }
          while (stream.next()) {
            rows += stream.getRoot().getRowCount();
            try (ArrowRecordBatch batch = new VectorUnloader(stream.getRoot()).getRecordBatch()) {
              new VectorLoader(kept).load(batch);
            }
            writer.writeBatch();
            ArrowBuf metadata = stream.getLatestMetadata();
            if (metadata != null) {
              said.put("metadata", text(metadata));
            }
          }
        }
      }
      writer.end();
    } finally {
      if (kept != null) {
        kept.close();
      }
    }
    said.put("rows", rows);
  }

  /** Sends the batches of a file, and waits for the last acknowledgement. */
  private void put(byte[] request, File file, ObjectNode said) throws Exception {
    long rows = 0;
    try (ArrowStreamReader reader = new ArrowStreamReader(new FileInputStream(file), allocator);
        SyncPutListener acknowledged = new SyncPutListener()) {
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      FlightClient.ClientStreamListener sender =
          client.startPut(FlightDescriptor.command(request), root, reader, acknowledged);
      while (reader.loadNextBatch()) {
        rows += root.getRowCount();
        sender.putNext();
      }
      sender.completed();
      for (PutResult result; (result = acknowledged.read()) != null; result.close()) {
        said.put("metadata", text(result.getApplicationMetadata()));
      }
      sender.getResult();
    } catch (java.util.concurrent.ExecutionException error) {
      throw error.getCause() instanceof FlightRuntimeException cause ? cause : error;
    }
    said.put("rows", rows);
  }

  private void action(String name, byte[] body, ObjectNode said) {
    client.doAction(new Action(name, body)).forEachRemaining((Result result) ->
        said.withArray("texts").add(new String(result.getBody(), StandardCharsets.UTF_8)));
  }

  private static String text(ArrowBuf buffer) {
    byte[] content = new byte[(int) buffer.readableBytes()];
    buffer.getBytes(buffer.readerIndex(), content);
    return new String(content, StandardCharsets.UTF_8);
  }
}
