"""HTTP/2 behind the same routes: in the clear by prior knowledge, over TLS by ALPN. The rules are those of HTTP/1.1."""

import json
import os
import signal
import ssl

import hyperframe.frame as frames
import pytest

from harness.counts import action, new_id
from harness.faults import NO_LEAK_CHECK, Unavailable, traced_writes
from harness.http import dial, render
from harness.http2 import INITIAL_WINDOW, MAX_CONCURRENT, NO_ERROR, PREFACE, REFUSED_STREAM, Http2, Reset
from harness.keys import KeyFile
from harness.problems import assert_problem
from harness.stores import SqliteStore
from harness.tls import Certificate
from harness.tokens import Issuer, new_key
from harness.unread import SqliteUnread
from harness.waiting import wait_until

INTERNAL = "/api/v1/internal/counts"


@pytest.fixture(scope="module")
def module_server(module_serve, tmp_path_factory):
    return module_serve(SqliteStore(tmp_path_factory.mktemp("h2") / "data"), "--log-level", "debug")


@pytest.fixture
def server(module_server):
    yield module_server
    module_server.check_alive()


@pytest.fixture
def connection(server):
    with Http2(server.port) as connection:
        yield connection


def create(connection):
    item = new_id()
    assert connection.ask("POST", INTERNAL, {"itemId": item}).status == 201
    return item


# ---- requests and answers


def test_a_count_is_created_increased_and_read(connection):
    item = create(connection)
    assert connection.ask("POST", action(item, "increase"), {"amount": 2}).json()["value"] == 2
    answer = connection.ask("GET", f"{INTERNAL}/{item}")
    assert (answer.status, answer.json()["currentValue"]) == (200, 2)


def test_requests_sent_together_are_all_applied(connection):
    item, many = create(connection), 100
    several = [frame for _ in range(many) for frame in connection.frames_of("POST", action(item, "increase"), {"amount": 1})]
    connection.send(*several)
    ids = [frame.stream_id for frame in several if isinstance(frame, frames.HeadersFrame)]
    values = [connection.answer(stream).json()["value"] for stream in ids]
    assert sorted(values) == list(range(1, many + 1))


def test_requests_that_wait_together_share_a_commit_and_their_answers_a_write(serve, client, sqlite_store, tmp_path):
    """The commit before them is held until all of them wait, so one more takes them all, and wakes the loop once."""
    gate, many = tmp_path / "gate", 30
    os.mkfifo(gate)
    server = serve(sqlite_store, "--deadline", "1h", "--loops", 1, env={
        **NO_LEAK_CHECK, "QUIPU_FAILPOINTS": "commit.before=hold@2",  # the first creates the item
        "QUIPU_FAILPOINT_GATE": str(gate)})
    item = client(server).new_item()
    commits = server.metric("quipu_commit_duration_seconds_count")
    with Http2(server.port) as connection, server.connect() as before:
        several = [connection.frames_of("POST", action(item, "increase"), {"amount": 1}) for _ in range(many)]
        before.send(render("POST", action(item, "increase"), {"amount": 1}))
        with open(gate, "wb") as hold:  # as soon as the failpoint is reached; closing it lets the commit go on
            connection.send(*[frame for request in several for frame in request])
            wait_until(lambda: server.metric("quipu_lane_depth") == many, "all wait in the lane")
            connection.ping()  # so that nothing is left to write but their answers
            try:
                with traced_writes(server.pid, tmp_path) as calls:
                    hold.close()
                    values = [connection.answer(head.stream_id).json()["value"] for head, _ in several]
            except Unavailable as reason:
                pytest.skip(str(reason))
        assert before.read_answer().json()["value"] == 1
        ends = f"127.0.0.1:{server.port}->127.0.0.1:{connection.socket.getsockname()[1]}]"
    assert sorted(values) == list(range(2, many + 2))
    assert server.metric("quipu_commit_duration_seconds_count") - commits == 2
    writes = [line for line in calls.read_text(errors="replace").splitlines() if ends in line]
    assert len(writes) == 1, writes


@pytest.mark.parametrize("method, path, body", [
    ("GET", "/healthz", None),
    ("HEAD", "/healthz", None),
    ("GET", "/no/such/route", None),
    ("DELETE", "/healthz", None),
    ("POST", INTERNAL, {"itemId": ""}),
    ("POST", INTERNAL, {"itemId": "a", "unknown": 1}),
    ("GET", f"{INTERNAL}/no-such-count", None),
    ("GET", "/healthz?%zz", None),
    ("GET", "/openapi.json", None),
])
def test_answers_are_those_of_http_1(server, connection, method, path, body):
    def comparable(answer):
        fields = {n: v for n, v in answer.headers if n not in ("date", "x-request-id", "connection")}
        return answer.status, fields, answer.body

    assert comparable(connection.ask(method, path, body)) == comparable(server.ask(method, path, body))


def test_an_idempotency_key_is_shared_with_http_1(server, connection):
    item, key = create(connection), ("idempotency-key", new_id())
    first = connection.ask("POST", action(item, "increase"), {"amount": 5}, [key])
    again = server.ask("POST", action(item, "increase"), {"amount": 5}, dict([key]))
    assert again.body == first.body and again.header("idempotent-replayed") == "true"


def test_a_large_answer_passes_the_windows_as_they_open(server):
    whole = server.ask("GET", "/openapi.json").body
    with Http2(server.port, settings={INITIAL_WINDOW: 10000}) as connection:
        stream = connection.request("GET", "/openapi.json")
        for got in range(10000, len(whole), 10000):
            connection.read_until(lambda: len(connection.streams.get(stream, [0, b""])[1]) == got)
            connection.open_window(10000, stream)
        assert connection.answer(stream).body == whole


def test_a_request_does_not_wait_for_the_one_before_it(serve, client, database, postgres_store):
    server = serve(postgres_store, "--deadline", "1h", "--lanes", 1)
    item, other = client(server).new_item(), client(server).new_item()
    with Http2(server.port) as connection:
        with database.locked_row(item) as release:
            slow = connection.request("POST", action(item, "increase"), {"amount": 1})
            assert connection.ask("POST", action(other, "increase"), {"amount": 1}).status == 200
            assert connection.ask("GET", "/healthz").status == 200
            release()
        assert connection.answer(slow).json()["value"] == 1


# ---- refusals


def test_a_body_over_the_limit_is_refused_before_it_is_sent(connection):
    head = connection.head("POST", INTERNAL, [("content-length", "100000000")], end=False)
    connection.send(head)
    assert_problem(connection.answer(head.stream_id), 413, "BODY_TOO_LARGE")
    connection.read_until(lambda: head.stream_id in connection.resets)
    assert connection.resets[head.stream_id] == NO_ERROR
    assert connection.ask("GET", "/healthz").status == 200


def test_a_body_that_grows_over_the_limit_is_refused(connection):
    head = connection.head("POST", INTERNAL, end=False)
    connection.send(head, *[frames.DataFrame(head.stream_id, data=bytes(16384)) for _ in range(4)])
    connection.read_until(lambda: True)
    connection.send(frames.DataFrame(head.stream_id, data=bytes(1)))
    assert_problem(connection.answer(head.stream_id), 413, "BODY_TOO_LARGE")
    assert connection.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("headers, status, code", [
    ([(f"x-{i}", "1") for i in range(64)], 431, "HEADERS_TOO_LARGE"),
    ([("x-long", "x" * 15000), ("x-more", "x" * 2000)], 431, "HEADERS_TOO_LARGE"),
    ([("host", "localhost")], 400, "BAD_REQUEST"),
    ([("expect", "a miracle")], 417, "EXPECTATION_FAILED"),
])
def test_limits_of_headers_are_those_of_http_1(connection, headers, status, code):
    block = connection.encoder.encode([(":method", "GET"), (":scheme", "http"), (":authority", "127.0.0.1"),
                                       (":path", "/healthz"), *headers])
    stream = connection.new_stream()
    connection.send(frames.HeadersFrame(stream, data=block[:16000], flags=["END_STREAM"]),
                    frames.ContinuationFrame(stream, data=block[16000:], flags=["END_HEADERS"]))
    assert_problem(connection.answer(stream), status, code)
    assert connection.ask("GET", "/healthz").status == 200


def test_100_continue_comes_before_the_body(connection):
    head = connection.head("POST", INTERNAL, [("expect", "100-continue"), ("content-type", "application/json")], end=False)
    connection.send(head)
    connection.read_until(lambda: head.stream_id in connection.streams)
    assert connection.streams[head.stream_id][0] == [(":status", "100")]
    connection.send(frames.DataFrame(head.stream_id, data=json.dumps({"itemId": new_id()}).encode(), flags=["END_STREAM"]))
    assert connection.answer(head.stream_id).status == 201


def test_a_foreign_page_is_refused(connection):
    answer = connection.ask("POST", INTERNAL, {"itemId": new_id()}, [("origin", "https://elsewhere.example")])
    assert_problem(answer, 403, "FORBIDDEN_ORIGIN")


# ---- callers


def test_keys_open_the_routes_that_they_open_over_http_1(serve, binary, tmp_path, sqlite_store):
    keys = KeyFile(binary, tmp_path / "keys")
    internal, external = keys.new("back", "internal"), keys.new("front", "external")
    server = serve(sqlite_store, "--api-keys", keys.path)
    item = new_id()
    with Http2(server.port) as connection:
        def ask(path, body, key=None):
            return connection.ask("POST", path, body, [("authorization", f"Bearer {key.shown}")] if key else [])

        assert_problem(ask(INTERNAL, {"itemId": item}), 401, "UNAUTHENTICATED")
        assert_problem(ask(INTERNAL, {"itemId": item}, external), 403, "FORBIDDEN")
        assert ask(INTERNAL, {"itemId": item}, internal).status == 201
        assert_problem(ask(action(item, "increase"), {"amount": 1}), 401, "UNAUTHENTICATED")
        assert ask(action(item, "increase"), {"amount": 1}, external).json()["value"] == 1
        assert not connection.goaways, "only a bad token costs the connection"


@pytest.fixture(scope="module")
def token_server(module_serve, tmp_path_factory):
    directory = tmp_path_factory.mktemp("h2-tokens")
    issuer = Issuer(directory, "HS256")
    server = module_serve(SqliteUnread(directory), *issuer.arguments())
    yield server, issuer
    server.check_alive()


def counter(connection, user, token):
    """The HEADERS frame of a request that needs the token of a user."""
    return connection.head("GET", f"/counters/user/{user}/UnreadMessages", [("authorization", f"Bearer {token}")])


def stream(connection, user, token):
    """The same for an event stream, which may have the token in its query, as a browser sends it."""
    return connection.head("GET", f"/counters/user/{user}/stream?access_token={token}")


@pytest.mark.parametrize("ask", [counter, stream])
def test_a_connection_ends_with_its_first_bad_token(token_server, ask):
    """So each guess needs a connection of its own. What follows on this one is reset, whatever token it has."""
    server, issuer = token_server
    with Http2(server.port) as connection:
        token = issuer.token("alice")
        before = counter(connection, "alice", token)
        guess = ask(connection, "alice", issuer.token("alice", key=new_key("HS256")[0]))
        after = counter(connection, "alice", token)
        connection.send(before, guess, after)
        assert connection.answer(before.stream_id).json()["count"] == 0
        with pytest.raises(Reset) as refused:
            connection.answer(after.stream_id)
        assert refused.value.code == REFUSED_STREAM
        assert_problem(connection.answer(guess.stream_id), 401, "UNAUTHENTICATED")
        assert connection.read_to_the_end() == NO_ERROR
        assert connection.goaways[-1].last_stream_id == guess.stream_id


# ---- which protocol


def test_the_preface_decides_however_it_is_cut(server):
    with dial(server.port) as raw:
        for byte in PREFACE + frames.SettingsFrame(0).serialize():
            raw.sendall(bytes([byte]))
        assert raw.recv(9)[3] == frames.SettingsFrame.type


@pytest.mark.parametrize("almost", [b"PRI * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
                                    b"PROPFIND /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_what_is_no_preface_is_http_1(server, almost):
    with dial(server.port) as raw:
        for byte in almost:
            raw.sendall(bytes([byte]))
        assert raw.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 405")


def test_an_upgrade_is_answered_in_http_1(server):
    answer = server.ask("GET", "/healthz", headers={"Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"})
    assert (answer.status, answer.version) == (200, "HTTP/1.1")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("tls") / "one")


def test_over_tls_the_handshake_decides(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), tls=certificate.trust())
    with Http2(server.port, tls=certificate.trust()) as connection:
        assert connection.ask("GET", "/healthz").status == 200
    for offered, chosen in ((["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2"), ([], None)):
        trust = certificate.trust()
        if offered:
            trust.set_alpn_protocols(offered)
        with trust.wrap_socket(dial(server.port), server_hostname="localhost") as client:
            assert client.selected_alpn_protocol() == chosen
            if chosen != "h2":
                client.sendall(render("GET", "/healthz"))
                assert client.recv(12) == b"HTTP/1.1 200"


def test_a_client_that_agreed_on_http_2_and_speaks_http_1_is_closed(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), tls=certificate.trust())
    trust = certificate.trust()
    trust.set_alpn_protocols(["h2"])
    with trust.wrap_socket(dial(server.port), server_hostname="localhost") as client:
        client.sendall(render("GET", "/healthz"))
        try:
            assert client.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            pass


# ---- ending


def test_a_drain_says_goaway_and_lets_requests_finish(serve, client, database, postgres_store):
    server = serve(postgres_store, "--deadline", "1h")
    item = client(server).new_item()
    with Http2(server.port) as connection:
        with database.locked_row(item) as release:
            streams = [connection.request("POST", action(item, "increase"), {"amount": 1}) for _ in range(20)]
            connection.ping()
            server.signal(signal.SIGTERM)
            connection.read_until(lambda: connection.goaways)
            assert connection.goaways[0].last_stream_id == 2**31 - 1, "requests on their way are still served"
            late = connection.request("GET", "/healthz")
            assert connection.answer(late).status == 200
            connection.read_until(lambda: len(connection.goaways) == 2)
            assert connection.goaways[1].last_stream_id == late
            release()
            values = [connection.answer(stream).json()["value"] for stream in streams]
        assert sorted(values) == list(range(1, 21))
        assert connection.read_to_the_end() == NO_ERROR
    assert server.wait_exit() == 0


def test_an_idle_connection_is_told_and_closed(serve, sqlite_store):
    server = serve(sqlite_store, "--idle-timeout", "3s")
    with Http2(server.port) as connection:
        assert connection.ask("GET", "/healthz").status == 200
        assert connection.read_to_the_end() == NO_ERROR


def test_a_client_that_is_done_gets_its_answers(server):
    with Http2(server.port) as connection:
        streams = [connection.request("GET", "/healthz") for _ in range(10)]
        connection.send(frames.GoAwayFrame(0, last_stream_id=0, error_code=NO_ERROR))
        assert [connection.answer(stream).status for stream in streams] == [200] * 10
        connection.read_to_the_end()


# ---- what operators see


def test_metrics_and_the_log_name_the_protocol(server, connection):
    name = 'quipu_http_answers_total{protocol="HTTP/2"}'
    before = server.metrics()[name]
    request_id = new_id()
    assert connection.ask("GET", "/healthz", headers=[("x-request-id", request_id)]).status == 200
    metrics = server.metrics()
    assert metrics[name] == before + 1
    assert metrics["quipu_http2_connections"] >= 1
    assert metrics['quipu_http_answers_total{protocol="HTTP/1.1"}'] >= 1

    def logged():
        return [json.loads(line) for line in server.log.read_text().splitlines() if request_id in line]

    wait_until(logged, "the request is in the log")
    assert logged()[0]["protocol"] == "HTTP/2"


def test_the_settings_say_how_many_requests_are_allowed_at_once(serve, sqlite_store):
    server = serve(sqlite_store, "--h2-streams", 7)
    with Http2(server.port) as connection:
        connection.read_until(lambda: connection.settings)
        assert connection.settings[MAX_CONCURRENT] == 7


