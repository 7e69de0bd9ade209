"""Faults of the network on a path of its own: each sees its effect, and is gone afterwards."""

import contextlib
import http.server
import shutil
import socketserver
import threading
import types

import pytest

import proxy
from fault import FaultFailed, is_reset, order_of_answers, round_trip_s
from faults import KINDS


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 (a name of the library)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture(name="server", scope="module")
def server_fixture():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture(server):
    """One process, whose clients come by a path."""
    if not shutil.which("toxiproxy-server") and not proxy.KEPT.exists():
        pytest.skip("toxiproxy is not installed; make prove builds it")
    with contextlib.closing(proxy.Toxiproxy().start()) as toxiproxy:
        toxiproxy.path("clients-1", server)
        yield types.SimpleNamespace(proxy=toxiproxy, nodes=[types.SimpleNamespace(port=server)])


@pytest.mark.parametrize("dice", [0.1, 0.9])
@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.name.startswith("path-")], ids=lambda kind: kind.name)
def test_a_path_is_disturbed_and_works_again(cluster, kind, dice):
    fault = kind(cluster, "path-clients-1", dice)
    fault.inject()
    fault.heal()
    port = cluster.proxy.paths["clients-1"].port
    assert round_trip_s("clients", port) < 1
    assert not is_reset("clients", port)


@pytest.mark.parametrize("name", ["path-reset", "path-slow", "path-half-open"])
def test_a_fault_of_a_path_that_has_no_effect_is_noticed(cluster, monkeypatch, name):
    monkeypatch.setattr(proxy.Path, "_add", lambda *_: None)
    monkeypatch.setattr("faults.until", lambda condition, seconds: condition())
    if name == "path-slow":  # on a busy machine, a greeting can take as long as the fault would make it
        monkeypatch.setattr(KINDS[name], "round_trip_s", lambda *_: 0.001)
    with pytest.raises(FaultFailed):
        KINDS[name](cluster, "path-clients-1", 0.5).inject()


def test_every_request_has_its_place_in_the_order_of_answers(server):
    assert sorted(order_of_answers("clients", server, 8)) == list(range(8))


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_server_says_unasked_is_no_answer(answers):
    """NATS speaks first: that also arrives on a path on which nothing reaches the server."""

    class Speaking(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"INFO {}\r\n")
            while self.rfile.readline():
                if answers:
                    self.wfile.write(b"PONG\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Speaking) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert (round_trip_s("nats", server.server_address[1], 0.3) is not None) == answers
        server.shutdown()
