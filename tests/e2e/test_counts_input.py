"""Bad input to the count service: a clear 400 that names the field, and nothing changed, on both stores."""

import json

import pytest

from harness.counts import COLLECTION, INT64_MAX, INT64_MIN, action, new_id
from harness.problems import assert_bad_request

NOT_INTEGERS = {
    "fraction": "1.5",
    "whole fraction": "2.0",
    "exponent": "1e3",
    "string": '"1"',
    "true": "true",
    "false": "false",
    "array": "[1]",
    "object": "{}",
    "past int64": str(INT64_MAX + 1),
    "below int64": str(INT64_MIN - 1),
    "huge": "9" * 400,
    "huge exponent": "1e999",
}
NOT_AMOUNTS = {**NOT_INTEGERS, "zero": "0", "minus zero": "-0", "negative": "-1", "int64 minimum": str(INT64_MIN)}
NOT_OBJECTS = {
    "array": b"[]",
    "string": b'"a"',
    "number": b"1",
    "null": b"null",
    "word": b"amount",
    "cut off": b'{"amount":1',
    "trailing bytes": b'{"amount":1}x',
    "two documents": b'{"amount":1}{"amount":1}',
    "trailing comma": b'{"amount":1,}',
    "single quotes": b"{'amount':1}",
    "comment": b'{"amount":1}//',
    "leading zero": b'{"amount":01}',
    "plus sign": b'{"amount":+1}',
    "NaN": b'{"amount":NaN}',
    "duplicate field": b'{"amount":1,"amount":2}',
    "byte order mark": b'\xef\xbb\xbf{"amount":1}',
    "bad UTF-8": b'{"other":"\xff"}',
    "overlong UTF-8": b'{"other":"\xc0\xaf"}',
    "encoded NUL": b'{"other":"\\u0000"}',
    "raw NUL": b'{"amount":1}\0',
    "lone surrogate": b'{"other":"\\ud800"}',
    "raw control character": b'{"other":"\n"}',
    "33 deep": b'{"other":' + b"[" * 33 + b"]" * 33 + b"}",
    "20,000 deep": b"[" * 20000,
}


def cases(table):
    return pytest.mark.parametrize("text", table.values(), ids=[name.replace(" ", "-") for name in table])


@pytest.mark.parametrize("verb", ["increase", "decrease"])
@cases(NOT_AMOUNTS)
def test_an_amount_that_is_no_positive_int64_is_refused(counts, verb, text):
    item = counts.new_item(10)
    answer = counts.ask("POST", action(item, verb), f'{{"amount":{text}}}'.encode())
    problem = assert_bad_request(answer, field="amount")
    assert problem["errors"][0]["message"] == f"must be an integer from 1 to {INT64_MAX}"
    assert counts.value(item) == 10


@cases(NOT_INTEGERS)
def test_an_initial_value_that_is_no_int64_is_refused(counts, text):
    item = new_id()
    body = f'{{"itemId":"{item}","initialValue":{text}}}'.encode()
    problem = assert_bad_request(counts.ask("POST", COLLECTION, body), field="initialValue")
    assert problem["errors"][0]["message"] == f"must be an integer from {INT64_MIN} to {INT64_MAX}"
    assert counts.get(item).status == 404


@cases(NOT_OBJECTS)
def test_a_body_that_is_no_json_object_is_refused(counts, text):
    item = counts.new_item(10)
    assert_bad_request(counts.ask("POST", action(item, "increase"), text))
    assert counts.value(item) == 10
    assert_bad_request(counts.ask("POST", COLLECTION, text))


def test_json_32_deep_is_accepted(counts):
    """Parsed, that is: an amount is no list, and the refusal says so."""
    body = b'{"amount":' + b"[" * 31 + b"]" * 31 + b"}"
    assert_bad_request(counts.ask("POST", action(counts.new_item(), "increase"), body), field="amount")


@pytest.mark.parametrize(
    "body", [None, b"", b"{}", b'{"initialValue":1}', b'{"itemId":null}', b'{"itemId":1}', b'{"itemId":["a"]}']
)
def test_create_without_an_id_is_refused(counts, body):
    assert_bad_request(counts.ask("POST", COLLECTION, body), field="itemId" if body else None)


@pytest.mark.parametrize("item", ["", "x" * 129, "é" * 65, "a\nb", "\x1f", "a\x7fb", "\t"])
def test_create_with_a_bad_id_is_refused(counts, item):
    assert_bad_request(counts.create(item), field="itemId")


@pytest.mark.parametrize(
    "item",
    [
        "x" * 128,
        "é" * 64,
        "🧮" * 32,
        "größe 日本 🧮",
        "a b",
        "100%",
        "a?b#c&d=e+f",
        '"quoted\\"',
        "...",
        "a.b",
        "-",
        "'; DROP TABLE count_values; --",
        "{a,b}",
    ],
)
def test_any_id_of_1_to_128_bytes_of_utf8_works_on_every_route(counts, item):
    answer = counts.create(item, 1)
    assert (answer.status, answer.json()["itemId"]) == (201, item)
    assert counts.increase(item).json() == {"itemId": item, "value": 2}
    assert counts.get(item).json()["itemId"] == item
    assert counts.list(item).json()[0]["itemId"] == item
    assert counts.reset(item).json() == {"itemId": item, "value": 0}
    assert counts.delete(item).status == 204
    assert counts.get(item).status == 404


def test_the_same_id_however_it_is_encoded_is_one_count(counts):
    item = new_id("abc")
    counts.create(item, 5)
    everything_encoded = "".join(f"%{byte:02x}" for byte in item.encode())
    for spelling in (item, everything_encoded, everything_encoded.upper().replace("%", "%")):
        assert counts.ask("GET", f"{COLLECTION}/{spelling}").json()["currentValue"] == 5


def test_an_id_is_decoded_once(counts):
    stem = new_id("once")
    counts.create(stem + "%41", 1)
    counts.create(stem + "A", 2)
    assert counts.ask("GET", f"{COLLECTION}/{stem}%2541").json()["currentValue"] == 1
    assert counts.ask("GET", f"{COLLECTION}/{stem}%41").json()["currentValue"] == 2


def test_ids_that_differ_in_case_or_normal_form_are_different_counts(counts):
    stem = new_id()
    spellings = [stem + "é", stem + "e\u0301", stem + "É", stem + "e"]
    for value, item in enumerate(spellings):
        assert counts.create(item, value).status == 201
    assert [counts.value(item) for item in spellings] == [0, 1, 2, 3]


BAD_SEGMENTS = {
    "129 bytes": "x" * 129,
    "129 bytes encoded": "%C3%A9" * 64 + "x",
    "NUL": "%00",
    "NUL inside": "a%00b",
    "newline": "a%0Ab",
    "carriage return": "%0D",
    "escape": "%1b",
    "delete": "%7F",
    "encoded slash": "a%2Fb",
    "encoded slash lower case": "a%2fb",
    "dot": ".",
    "dot dot": "..",
    "encoded dot": "%2e",
    "encoded dot dot": "%2E%2e",
    "half encoded dot dot": ".%2e",
    "bad UTF-8": "%FF",
    "cut off UTF-8": "%C3",
    "overlong UTF-8": "%C0%AF",
    "surrogate": "%ED%A0%80",
    "past Unicode": "%F4%90%80%80",
    "half an escape": "a%4",
    "lone percent": "a%",
    "not hexadecimal": "%zz",
}


@cases(BAD_SEGMENTS)
def test_a_bad_id_in_a_path_is_refused_on_every_route(counts, text):
    for method, path in [
        ("GET", f"{COLLECTION}/{text}"),
        ("DELETE", f"{COLLECTION}/{text}"),
        ("POST", f"/api/v1/counts/{text}/increase"),
        ("POST", f"/api/v1/counts/{text}/decrease"),
        ("POST", f"/api/v1/counts/{text}/reset"),
    ]:
        assert_bad_request(counts.ask(method, path))


def test_an_empty_segment_is_no_id(counts):
    for method, path in [("GET", f"{COLLECTION}/"), ("POST", "/api/v1/counts//increase")]:
        answer = counts.ask(method, path)
        assert answer.status in (400, 404), answer
        assert json.loads(answer.body)["code"] in ("BAD_REQUEST", "ROUTE_NOT_FOUND")
