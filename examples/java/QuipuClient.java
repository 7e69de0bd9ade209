import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.Timer;
import java.util.TimerTask;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongConsumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A client of Quipu in Java 17, with the standard library only. docs/CLIENTS.md explains its rules.
 *
 * <pre>
 * java QuipuClient.java increase visits [KEY]       an increase that counts once, however often it is sent
 * java QuipuClient.java send 1001 'Hello!' [KEY]    a message that waits until the user's limit admits it
 * java QuipuClient.java badge dave                  the number of unread messages, live
 * </pre>
 *
 * QUIPU_SERVER is the server's address (http://127.0.0.1:8080), QUIPU_API_KEY a key, if it requires one.
 */
public final class QuipuClient {
    /** The server says no, and would say no again. Nothing was changed. */
    static final class Refused extends Exception {
        Refused(String why) { super(why); }
    }

    /** The server could not do it in time. Nothing was changed. */
    static final class GaveUp extends Exception {
        GaveUp(String why) { super(why); }
    }

    /** It may have happened. Retry later with the same key: that resolves it. */
    static final class Unknown extends Exception {
        Unknown(String why) { super(why); }
    }

    /** One attempt. The status is 0 if no answer came. */
    record Attempt(int status, long retryAfterMs, String body) {}

    private static final Duration ANSWER = Duration.ofSeconds(10); // the server gives up after its --deadline, 5 s
    private static final long SILENCE_MS = 45_000; // a stream without a line for three heartbeats is dead
    private static final Set<Integer> RETRIED = Set.of(408, 429, 502, 503, 504);
    private static final Set<String> UNCHANGED =
        Set.of("OVERLOADED", "STORE_UNAVAILABLE", "BUS_UNAVAILABLE", "RATE_LIMIT_EXCEEDED", "REQUEST_TIMEOUT");

    private final String server = System.getenv().getOrDefault("QUIPU_SERVER", "http://127.0.0.1:8080");
    private final HttpClient http =
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(ANSWER).build();

    private HttpRequest.Builder request(String path) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(server + path));
        String apiKey = System.getenv("QUIPU_API_KEY");
        return apiKey == null ? request : request.header("Authorization", "Bearer " + apiKey);
    }

    private Attempt post(String path, String body, String key) throws InterruptedException {
        HttpRequest request = request(path).timeout(ANSWER).header("Content-Type", "application/json")
            .header("Idempotency-Key", key).POST(HttpRequest.BodyPublishers.ofString(body)).build();
        try {
            HttpResponse<String> answer = http.send(request, BodyHandlers.ofString());
            long retryAfterS = answer.headers().firstValueAsLong("Retry-After").orElse(0);
            return new Attempt(answer.statusCode(), 1000 * retryAfterS, answer.body());
        } catch (IOException e) { // no connection, no answer, or only a part of it
            return new Attempt(0, 0, "");
        }
    }

    /** Sends a change until it is answered for good. Every attempt carries the same key, so only one takes effect. */
    private String change(String path, String body, String key, Duration patience)
        throws InterruptedException, Refused, GaveUp, Unknown {
        long deadline = System.nanoTime() + patience.toNanos();
        long backoffMs = 200;
        boolean mayHaveHappened = false;
        while (true) {
            Attempt attempt = post(path, body, key);
            if (attempt.status >= 200 && attempt.status < 300)
                return attempt.body;
            if (attempt.status != 0 && !RETRIED.contains(attempt.status)) {
                String why = attempt.status + " " + attempt.body + "; key " + key;
                // The server looks at the key only of callers it knows.
                if (mayHaveHappened && (attempt.status == 401 || attempt.status == 403))
                    throw new Unknown(why);
                throw new Refused(why);
            }
            // No answer, OUTCOME_UNKNOWN, or a proxy's error.
            mayHaveHappened |= !UNCHANGED.contains(member(attempt.body, "code"));
            long pauseMs = attempt.retryAfterMs + ThreadLocalRandom.current().nextLong(backoffMs);
            if (System.nanoTime() + 1_000_000 * pauseMs > deadline) {
                String why = attempt.status + " " + attempt.body + "; key " + key;
                if (mayHaveHappened)
                    throw new Unknown(why);
                throw new GaveUp(why);
            }
            Thread.sleep(pauseMs);
            backoffMs = Math.min(2 * backoffMs, 5_000);
        }
    }

    long increase(String item, String key) throws Exception {
        String path = "/api/v1/counts/" + escape(item) + "/increase";
        return Long.parseLong(member(change(path, "{\"amount\":1}", key, Duration.ofMinutes(1)), "value"));
    }

    /** Waits for the user's next window if this one is used up: 429 says in Retry-After how long that takes. */
    String send(String user, String message, String key) throws Exception {
        String body = "{\"userId\":" + quote(user) + ",\"message\":" + quote(message) + "}";
        return member(change("/api/send", body, key, Duration.ofMinutes(3)), "messageId");
    }

    /** Follows the stream for ever. After a loss it asks for what is newer than the last event. */
    void badge(String user, LongConsumer show) throws InterruptedException, Refused {
        Stream stream = new Stream("/counters/user/" + escape(user) + "/stream");
        while (true) {
            try {
                stream.follow(show);
            } catch (IOException e) {
                // The connection is lost, or nothing came for SILENCE_MS.
            }
            Thread.sleep(stream.retryMs / 2 + ThreadLocalRandom.current().nextLong(stream.retryMs + 1));
        }
    }

    /** Knows where the next connection goes on. */
    private final class Stream {
        private final String path;
        private String lastId = "";
        private long retryMs = 2_000;
        private volatile long lastLineNs;

        Stream(String path) { this.path = path; }

        /** Shows the events of one connection. */
        void follow(LongConsumer show) throws IOException, InterruptedException, Refused {
            HttpRequest.Builder request = request(path).header("Accept", "text/event-stream");
            if (!lastId.isEmpty())
                request.header("Last-Event-ID", lastId);
            HttpResponse<InputStream> answer = http.send(request.build(), BodyHandlers.ofInputStream());
            try (InputStream body = answer.body()) {
                if (answer.statusCode() == 200)
                    read(body, show);
                else if (!RETRIED.contains(answer.statusCode()))
                    throw new Refused(answer.statusCode() + " " + new String(body.readAllBytes(), StandardCharsets.UTF_8));
            }
        }

        private void read(InputStream body, LongConsumer show) throws IOException {
            Timer watchdog = watch(body);
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(body, StandardCharsets.UTF_8))) {
                String data = "";
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    lastLineNs = System.nanoTime();
                    if (line.startsWith("id: ")) {
                        lastId = line.substring(4);
                    } else if (line.startsWith("retry: ")) {
                        retryMs = Long.parseLong(line.substring(7));
                    } else if (line.startsWith("data: ")) {
                        data = line.substring(6);
                    } else if (line.isEmpty() && !data.isEmpty()) { // half of an event is not shown
                        show.accept(Long.parseLong(member(data, "count")));
                        data = "";
                    }
                }
            } finally {
                watchdog.cancel();
            }
        }

        /** Closes a stream that is silent for too long, so that reading from it ends. */
        private Timer watch(InputStream body) {
            Timer timer = new Timer(true);
            lastLineNs = System.nanoTime();
            timer.schedule(new TimerTask() {
                @Override public void run() {
                    if (System.nanoTime() - lastLineNs < 1_000_000 * SILENCE_MS)
                        return;
                    try {
                        body.close();
                    } catch (IOException e) {
                        // It is closed all the same.
                    }
                }
            }, 1_000, 1_000);
            return timer;
        }
    }

    /* Java has no JSON of its own. These three are enough for Quipu's flat answers; use your library where you have one. */

    private static String member(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(json);
        return found.find() ? found.group(1) : "";
    }

    private static String quote(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\')
                json.append('\\').append(c);
            else if (c < ' ')
                json.append(String.format("\\u%04x", (int)c));
            else
                json.append(c);
        }
        return json.append('"').toString();
    }

    private static String escape(String segment) {
        return URLEncoder.encode(segment, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static void run(String[] words) throws Exception {
        QuipuClient client = new QuipuClient();
        // A job that must survive a restart of this program stores its key before the first attempt.
        String newKey = UUID.randomUUID().toString();
        String verb = words.length > 0 ? words[0] : "";
        if (verb.equals("increase") && words.length >= 2)
            System.out.println(client.increase(words[1], words.length > 2 ? words[2] : newKey));
        else if (verb.equals("send") && words.length >= 3)
            System.out.println(client.send(words[1], words[2], words.length > 3 ? words[3] : newKey));
        else if (verb.equals("badge") && words.length == 2)
            client.badge(words[1], count -> System.out.println(count + " unread"));
        else
            throw new Refused("usage: increase ITEM [KEY] | send USER MESSAGE [KEY] | badge USER");
    }

    public static void main(String[] words) throws Exception {
        try {
            run(words);
        } catch (Refused | GaveUp e) {
            System.err.println("Nothing was changed: " + e.getMessage());
            System.exit(1);
        } catch (Unknown e) {
            System.err.println("It may have happened; run this again with the key: " + e.getMessage());
            System.exit(2);
        }
    }
}
