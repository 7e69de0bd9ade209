"""HTTP/1.1 as clients rely on it: connections, pipelining, splits, HEAD, Expect, request ids."""

import pytest

from harness.counts import COLLECTION, action, new_id, record
from harness.http import render
from harness.problems import assert_problem


def test_a_connection_serves_many_requests(http_server, http_counts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        for value in range(1, 51):
            assert connection.ask("POST", action(item, "increase")).json()["value"] == value
            assert connection.ask("GET", record(item)).json()["currentValue"] == value


def test_connection_close_is_honoured(http_server):
    with http_server.connect() as connection:
        answer = connection.ask("GET", "/healthz", headers={"Connection": "close"})
        assert (answer.status, answer.header("connection")) == (200, "close")
        connection.assert_closed()


def test_a_refusal_keeps_the_connection_where_the_request_was_read_whole(http_server, http_counts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        assert connection.ask("POST", action(item, "increase"), {"amount": 0}).status == 400
        assert connection.ask("GET", record(new_id())).status == 404
        assert connection.ask("GET", "/nowhere").status == 404
        assert connection.ask("POST", action(item, "increase")).json()["value"] == 1


def test_http_1_0_is_answered_and_closed(http_server, http_counts):
    item = http_counts.new_item(4)
    with http_server.connect() as connection:
        connection.send(render("GET", record(item), version="HTTP/1.0"))
        answer = connection.read_answer()
        assert (answer.status, answer.json()["currentValue"]) == (200, 4)
        connection.assert_closed()


def test_another_version_of_http_is_refused(http_server):
    with http_server.connect() as connection:
        connection.send(b"GET /healthz HTTP/3.7\r\nHost: 127.0.0.1\r\n\r\n")
        assert 400 <= connection.read_answer().status < 600
        connection.assert_closed()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
def test_head_answers_like_get_without_a_body(http_server, path):
    with http_server.connect() as connection:
        get = connection.ask("GET", path)
        head = connection.ask("HEAD", path)
        assert head.status == get.status == 200
        assert head.header("content-type") == get.header("content-type")
        assert head.header("content-length") in (None, get.header("content-length"))
        assert connection.ask("GET", path).body == get.body, "what follows HEAD is read as an answer of its own"


def test_head_of_a_count_answers_like_get(http_server, http_counts):
    item = http_counts.new_item(3)
    with http_server.connect() as connection:
        get = connection.ask("GET", record(item))
        head = connection.ask("HEAD", record(item))
        assert (head.status, head.header("content-type")) == (200, get.header("content-type"))
        assert connection.ask("HEAD", record(new_id())).status == 404
        assert connection.ask("HEAD", f"{COLLECTION}?itemIds={item}").status == 200
        assert connection.ask("GET", record(item)).body == get.body


def test_head_of_a_change_is_refused_and_changes_nothing(http_server, http_counts):
    item = http_counts.new_item(3)
    with http_server.connect() as connection:
        assert connection.ask("HEAD", action(item, "increase")).status == 405
    assert http_counts.value(item) == 3


def test_pipelined_reads_are_answered_in_order(http_server, http_counts):
    items = [http_counts.new_item(number) for number in range(100)]
    with http_server.connect() as connection:
        connection.send(b"".join(render("GET", record(item)) for item in items))
        assert [connection.read_answer().json()["itemId"] for _ in items] == items


def test_pipelined_changes_take_effect_in_order(http_server, http_counts):
    item = http_counts.new_item()
    changes = [("increase", 5), ("reset", None), ("increase", 2), ("decrease", 9), ("increase", 1)]
    requests = [render("POST", action(item, verb), {"amount": amount} if amount else None) for verb, amount in changes]
    with http_server.connect() as connection:
        connection.send(b"".join(requests))
        assert [connection.read_answer().json()["value"] for _ in range(5)] == [5, 0, 2, -7, -6]


def test_a_pipelined_read_sees_the_change_before_it_and_not_the_one_after(http_server, http_counts):
    item = http_counts.new_item()
    requests, expected = [], []
    for value in range(1, 31):
        requests += [render("POST", action(item, "increase")), render("GET", record(item)), render("GET", "/healthz")]
        expected += [value, value, "ok"]
    with http_server.connect() as connection:
        connection.send(b"".join(requests))
        told = [connection.read_answer().json() for _ in requests]
    assert [answer.get("value", answer.get("currentValue", answer.get("status"))) for answer in told] == expected


def test_pipelined_refusals_are_answered_in_their_place(http_server, http_counts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        connection.send(
            render("POST", action(item, "increase"))
            + render("GET", "/nowhere")
            + render("POST", action(item, "increase"), {"amount": "x"})
            + render("HEAD", record(item))
            + render("POST", action(item, "increase"))
        )
        methods = ["POST", "GET", "POST", "HEAD", "POST"]
        assert [connection.read_answer(method).status for method in methods] == [200, 404, 400, 200, 200]
    assert http_counts.value(item) == 2


def test_what_is_pipelined_behind_connection_close_is_not_run(http_server, http_counts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        connection.send(
            render("POST", action(item, "increase"), headers={"Connection": "close"})
            + render("POST", action(item, "increase"))
        )
        assert connection.read_answer().json()["value"] == 1
        connection.assert_closed()
    assert http_counts.value(item) == 1


def test_a_request_split_at_any_byte_gives_the_same_answer(http_server, http_counts):
    item = http_counts.new_item()
    request = render("POST", action(item, "increase"), {"amount": 7}, {"X-Request-Id": "split"})
    with http_server.connect() as connection:
        for cut in range(1, len(request)):
            connection.send(request[:cut])
            connection.wait_read_by_server()
            connection.send(request[cut:])
            answer = connection.read_answer()
            assert (answer.status, answer.json()) == (200, {"itemId": item, "value": 7 * cut}), f"cut at {cut}"
            assert answer.header("x-request-id") == "split"


def test_a_chunked_request_split_at_any_byte_gives_the_same_answer(http_server, http_counts):
    item = http_counts.new_item()
    head = render("POST", action(item, "increase"), headers={"Transfer-Encoding": "chunked"})
    request = head + b'4\r\n{"am\r\n9;x=y\r\nount": 7}\r\n0\r\n\r\n'
    with http_server.connect() as connection:
        for cut in range(1, len(request)):
            connection.send(request[:cut])
            connection.wait_read_by_server()
            connection.send(request[cut:])
            assert connection.read_answer().json() == {"itemId": item, "value": 7 * cut}, f"cut at {cut}"


def test_a_request_that_comes_byte_by_byte_is_answered(http_server, http_counts):
    item = http_counts.new_item()
    with http_server.connect() as connection:
        for byte in render("POST", action(item, "increase"), {"amount": 7}):
            connection.send(bytes([byte]))
            connection.wait_read_by_server()
        assert connection.read_answer().json()["value"] == 7


def test_expect_100_continue_is_answered_before_the_body_is_sent(http_server, http_counts):
    item, body = http_counts.new_item(), b'{"amount":5}'
    head = render(
        "POST", action(item, "increase"), headers={"Content-Length": str(len(body)), "Expect": "100-continue"}
    )
    with http_server.connect() as connection:
        for value in (5, 10):
            connection.send(head)
            assert connection.read_answer().status == 100
            connection.send(body)
            assert connection.read_answer().json()["value"] == value


def test_expect_100_continue_of_a_body_that_is_too_large_is_refused_without_it(http_server):
    head = render("POST", COLLECTION, headers={"Content-Length": str(1 << 30), "Expect": "100-continue"})
    with http_server.connect() as connection:
        connection.send(head)
        assert_problem(connection.read_answer(), 413, "BODY_TOO_LARGE")


def test_another_expectation_is_refused(http_server, http_counts):
    item = http_counts.new_item()
    answer = http_server.ask("POST", action(item, "increase"), {"amount": 5}, {"Expect": "a miracle"})
    assert_problem(answer, 417, "EXPECTATION_FAILED")
    assert http_counts.value(item) == 0


def test_a_request_id_is_echoed(http_server):
    for path in ("/healthz", "/nowhere", record(new_id())):
        assert http_server.ask("GET", path, headers={"X-Request-Id": "abc-123"}).header("x-request-id") == "abc-123"


def test_a_request_id_is_made_where_there_is_none(http_server):
    made = [http_server.ask("GET", "/healthz").header("x-request-id") for _ in range(10)]
    assert all(made)
    assert len(set(made)) == 10


def test_a_content_type_with_parameters_or_none_at_all_is_json(http_server, http_counts):
    item = http_counts.new_item()
    for value, content_type in enumerate(["application/json; charset=utf-8", "Application/JSON", None], start=1):
        fields = f"Content-Type: {content_type}\r\n" if content_type else ""
        head = f"POST {action(item, 'increase')} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 12\r\n\r\n"
        with http_server.connect() as connection:
            connection.send(head.encode() + b'{"amount":1}')
            assert connection.read_answer().json()["value"] == value


def test_a_chunked_body_with_trailers_is_read(http_server, http_counts):
    item = http_counts.new_item()
    head = render("POST", action(item, "increase"), headers={"Transfer-Encoding": "chunked", "Trailer": "X-Sum"})
    with http_server.connect() as connection:
        connection.send(head + b'c\r\n{"amount":3}\r\n0\r\nX-Sum: 1\r\n\r\n')
        assert connection.read_answer().json()["value"] == 3
        assert connection.ask("GET", record(item)).status == 200
