"""The listener with a certificate: what is spoken, what is refused, how it ends, what it costs."""

import contextlib
import hashlib
import http.server
import json
import resource
import select
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from harness import quipu
from harness.counts import action, increase_request, new_id
from harness.http import Connection, render
from harness.problems import assert_problem
from harness.stores import SqliteStore
from harness.tls import Certificate, Wire
from harness.waiting import HANG_S, wait_until

KIB_PER_CONNECTION = 32  # with what AddressSanitizer puts around every piece of memory
# AddressSanitizer keeps 256 MB of what was freed: far more than all connections take
LITTLE_QUARANTINE = {"ASAN_OPTIONS": "detect_leaks=1:exitcode=99:quarantine_size_mb=4"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("tls") / "one")


@pytest.fixture(scope="module")
def module_tls_server(module_serve, certificate, tmp_path_factory):
    store = SqliteStore(tmp_path_factory.mktemp("tls-data") / "data")
    return module_serve(store, *certificate.arguments(), "--log-level", "debug", tls=certificate.trust())


@pytest.fixture
def server(module_tls_server):
    yield module_tls_server
    module_tls_server.check_alive()


def handshakes(server, result):
    return server.metrics()[f'quipu_tls_handshakes_total{{result="{result}"}}']


def create(server):
    item = new_id()
    assert server.ask("POST", "/api/v1/internal/counts", {"itemId": item}).status == 201
    return item


def value(server, item):
    return server.ask("GET", f"/api/v1/internal/counts/{item}").json()["currentValue"]


# ---- what is spoken


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(server, certificate, version):
    tls = certificate.trust()
    tls.minimum_version = tls.maximum_version = version
    tls.set_alpn_protocols(["http/1.1"])
    with Connection(server.port, tls=tls) as connection:
        assert connection.socket.version() == version.name.replace("_", ".")
        assert connection.socket.selected_alpn_protocol() == "http/1.1"
        assert connection.socket.compression() is None
        assert connection.ask("GET", "/healthz").status == 200


def test_tls_1_1_is_refused(server, certificate):
    tls = certificate.trust()
    tls.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.deprecated_call():
        tls.minimum_version = tls.maximum_version = ssl.TLSVersion.TLSv1_1
    before = handshakes(server, "failed")
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        Connection(server.port, tls=tls)
    assert handshakes(server, "failed") == before + 1


@pytest.mark.parametrize("ciphers", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA256"])
def test_old_ciphers_are_refused(server, certificate, ciphers):
    tls = certificate.trust()
    tls.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        Connection(server.port, tls=tls)


def test_the_line_at_the_start_says_https(server):
    assert f"quipu listening on https://127.0.0.1:{server.port}\n" in server.output.read_text()


def test_curl_speaks_to_it(server, certificate):
    item = create(server)
    url = f"https://localhost:{server.port}"
    done = subprocess.run(
        ["curl", "-sS", "--fail", "--cacert", certificate.file, "-X", "POST", url + action(item, "increase"),
         "--next", "-sS", "--fail", "--cacert", certificate.file, f"{url}/api/v1/internal/counts/{item}"],
        capture_output=True, text=True, check=True)
    assert '"value":1' in done.stdout and '"currentValue":1' in done.stdout


def test_openssl_s_client_speaks_to_it(server, certificate):
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-CAfile", certificate.file,
         "-verify_return_error", "-verify_ip", "127.0.0.1", "-quiet", "-ign_eof"],
        input=request, capture_output=True, timeout=HANG_S, check=True)
    assert done.stdout.startswith(b"HTTP/1.1 200 OK\r\n") and done.stdout.endswith(b'{"status":"ok"}')


# ---- requests of every shape


def test_a_connection_is_kept_and_takes_pipelined_requests(server):
    item = create(server)
    with server.connect() as connection:
        for _ in range(3):
            assert connection.ask("GET", "/healthz").status == 200
        connection.send(b"".join(increase_request(item) for _ in range(50)))
        answers = [connection.read_answer() for _ in range(50)]
    assert [answer.json()["value"] for answer in answers] == list(range(1, 51))


def test_a_request_may_come_byte_by_byte_in_records_of_one(server):
    item = create(server)
    with server.connect() as connection:
        for byte in increase_request(item, 7):
            connection.send(bytes([byte]))
        assert connection.read_answer().json()["value"] == 7


def test_handshake_and_request_may_come_byte_by_byte_on_the_wire(server, certificate):
    def trickle(data):
        for byte in data:
            wire.socket.sendall(bytes([byte]))

    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands(trickle)
        wire.tls.write(render("GET", "/healthz", headers={"Connection": "close"}))
        trickle(wire.pending())
        assert wire.read_all().endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("size", [16 * 1024, 16 * 1024 + 1, 64 * 1024])
def test_a_body_may_span_records(server, size):
    item = new_id()
    body = json.dumps({"itemId": item}).encode()
    with server.connect() as connection:
        answer = connection.ask("POST", "/api/v1/internal/counts", body + b" " * (size - len(body)))
        assert answer.status == 201
        assert connection.ask("GET", f"/api/v1/internal/counts/{item}").status == 200


def test_a_body_that_is_too_large_is_refused_and_the_answer_arrives(server):
    with server.connect() as connection:
        connection.try_send(render("POST", "/api/v1/internal/counts", b" " * 1024 * 1024))
        assert_problem(connection.read_answer(), 413, "BODY_TOO_LARGE")
        connection.assert_closed()


def test_a_client_may_wait_for_100_continue(server):
    item = new_id()
    body = json.dumps({"itemId": item}).encode()
    with server.connect() as connection:
        head = render("POST", "/api/v1/internal/counts", headers={
            "Expect": "100-continue", "Content-Type": "application/json", "Content-Length": str(len(body))})
        connection.send(head)
        assert connection.read_answer().status == 100
        connection.send(body)
        assert connection.read_answer().status == 201


def test_an_answer_of_many_records_arrives_whole(server):
    """As many pages of metrics as no socket holds, for a client that reads late."""
    with server.connect() as connection:
        connection.send(render("GET", "/metrics") * 60)
        for _ in range(60):
            answer = connection.read_answer()
            assert answer.status == 200 and answer.body.endswith(b"\n")


# ---- ends


def test_our_end_is_said_with_close_notify(server, certificate):
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(render("GET", "/healthz", headers={"Connection": "close"}))
        wire.flush()
        assert wire.read_all().endswith(b'{"status":"ok"}')


def test_a_client_that_says_close_notify_still_gets_its_answer(server, certificate):
    item = create(server)
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(increase_request(item))
        wire.flush()
        wire.end()
        assert b'"value":1' in wire.read_all()


def test_a_client_that_only_closes_its_side_of_the_socket_still_gets_its_answer(server, certificate):
    item = create(server)
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(increase_request(item))
        wire.flush()
        wire.socket.shutdown(socket.SHUT_WR)
        assert b'"value":1' in wire.read_all()


@pytest.mark.parametrize("missing", [1, 20])
def test_a_request_that_was_cut_off_changes_nothing(server, certificate, missing):
    """Of a request and of a record: somebody on the way has closed the connection."""
    item = create(server)
    request = increase_request(item, 5)
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(request)
        wire.socket.sendall(wire.pending()[:-missing])
        wire.socket.shutdown(socket.SHUT_WR)
        wire.read_all()
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(request[:-missing])
        wire.flush()
        wire.socket.shutdown(socket.SHUT_WR)
        wire.read_all()
    assert value(server, item) == 0


def test_a_record_that_was_changed_on_its_way_ends_the_connection_and_changes_nothing(server, certificate):
    item = create(server)
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(increase_request(item))
        data = bytearray(wire.pending())
        data[-1] ^= 1
        wire.socket.sendall(data)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            wire.read_all()
    assert value(server, item) == 0


def test_idle_connections_end_with_close_notify(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), "--idle-timeout", "3s", tls=certificate.trust())
    with server.connect() as connection:
        assert connection.ask("GET", "/healthz").status == 200
        connection.assert_closed()


# ---- what is no TLS


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_http_without_tls_is_answered_in_the_clear(server, method):
    before = handshakes(server, "plain_http")
    with Connection(server.port) as connection:
        connection.send(render(method, "/healthz"))
        answer = connection.read_answer()
        assert_problem(answer, 400, "BAD_REQUEST")
        assert "https://" in answer.json()["detail"]
        connection.assert_closed()
    assert handshakes(server, "plain_http") == before + 1


GARBAGE = {
    "zeros": bytes(1000),
    "letters": b"hello there\r\n\r\n" * 100,
    "record of nonsense": b"\x16\x03\x01\x00\x40" + bytes(range(64)),
    "record without end": b"\x16\x03\x01\xff\xff" + b"\x01" * 70000,
    "SSL 2": b"\x80\x2e\x01\x00\x02" + bytes(100),
    "alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "text of a session": b"\x17\x03\x03\x00\x20" + bytes(32),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_instead_of_a_hello_is_ended_and_counted(server, garbage):
    before = handshakes(server, "failed")
    with Connection(server.port) as connection:
        connection.try_send(garbage)
        connection.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while connection.socket.recv(4096):  # perhaps an alert
                pass
    wait_until(lambda: handshakes(server, "failed") == before + 1, "it is counted")


def test_a_slow_handshake_is_cut_off(serve, sqlite_store, certificate):
    # long enough for the handshakes of those who look at the metrics, on a busy machine too
    server = serve(sqlite_store, *certificate.arguments(), "--head-timeout", "3s", "--idle-timeout", "1h",
                   tls=certificate.trust())
    start = time.monotonic()
    with Connection(server.port) as silent, Wire(server.port, certificate.trust()) as slow:
        slow.try_handshake()
        hello = slow.pending()
        with contextlib.suppress(ConnectionError):
            for byte in hello:
                slow.socket.sendall(bytes([byte]))
                if select.select([slow.socket], [], [], 0.05)[0]:
                    break
            assert slow.socket.recv(1) == b""
        silent.assert_closed()
    assert time.monotonic() - start >= 3
    assert handshakes(server, "timeout") == 2
    assert server.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("linger", [struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)], ids=["reset", "end"])
def test_clients_that_vanish_in_the_middle_of_a_handshake_are_forgotten(server, certificate, linger):
    before = handshakes(server, "gone")
    for _ in range(20):
        wire = Wire(server.port, certificate.trust())
        wire.try_handshake()
        wire.flush()
        wire.receive()  # the server's part, and now it waits for ours
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wire.socket.close()
    wait_until(lambda: handshakes(server, "gone") == before + 20, "they are counted")
    wait_until(lambda: server.metric("quipu_http_connections") == 1, "their connections are closed")


def test_where_no_connection_gives_way_more_of_them_are_closed(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), "--roles", "dialogs,counters", "--max-connections", "2",
                   tls=certificate.trust())
    with server.connect() as first, server.connect() as second:
        for stream in (first, second):
            stream.send(render("GET", "/counters/user/bob/stream"))
            read_until(stream, b'"count":0')
        with pytest.raises((ssl.SSLError, ConnectionError)):
            server.connect()


# ---- beside other parts of the server


def test_event_streams_are_told_under_tls_and_end_with_close_notify(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), "--roles", "dialogs,counters", tls=certificate.trust())
    with server.connect() as stream:
        stream.send(render("GET", "/counters/user/bob/stream"))
        read_until(stream, b'"count":0')
        for number in range(1, 4):
            sent = server.ask("POST", "/dialogs/send", {"receiverId": "bob", "text": "Hello!"}, {"X-User-Id": "alice"})
            assert sent.status == 200
            read_until(stream, b'"count":%d' % number)
        server.signal(signal.SIGTERM)
        while stream.socket.recv(4096):  # raises where close_notify is missing
            pass
    assert server.wait_exit() == 0


def test_the_client_of_a_stream_that_says_close_notify_is_let_go(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), "--roles", "dialogs,counters", tls=certificate.trust())
    with Wire(server.port, certificate.trust()) as wire:
        wire.shake_hands()
        wire.tls.write(render("GET", "/counters/user/bob/stream"))
        wire.flush()
        wait_until(lambda: server.metric("quipu_http_streams") == 1, "the stream is open")
        wire.end()
        wait_until(lambda: server.metric("quipu_http_streams") == 0, "the stream is over")
        assert b'"count":0' in wire.read_all()


def read_until(connection, mark):
    text = b""
    while mark not in text:
        data = connection.socket.recv(4096)
        assert data, f"ended before {mark!r}: {text!r}"
        text += data


def test_api_keys_are_asked_for_under_tls(serve, sqlite_store, certificate, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"ops {hashlib.sha256(b'secret').hexdigest()} admin\n")
    server = serve(sqlite_store, *certificate.arguments(), "--api-keys", keys, tls=certificate.trust())
    body = {"itemId": new_id()}
    with server.connect() as connection:
        assert connection.ask("POST", "/api/v1/internal/counts", body).status == 401
        shown_key = {"Authorization": "Bearer qk_ops_secret"}
        assert connection.ask("POST", "/api/v1/internal/counts", body, shown_key).status == 201
        server.signal(signal.SIGHUP)
        for words in ("SIGHUP: the keys were read again", "SIGHUP: the certificate"):
            wait_until(lambda: words in server.log_text(), "both are read again")


def test_sigterm_finishes_what_has_begun_and_ends_the_rest(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), "--head-timeout", "1h", "--idle-timeout", "1h",
                   "--drain-timeout", "1h", tls=certificate.trust())
    item = create(server)
    with server.connect() as begun, server.connect() as idle, Connection(server.port) as silent, \
            Wire(server.port, certificate.trust()) as greeting:
        request = increase_request(item)
        begun.send(request[:-2])
        greeting.try_handshake()
        greeting.flush()
        greeting.receive()
        wait_until(lambda: server.metric("quipu_http_requests_in_flight") == 2, "the request has begun")
        server.signal(signal.SIGTERM)
        idle.assert_closed()
        silent.assert_closed()
        begun.send(request[-2:])
        answer = begun.read_answer()
        assert (answer.json()["value"], answer.header("connection")) == (1, "close")
        begun.assert_closed()
        greeting.tls.do_handshake()
        greeting.tls.write(increase_request(item))
        greeting.flush()
        assert b'"value":2' in greeting.read_all()
    assert server.wait_exit() == 0


@pytest.mark.parametrize("many", [400, pytest.param(2000, marks=pytest.mark.full)])
def test_many_idle_connections_are_small(serve, sqlite_store, certificate, many):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = serve(sqlite_store, *certificate.arguments(), "--head-timeout", "1h", "--idle-timeout", "1h",
                   tls=certificate.trust(), env=LITTLE_QUARANTINE)
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(100):  # what the first connections cost is not for each
                stack.enter_context(server.connect())
            before = server.resident_kib()
            connections = [stack.enter_context(server.connect()) for _ in range(many)]
            for connection in connections:
                assert connection.ask("GET", "/healthz").status == 200
            each = (server.resident_kib() - before) / many
            print(f"{each:.1f} KiB for each idle connection")
            assert each < KIB_PER_CONNECTION
            assert server.ask("GET", "/healthz").status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_that_reads_nothing_is_not_kept_bytes_for_without_end(serve, sqlite_store, certificate):
    server = serve(sqlite_store, *certificate.arguments(), tls=certificate.trust(), env=LITTLE_QUARANTINE)
    with server.connect() as greedy:
        before = server.resident_kib()
        greedy.socket.settimeout(1.0)
        with pytest.raises(socket.timeout):  # the server reads no more, because nobody reads its answers
            while True:
                greedy.socket.sendall(render("GET", "/metrics") * 100)
        assert server.resident_kib() - before < 16 * 1024
        assert server.ask("GET", "/healthz").status == 200


# ---- quipu health


@pytest.fixture
def health(binary, tmp_path):
    def command(*arguments, env=None):
        return quipu.run(binary, "health", *arguments, cwd=tmp_path, env=env)

    return command


def test_health_asks_its_own_server_by_the_settings_of_the_container(server, certificate, health):
    """The certificate may be for a name that only others know: to be alive is another question."""
    env = {"QUIPU_LISTEN": f"0.0.0.0:{server.port}", "QUIPU_TLS_CERT": str(certificate.file),
           "QUIPU_TLS_KEY": str(certificate.key)}
    done = health(env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_health_shows_no_key_to_a_server_that_it_does_not_judge(certificate, health):
    seen = []

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # pylint: disable=invalid-name
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    stranger = http.server.HTTPServer(("127.0.0.1", 0), Stranger)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.file, certificate.key)
    stranger.socket = tls.wrap_socket(stranger.socket, server_side=True)
    address = f"127.0.0.1:{stranger.server_port}"
    env = {"QUIPU_API_KEY": "qk_ops_secret", "QUIPU_TLS_CERT": str(certificate.file)}
    for arguments in (["--listen", address], ["--server", f"https://{address}", "--ca-file", certificate.file]):
        thread = threading.Thread(target=stranger.handle_request)
        thread.start()
        health(*arguments, env=env)
        thread.join()
    stranger.server_close()
    assert seen == [None, "Bearer qk_ops_secret"]


def test_health_trusts_the_authorities_it_is_given(server, certificate, health, tmp_path):
    url = f"https://localhost:{server.port}"
    assert health("--server", url, "--ca-file", certificate.file).returncode == 0
    stranger = Certificate(tmp_path / "stranger")
    for arguments, words in (([], "is not trusted"), (["--ca-file", stranger.file], "is not trusted"),
                             (["--ca-file", tmp_path / "absent"], "has no certificates to trust")):
        done = health("--server", url, *arguments)
        assert done.returncode == 1 and words in done.stderr, done


def test_health_says_that_the_name_is_another(server, certificate, health):
    done = health("--server", f"https://127.0.0.2:{server.port}", "--ca-file", certificate.file)
    assert done.returncode == 1


def test_health_without_tls_is_told_of_it(server, health):
    done = health("--listen", f"127.0.0.1:{server.port}")
    assert done.returncode == 1 and "HTTP 400" in done.stderr


# ---- the operator's commands


def test_the_operators_commands_always_judge_the_certificate(binary, serve, sqlite_store, certificate, tmp_path):
    server = serve(sqlite_store, *certificate.arguments(), "--roles", "dialogs,counters", tls=certificate.trust())
    found = ["--listen", f"127.0.0.1:{server.port}", "--tls-cert", certificate.file]
    refused = quipu.run(binary, "dlq", "list", *found, cwd=tmp_path)
    assert refused.returncode == 1 and "is not trusted" in refused.stderr and "--ca-file" in refused.stderr
    done = quipu.run(binary, "dlq", "list", *found, "--ca-file", certificate.file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
