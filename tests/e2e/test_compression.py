"""gzip for those who ask for it: long answers, the same content, and never a stream."""

import gzip

import pytest
import requests

from harness.http import EventStream, render
from harness.unread import SqliteUnread
from harness.waiting import wait_until

GZIP = {"Accept-Encoding": "gzip"}
LONG = ["/openapi.json", "/metrics"]


@pytest.mark.parametrize("path", LONG)
def test_a_long_answer_is_compressed_for_those_who_ask(shared_server, path):
    answer = shared_server.ask("GET", path, headers=GZIP)
    assert (answer.status, answer.header("content-encoding")) == (200, "gzip")
    plain = shared_server.ask("GET", path)
    assert plain.header("content-encoding") is None
    assert len(gzip.decompress(answer.body)) > 3 * len(answer.body)
    for one in (answer, plain):
        assert one.header("vary") == "Accept-Encoding"
        assert one.header("content-type") == plain.header("content-type")
    if path == "/openapi.json":
        assert gzip.decompress(answer.body) == plain.body


def test_clients_that_decompress_by_themselves_notice_nothing(shared_server):
    url = f"http://127.0.0.1:{shared_server.port}/openapi.json"
    answer = requests.get(url, timeout=60)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.json() == requests.get(url, headers={"Accept-Encoding": "identity"}, timeout=60).json()


def test_short_answers_are_sent_as_they_are(shared_server):
    answer = shared_server.ask("GET", "/healthz", headers=GZIP)
    assert (answer.header("content-encoding"), answer.header("vary")) == (None, None)
    assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize("accepted, encoding", [
    ("gzip;q=0", None), ("identity", None), ("identity, gzip;q=0.5", None), ("br", None), ("", None),
    ("br, gzip;q=0.1", "gzip"), ("*", "gzip"),
])
def test_what_the_client_prefers_is_respected(shared_server, accepted, encoding):
    answer = shared_server.ask("GET", "/openapi.json", headers={"Accept-Encoding": accepted})
    assert answer.header("content-encoding") == encoding


@pytest.mark.parametrize("headers", [GZIP, {}])
def test_head_has_the_headers_of_get(shared_server, headers):
    get = shared_server.ask("GET", "/openapi.json", headers=headers)
    head = shared_server.ask("HEAD", "/openapi.json", headers=headers)
    assert head.body == b""
    for name in ("content-length", "content-encoding", "content-type", "vary"):
        assert head.header(name) == get.header(name)


def test_a_stream_is_never_compressed(serve, tmp_path):
    server = serve(SqliteUnread(tmp_path))
    with EventStream(server.port, "/counters/user/bob/stream", GZIP) as stream:
        assert stream.answer.getheader("Content-Encoding") is None
        assert stream.next()[1]["count"] == 0


def test_caches_are_told_of_origin_and_encoding_together(serve, sqlite_store):
    server = serve(sqlite_store, "--cors-origins", "https://app.example.org")
    answer = server.ask("GET", "/openapi.json", headers={**GZIP, "Origin": "https://app.example.org"})
    assert (answer.header("vary"), answer.header("content-encoding")) == ("Accept-Encoding, Origin", "gzip")
    assert server.ask("GET", "/healthz").header("vary") == "Origin"


def test_those_who_ask_for_more_than_is_compressed_at_once_get_it_as_it_is(serve, sqlite_store):
    """A loop compresses 4 MiB between two sweeps. Sweeps are held up here, by the requests and by nothing else."""
    server = serve(sqlite_store, "--loops", "1")
    plain = server.ask("GET", "/openapi.json").body
    with server.connect() as connection, server.frozen():
        connection.send(render("GET", "/openapi.json", headers=GZIP) * 60)
        server.thaw()
        answers = [connection.read_answer() for _ in range(60)]
    assert {gzip.decompress(one.body) if one.header("content-encoding") else one.body for one in answers} == {plain}
    assert answers[0].header("content-encoding") == "gzip"
    wait_until(lambda: server.ask("GET", "/openapi.json", headers=GZIP).header("content-encoding"), "it compresses again")
