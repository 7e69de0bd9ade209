// A client of Quipu for .NET 8, without packages. docs/CLIENTS.md explains its rules.
//
//   dotnet run increase visits [KEY]       an increase that counts once, however often it is sent
//   dotnet run send 1001 'Hello!' [KEY]    a message that waits until the user's limit admits it
//   dotnet run badge dave                  the number of unread messages, live
//
// QUIPU_SERVER is the server's address (http://127.0.0.1:8080), QUIPU_API_KEY a key, if it requires one.

using System.Net.Http.Headers;
using System.Net.Http.Json;
using System.Text.Json;

var client = new QuipuClient();
// A job that must survive a restart of this program stores its key before the first attempt.
var newKey = Guid.NewGuid().ToString();
try
{
    switch (args)
    {
        case ["increase", var item, .. var key]:
            Console.WriteLine(await client.Increase(item, key.FirstOrDefault(newKey)));
            return 0;
        case ["send", var user, var message, .. var key]:
            Console.WriteLine(await client.Send(user, message, key.FirstOrDefault(newKey)));
            return 0;
        case ["badge", var user]:
            await client.Badge(user, count => Console.WriteLine($"{count} unread"));
            return 0;
        default:
            throw new RefusedException("usage: increase ITEM [KEY] | send USER MESSAGE [KEY] | badge USER");
    }
}
catch (UnknownException e)
{
    Console.Error.WriteLine($"It may have happened; run this again with the key: {e.Message}");
    return 2;
}
catch (Exception e) when (e is RefusedException or GaveUpException)
{
    Console.Error.WriteLine($"Nothing was changed: {e.Message}");
    return 1;
}

/// <summary>The server says no, and would say no again. Nothing was changed.</summary>
class RefusedException(string why) : Exception(why);

/// <summary>The server could not do it in time. Nothing was changed.</summary>
class GaveUpException(string why) : Exception(why);

/// <summary>It may have happened. Retry later with the same key: that resolves it.</summary>
class UnknownException(string why) : Exception(why);

class QuipuClient
{
    static readonly TimeSpan Answer = TimeSpan.FromSeconds(10); // the server gives up after its --deadline, 5 s
    static readonly TimeSpan Silence = TimeSpan.FromSeconds(45); // a stream without a line for three heartbeats is dead
    static readonly HashSet<int> Retried = [408, 429, 502, 503, 504];
    static readonly HashSet<string> Unchanged =
        ["OVERLOADED", "STORE_UNAVAILABLE", "BUS_UNAVAILABLE", "RATE_LIMIT_EXCEEDED", "REQUEST_TIMEOUT"];

    readonly HttpClient http = new()
    {
        BaseAddress = new Uri(Environment.GetEnvironmentVariable("QUIPU_SERVER") ?? "http://127.0.0.1:8080"),
        Timeout = Timeout.InfiniteTimeSpan, // each call has its own
    };

    public QuipuClient()
    {
        if (Environment.GetEnvironmentVariable("QUIPU_API_KEY") is { Length: > 0 } apiKey)
            http.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue("Bearer", apiKey);
    }

    public async Task<long> Increase(string item, string key)
    {
        var answer = await Change($"/api/v1/counts/{Uri.EscapeDataString(item)}/increase", new { amount = 1 }, key,
            TimeSpan.FromMinutes(1));
        return answer.GetProperty("value").GetInt64();
    }

    /// <summary>Waits for the user's next window if this one is used up: 429 says in Retry-After how long that takes.</summary>
    public async Task<string> Send(string user, string message, string key)
    {
        var answer = await Change("/api/send", new { userId = user, message }, key, TimeSpan.FromMinutes(3));
        return answer.GetProperty("messageId").GetString()!;
    }

    /// <summary>One attempt: the status, Retry-After, and the answer. The status is 0 if no answer came.</summary>
    async Task<(int Status, TimeSpan RetryAfter, JsonElement Answer)> Post(string path, object body, string key)
    {
        using var request = new HttpRequestMessage(HttpMethod.Post, path) { Content = JsonContent.Create(body) };
        request.Headers.Add("Idempotency-Key", key);
        using var timeout = new CancellationTokenSource(Answer);
        try
        {
            using var response = await http.SendAsync(request, timeout.Token);
            var isJson = response.Content.Headers.ContentType?.MediaType?.EndsWith("json") ?? false;
            var answer = isJson ? await response.Content.ReadFromJsonAsync<JsonElement>(timeout.Token) : default;
            return ((int)response.StatusCode, response.Headers.RetryAfter?.Delta ?? TimeSpan.Zero, answer);
        }
        catch (Exception e) when (e is HttpRequestException or IOException or OperationCanceledException or JsonException)
        {
            return (0, TimeSpan.Zero, default); // no connection, no answer, or only a part of it
        }
    }

    /// <summary>Sends a change until it is answered for good. Every attempt carries the same key, so only one takes
    /// effect.</summary>
    async Task<JsonElement> Change(string path, object body, string key, TimeSpan patience)
    {
        var started = TimeProvider.System.GetTimestamp();
        var backoff = TimeSpan.FromMilliseconds(200);
        var mayHaveHappened = false;
        while (true)
        {
            var (status, retryAfter, answer) = await Post(path, body, key);
            if (status is >= 200 and < 300)
                return answer;
            var code = answer.ValueKind == JsonValueKind.Object && answer.TryGetProperty("code", out var said)
                ? said.GetString() ?? ""
                : "";
            if (status != 0 && !Retried.Contains(status))
                throw mayHaveHappened && status is (401 or 403) // the server looks at the key only of callers it knows
                    ? new UnknownException($"{status} {answer}; key {key}")
                    : new RefusedException($"{status} {answer}; key {key}");
            mayHaveHappened |= !Unchanged.Contains(code); // no answer, OUTCOME_UNKNOWN, or a proxy's error
            var pause = retryAfter + Random.Shared.NextDouble() * backoff;
            if (TimeProvider.System.GetElapsedTime(started) + pause > patience)
                throw mayHaveHappened
                    ? new UnknownException($"{status} {code}; key {key}")
                    : new GaveUpException($"{status} {code}; key {key}");
            await Task.Delay(pause);
            backoff = TimeSpan.FromSeconds(Math.Min(2 * backoff.TotalSeconds, 5));
        }
    }

    /// <summary>Follows the stream for ever. After a loss it asks for what is newer than the last event.</summary>
    public async Task Badge(string user, Action<long> show)
    {
        var state = new StreamState();
        while (true)
        {
            try
            {
                await Follow($"/counters/user/{Uri.EscapeDataString(user)}/stream", state, show);
            }
            catch (Exception e) when (e is HttpRequestException or IOException or OperationCanceledException)
            {
                // The connection is lost, or nothing came for `Silence`.
            }
            await Task.Delay(state.Retry * (0.5 + Random.Shared.NextDouble()));
        }
    }

    /// <summary>Where the next connection goes on.</summary>
    class StreamState
    {
        public string LastId = "";
        public TimeSpan Retry = TimeSpan.FromSeconds(2);
    }

    async Task Follow(string path, StreamState state, Action<long> show)
    {
        using var silence = new CancellationTokenSource(Silence);
        using var request = new HttpRequestMessage(HttpMethod.Get, path);
        request.Headers.Add("Accept", "text/event-stream");
        if (state.LastId != "")
            request.Headers.Add("Last-Event-ID", state.LastId);
        using var response = await http.SendAsync(request, HttpCompletionOption.ResponseHeadersRead, silence.Token);
        var status = (int)response.StatusCode;
        if (status != 200 && !Retried.Contains(status))
            throw new RefusedException($"{status} {await response.Content.ReadAsStringAsync(silence.Token)}");
        if (status != 200)
            return;
        using var lines = new StreamReader(await response.Content.ReadAsStreamAsync(silence.Token));
        var data = "";
        while (await lines.ReadLineAsync(silence.Token) is { } line)
        {
            silence.CancelAfter(Silence);
            if (line.StartsWith("id: "))
                state.LastId = line[4..];
            else if (line.StartsWith("retry: "))
                state.Retry = TimeSpan.FromMilliseconds(int.Parse(line[7..]));
            else if (line.StartsWith("data: "))
                data = line[6..];
            else if (line == "" && data != "") // only the empty line completes an event: half of one is not shown
            {
                show(JsonDocument.Parse(data).RootElement.GetProperty("count").GetInt64());
                data = "";
            }
        }
    }
}
