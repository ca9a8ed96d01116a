// java.net.http.HttpClient and HttpURLConnection.
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

public class PagesClient {
    public static void main(String[] arguments) throws Exception {
        String base = "http://127.0.0.1:" + arguments[0] + "/";
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        long total = 0;
        for (int n = 0; n < 300; n++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(base + n * 100)).build();
            total += client.send(request, HttpResponse.BodyHandlers.ofByteArray()).body().length;
        }
        System.out.println("get " + total);
        HttpRequest large = HttpRequest.newBuilder(URI.create(base)).POST(HttpRequest.BodyPublishers.ofByteArray(new byte[5_000_000])).build();
        System.out.println("post " + client.send(large, HttpResponse.BodyHandlers.ofByteArray()).body().length);
        List<CompletableFuture<HttpResponse<byte[]>>> all = new ArrayList<>();
        for (int n = 0; n < 50; n++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(base + n * 10_000)).build();
            all.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()));
        }
        total = 0;
        for (CompletableFuture<HttpResponse<byte[]>> one : all) {
            total += one.get().body().length;
        }
        System.out.println("at once " + total);
        total = 0;
        for (int n = 0; n < 100; n++) {
            HttpURLConnection connection = (HttpURLConnection) new URI(base).toURL().openConnection();
            connection.setDoOutput(true);
            connection.setChunkedStreamingMode(1000);
            try (OutputStream out = connection.getOutputStream()) {
                out.write(new byte[n * 500]);
            }
            total += connection.getInputStream().readAllBytes().length;
        }
        System.out.println("chunked " + total);
        System.out.println("idle");
        System.in.read();
        System.out.println(client.send(HttpRequest.newBuilder(URI.create(base + 5)).build(), HttpResponse.BodyHandlers.ofString()).body().length());
        System.out.println("done");
        System.exit(0);
    }
}
