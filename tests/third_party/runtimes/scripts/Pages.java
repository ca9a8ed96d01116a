// com.sun.net.httpserver: GET /N gives N bytes, a POST what was sent, in chunks.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Pages {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.createContext("/", Pages::answer);
        server.setExecutor(Executors.newFixedThreadPool(4, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        }));
        server.start();
    }

    static void answer(HttpExchange exchange) throws java.io.IOException {
        boolean post = exchange.getRequestMethod().equals("POST");
        byte[] body = exchange.getRequestBody().readAllBytes();
        if (!post) {
            body = new byte[Integer.parseInt(exchange.getRequestURI().getPath().substring(1))];
        }
        exchange.sendResponseHeaders(200, post || body.length == 0 ? 0 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
