import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Instant;

/**
 * Queries a server with nothing but Arrow's own JDBC driver.
 *
 * <p>Jdbc HOST:PORT/?OPTIONS FOLDER carries out FOLDER/errand.json: each step names a call and its request. The answer to each
 * goes to standard output, one JSON object for each step.
 */
public final class Jdbc {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    String url = "jdbc:arrow-flight-sql://" + arguments[0];
    try (Connection connection = DriverManager.getConnection(url)) {
      for (JsonNode step : JSON.readTree(new File(arguments[1], "errand.json"))) {
        ObjectNode said = JSON.createObjectNode();
        try {
          carryOut(connection, step.get("call").asText(), step.get("request"), said);
        } catch (SQLException error) {
          said.put("error", String.valueOf(error.getMessage()));
        }
        System.out.println(JSON.writeValueAsString(said));
      }
    }
  }

  private static void carryOut(Connection connection, String call, JsonNode request, ObjectNode said)
      throws Exception {
    DatabaseMetaData metadata = connection.getMetaData();
    switch (call) {
      case "statement" -> {
        try (Statement statement = connection.createStatement()) {
          rows(statement.executeQuery(request.asText()), said);
        }
      }
      case "prepared" -> {
        try (PreparedStatement statement = connection.prepareStatement(request.get(0).asText())) {
          for (int i = 1; i < request.size(); i++) {
            bind(statement, i, request.get(i));
          }
          rows(statement.executeQuery(), said);
        }
      }
      case "catalogs" -> rows(metadata.getCatalogs(), said);
      case "schemas" -> rows(metadata.getSchemas(null, text(request, 0)), said);
      case "tables" -> rows(metadata.getTables(null, text(request, 0), text(request, 1), null), said);
      case "columns" -> rows(metadata.getColumns(null, text(request, 0), text(request, 1), null), said);
      case "types" -> rows(metadata.getTableTypes(), said);
      case "properties" -> properties(metadata, said);
      default -> throw new IllegalArgumentException("no such call");
    }
  }

  private static void bind(PreparedStatement statement, int i, JsonNode value) throws SQLException {
    if (value.isInt()) {
      statement.setInt(i, value.asInt());
    } else if (value.isIntegralNumber()) {
      statement.setLong(i, value.asLong());
    } else if (value.isNumber()) {
      statement.setDouble(i, value.asDouble());
    } else if (value.isObject()) {
      statement.setTimestamp(i, Timestamp.from(Instant.parse(value.get("time").asText())));
    } else if (value.isNull()) {
      statement.setNull(i, Types.NULL);
    } else {
      statement.setString(i, value.asText());
    }
  }

  private static String text(JsonNode request, int i) {
    return request.path(i).isTextual() ? request.get(i).asText() : null;
  }

  private static void rows(ResultSet found, ObjectNode said) throws SQLException {
    try (found) {
      ArrayNode columns = said.putArray("columns");
      int count = found.getMetaData().getColumnCount();
      for (int i = 1; i <= count; i++) {
        columns.add(found.getMetaData().getColumnLabel(i));
      }
      ArrayNode rows = said.putArray("rows");
      while (found.next()) {
        ArrayNode row = rows.addArray();
        for (int i = 1; i <= count; i++) {
          row.add(found.getString(i));
        }
      }
    }
  }

  /** Calls every method that takes no arguments, as database tools do when they connect. */
  private static void properties(DatabaseMetaData metadata, ObjectNode said) throws IllegalAccessException {
    for (Method method : DatabaseMetaData.class.getMethods()) {
      Class<?> type = method.getReturnType();
      if (method.getParameterCount() > 0 || !(type.isPrimitive() || type == String.class)) {
        continue;
      }
      try {
        said.putPOJO(method.getName(), method.invoke(metadata));
      } catch (InvocationTargetException error) {
        said.putObject(method.getName()).put("error", String.valueOf(error.getCause()));
      }
    }
  }
}
