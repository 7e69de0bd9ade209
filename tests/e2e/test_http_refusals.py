"""Requests that HTTP itself refuses: a clear problem, nothing changed, never a 5xx, nothing smuggled."""

import contextlib
import random
import socket

import pytest

from harness.counts import COLLECTION, action, record
from harness.http import ConnectionLost, render
from harness.problems import assert_bad_request, assert_problem


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/v1/counts/a", "/api/v1/counts/a/explode", "/api/v1/counts/a/increase/x", "/API/V1/counts"],
)
def test_an_unknown_path_is_404(http_server, path):
    for method in ("GET", "POST"):
        assert_problem(http_server.ask(method, path), 404, "ROUTE_NOT_FOUND")


@pytest.mark.parametrize(
    "path, wrong, allowed",
    [
        ("/healthz", ["POST", "DELETE"], {"GET"}),
        (COLLECTION, ["PUT", "DELETE", "PATCH"], {"GET", "POST"}),
        (record("a"), ["POST", "PATCH"], {"GET", "PUT", "DELETE"}),
        (action("a", "increase"), ["GET", "PUT", "DELETE"], {"POST"}),
        (action("a", "reset"), ["GET", "DELETE"], {"POST"}),
    ],
)
def test_another_method_is_405_and_says_which_are_allowed(http_server, path, wrong, allowed):
    for method in wrong:
        answer = http_server.ask(method, path)
        assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
        listed = {name.strip() for name in answer.header("allow").split(",")}
        assert listed - {"HEAD", "OPTIONS"} == allowed


@pytest.mark.parametrize("method", ["TRACE", "QUERY", "BREW", "get", "GETS"])
def test_a_method_that_no_route_knows_is_405_too_and_the_connection_goes_on(http_server, method):
    with http_server.connect() as connection:
        connection.send(render(method, "/healthz", b"{}"))
        answer = connection.read_answer()
        assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
        assert "GET" in answer.header("allow")
        connection.send(render("GET", "/healthz"))
        assert connection.read_answer().status == 200


@pytest.mark.parametrize("method", ["CONNECT", "PRI"])
def test_a_method_that_nobody_serves_is_refused(http_server, method):
    with http_server.connect() as connection:
        connection.send(render(method, "/healthz"))
        assert connection.read_answer().status in (400, 405, 501)


def test_a_body_of_64_kib_is_accepted_and_one_byte_more_is_not(http_server, http_counts):
    item = http_counts.new_item()
    start, end = b'{"amount":5', b"}"
    fits = start + b" " * (65536 - len(start) - len(end)) + end
    assert http_server.ask("POST", action(item, "increase"), fits).json()["value"] == 5
    with http_server.connect() as connection:
        connection.try_send(render("POST", action(item, "increase"), fits + b" "))
        assert_problem(connection.read_answer(), 413, "BODY_TOO_LARGE")
    assert http_counts.value(item) == 5


def test_a_chunked_body_past_64_kib_is_refused(http_server, http_counts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        connection.send(render("POST", action(item, "increase"), headers={"Transfer-Encoding": "chunked"}))
        for _ in range(9):
            connection.try_send(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
        assert_problem(connection.read_answer(), 413, "BODY_TOO_LARGE")
    assert http_counts.value(item) == 0


def test_a_request_line_past_64_kib_is_refused(http_server):
    with http_server.connect() as connection:
        connection.try_send(render("GET", "/" + "x" * 70000))
        assert_problem(connection.read_answer(), 414, "URI_TOO_LONG")


def test_a_request_line_below_64_kib_is_read(http_server):
    answer = http_server.ask("GET", f"{COLLECTION}?" + "&".join(f"itemIds=a{'x' * 51}" for _ in range(1000)))
    assert answer.status == 200


def test_headers_past_16_kib_are_refused(http_server):
    with http_server.connect() as connection:
        connection.try_send(render("GET", "/healthz", headers={"X-Long": "x" * 17000}))
        assert_problem(connection.read_answer(), 431, "HEADERS_TOO_LARGE")


def test_more_than_64_headers_are_refused(http_server):
    assert http_server.ask("GET", "/healthz", headers={f"X-{number}": "x" for number in range(60)}).status == 200
    with http_server.connect() as connection:
        connection.try_send(render("GET", "/healthz", headers={f"X-{number}": "x" for number in range(65)}))
        assert_problem(connection.read_answer(), 431, "HEADERS_TOO_LARGE")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json", "application/xml"]
)
def test_a_body_of_another_type_is_415(http_server, http_counts, content_type):
    item = http_counts.new_item()
    answer = http_server.ask("POST", action(item, "increase"), b'{"amount":1}', {"Content-Type": content_type})
    assert_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert http_counts.value(item) == 0


def test_a_content_type_without_a_body_does_not_matter(http_server, http_counts):
    item = http_counts.new_item()
    answer = http_server.ask("POST", action(item, "increase"), headers={"Content-Type": "text/plain"})
    assert answer.status == 200


# What follows the request line and Host of an increase. Each says two things at once about where the request ends, or
# is not HTTP. A whole request comes behind it; neither may have an effect: who cannot tell where a request ends must
# not look for another after it.
BROKEN = {
    "two lengths": "Content-Length: 2\r\nContent-Length: 12\r\n\r\n{}",
    "two equal lengths": "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "list of lengths": "Content-Length: 2, 2\r\n\r\n{}",
    "length and chunked": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "length with a sign": "Content-Length: +2\r\n\r\n{}",
    "negative length": "Content-Length: -2\r\n\r\n{}",
    "hexadecimal length": "Content-Length: 0x2\r\n\r\n{}",
    "huge length": "Content-Length: 18446744073709551618\r\n\r\n{}",
    "empty length": "Content-Length: \r\n\r\n",
    "unknown coding": "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding after chunked": "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "coding before chunked": "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "huge chunk size": "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
    "chunk without its end": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
    "space before the colon": "Content-Length : 2\r\n\r\n{}",
    "header without a colon": "nonsense\r\n\r\n",
    "header without a name": ": value\r\n\r\n",
    "NUL in a header": "X-A: a\0b\r\n\r\n",
    "bare carriage return": "X-A: a\rContent-Length: 2\r\n\r\n{}",
}


def assert_refused_for_good(server, request):
    """400, then the connection is closed: whatever came behind the request was not even looked at."""
    with server.connect() as connection:
        connection.try_send(request)
        assert_bad_request(connection.read_answer())
        connection.assert_closed()


@pytest.mark.parametrize("rest", BROKEN.values(), ids=[name.replace(" ", "-") for name in BROKEN])
def test_a_broken_request_is_refused_the_connection_closed_and_nothing_smuggled(http_server, http_counts, rest):
    item = http_counts.new_item()
    start = f"POST {action(item, 'increase')} HTTP/1.1\r\nHost: localhost\r\n"
    assert_refused_for_good(http_server, (start + rest + start + "\r\n").encode())
    assert http_counts.value(item) == 0


@pytest.mark.parametrize(
    "line",
    ["POST {path}", "POST {path} x HTTP/1.1", "{path} HTTP/1.1", "\x16\x03\x01\x02 {path}"],
)
def test_a_broken_request_line_is_refused(http_server, http_counts, line):
    item = http_counts.new_item()
    request = line.format(path=action(item, "increase")) + "\r\nHost: localhost\r\n\r\n"
    assert_refused_for_good(http_server, request.encode())
    assert http_counts.value(item) == 0


def test_a_folded_header_is_refused_or_part_of_the_line_before_but_no_header_of_its_own(http_server, http_counts):
    item = http_counts.new_item()
    start = f"POST {action(item, 'increase')} HTTP/1.1\r\nHost: localhost\r\n"
    with http_server.connect() as connection:
        connection.send((start + "X-A: b\r\n Content-Length: 30\r\n\r\n" + start + "\r\n").encode())
        first = connection.read_answer()
        if first.status == 200:
            assert connection.read_answer().json()["value"] == 2, "the second request was taken for a body"
        else:
            assert_bad_request(first)
            connection.assert_closed()


@pytest.mark.parametrize(
    "hosts",
    ["", "Host: localhost\r\nHost: localhost\r\n", "Host: localhost\r\nhost: other\r\n"],
    ids=["none", "twice", "two"],
)
def test_a_request_without_exactly_one_host_is_refused(http_server, http_counts, hosts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        connection.send(f"POST {action(item, 'increase')} HTTP/1.1\r\n{hosts}Content-Length: 0\r\n\r\n".encode())
        assert_bad_request(connection.read_answer())
    assert http_counts.value(item) == 0


def test_a_broken_request_behind_a_good_one_does_not_take_its_answer(http_server, http_counts):
    item = http_counts.new_item()
    good = render("POST", action(item, "increase"))
    broken = render("POST", action(item, "increase"), headers=[("Content-Length", "2"), ("Content-Length", "3")])
    with http_server.connect() as connection:
        connection.send(good + broken + b"{}")
        assert connection.read_answer().json()["value"] == 1
        assert_bad_request(connection.read_answer())
        connection.assert_closed()
    assert http_counts.value(item) == 1


def test_random_bytes_are_never_a_5xx(http_server):
    choose = random.Random(5)
    template = bytearray(render("POST", action("a", "increase"), {"amount": 1}, {"Idempotency-Key": "k"}))
    for _ in range(200):
        mutated = bytearray(template)
        for _ in range(choose.randint(1, 4)):
            mutated[choose.randrange(len(mutated))] = choose.randrange(256)
        with http_server.connect() as connection:
            connection.try_send(bytes(mutated))
            with contextlib.suppress(OSError):  # the server may have closed already
                connection.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionLost):  # the mutation may have made the request longer than it is
                assert connection.read_answer().status < 500, bytes(mutated)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost:{port}", "127.0.0.1", "127.0.0.1:{port}", "[::1]:{port}"]
)
def test_a_loopback_name_as_host_is_served(http_server, host):
    with http_server.connect() as connection:
        connection.send(render("GET", "/healthz", host=host.format(port=http_server.port)))
        assert connection.read_answer().status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1"],
)
def test_a_foreign_host_is_refused(http_server, http_counts, host):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        connection.send(render("POST", action(item, "increase"), host=host.format(port=http_server.port)))
        assert_problem(connection.read_answer(), 403, "FORBIDDEN_HOST")
    with http_server.connect() as connection:
        connection.send(render("GET", record(item), host=host.format(port=http_server.port)))
        assert_problem(connection.read_answer(), 403, "FORBIDDEN_HOST")
    assert http_counts.value(item) == 0


def test_an_allowed_host_is_served(serve, sqlite_store):
    server = serve(sqlite_store, "--allowed-hosts", "quipu.example,other.example")
    expected = {"quipu.example": 200, "other.example:8080": 200, "localhost": 200, "evil.example": 403}
    for host, status in expected.items():
        with server.connect() as connection:
            connection.send(render("GET", "/healthz", host=host))
            assert connection.read_answer().status == status, host


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "https://localhost.evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=lambda headers: "-".join(*headers.items()),
)
def test_a_change_from_a_foreign_page_is_refused(http_server, http_counts, headers):
    item = http_counts.new_item(1)
    for method, path in [("POST", action(item, "increase")), ("DELETE", record(item))]:
        assert_problem(http_server.ask(method, path, headers=headers), 403, "FORBIDDEN_ORIGIN")
    assert http_counts.value(item) == 1


def test_a_change_from_an_own_page_is_served(http_server, http_counts):
    item = http_counts.new_item()
    for value, headers in enumerate(
        [
            {"Origin": f"http://127.0.0.1:{http_server.port}"},
            {"Origin": f"http://localhost:{http_server.port}"},
            {"Sec-Fetch-Site": "same-origin"},
            {"Sec-Fetch-Site": "none"},
        ],
        start=1,
    ):
        assert http_server.ask("POST", action(item, "increase"), headers=headers).json()["value"] == value
