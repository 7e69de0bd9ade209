"""Twirp on the wire: JSON as google.protobuf.json_format has it, and every refusal below /twirp/ as an error of Twirp."""

import json

import pytest
from google.protobuf import json_format

from harness.http import Connection, render
from harness.pots import (
    MEDIA_TYPES, assert_error, coins, decode, descriptor_of, encode, new_key, new_name, path_of, request,
)

JSON = {"Content-Type": "application/json"}


def post(server, method, body, headers=None):
    return server.ask("POST", path_of(method), body if isinstance(body, bytes) else body.encode(), headers or JSON)


# ---- messages


def test_json_is_what_json_format_writes(pots):
    """Ours parsed by json_format, and written by it again, is the same JSON, for every method."""
    pot_id, name = pots.new_pot(bronze=1, gold=3), new_name()
    for method, fields in [
        ("CreatePot", {"pot_name": name, "max_coins": 10}),
        ("ViewPot", {"pot_id": pot_id}),
        ("ViewPotByName", {"pot_name": name}),
        ("ListPots", {"page": 1}),
        ("ListPots", {"page": 2**31 - 1}),
        ("AddCoins", {"pot_id": pot_id, "coins": coins(silver=2)}),
        ("RemoveCoins", {"pot_id": pot_id, "count": 1}),
        ("ListCoins", {"pot_id": pot_id}),
    ]:
        answer = pots.call(method, fields, encoding="json")
        message = json_format.Parse(answer.body, descriptor_of(method).output_type._concrete_class())
        expected = json_format.MessageToJson(
            message, including_default_value_fields=True, preserving_proto_field_name=True)
        assert json.loads(answer.body) == json.loads(expected)


def test_both_encodings_say_the_same(pots):
    pot_id = pots.new_pot(bronze=1, gold=3)
    for method, fields in [("ViewPot", {"pot_id": pot_id}), ("ListCoins", {"pot_id": pot_id}), ("ListPots", {"page": 1})]:
        answers = {encoding: pots.call(method, fields, encoding=encoding) for encoding in MEDIA_TYPES}
        assert decode(method, answers["json"]) == decode(method, answers["protobuf"])
        message = descriptor_of(method).output_type._concrete_class()
        message.ParseFromString(answers["protobuf"].body)
        assert message.SerializeToString(deterministic=True) == answers["protobuf"].body, "canonical, no unknown fields"


def test_names_in_camel_case_numbers_for_kinds_nulls_and_unknown_fields_are_accepted(pots, pots_server):
    pot_id = pots.new_pot()
    for body in (
        {"potId": pot_id, "coins": [{"kind": "GOLD", "count": 1}]},
        {"pot_id": pot_id, "coins": [{"kind": 100, "count": 1}]},
        {"pot_id": pot_id, "coins": [{"kind": "GOLD", "count": 1, "colour": "red"}], "more": [{}]},
    ):
        assert post(pots_server, "AddCoins", json.dumps(body)).status == 200
    assert post(pots_server, "RemoveCoins", json.dumps({"pot_id": pot_id, "count": 1, "coins": None})).status == 200
    assert pots.content(pot_id) == {"GOLD": 2}


def test_unknown_fields_of_protobuf_are_ignored(pots, pots_server):
    pot_id = pots.new_pot(gold=2)
    body = encode("ListCoins", {"pot_id": pot_id}, "protobuf") + b"\x98\x06\x01\xa2\x06\x02\xff\xfe"
    answer = post(pots_server, "ListCoins", body, {"Content-Type": "application/protobuf"})
    assert decode("ListCoins", answer) == {"coins": coins(gold=2)}


def test_a_large_message_is_read(pots, pots_server):
    pot_id = pots.new_pot(max_coins=10**6)
    body = json.dumps({"pot_id": pot_id, "coins": coins(gold=1) * 30_000})
    assert 900_000 < len(body) < 1024 * 1024
    assert post(pots_server, "AddCoins", body).json() == {"coins": coins(gold=30_000)}
    many = encode("AddCoins", {"pot_id": pot_id, "coins": coins(silver=1) * 100_000}, "protobuf")
    answer = post(pots_server, "AddCoins", many, {"Content-Type": "application/protobuf"})
    assert decode("AddCoins", answer) == {"coins": coins(silver=100_000)}


# ---- refusals


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b'"x"', b"{} {}", b'{"pot_id":1,"pot_id":1}', b'{"pot_id":1,"potId":1}',
    b'{"pot_id":"1"}', b'{"pot_id":1.0}', b'{"pot_id":1e0}', b'{"pot_id":true}', b'{"pot_id":2147483648}',
    b'{"pot_id":-2147483649}', b'{"pot_id":[1]}', b'{"coins":{}}', b'{"coins":[1]}', b'{"coins":[null]}',
    b'{"coins":[{"count":"1"}]}', b'{"coins":[{"kind":1.5}]}', b'{"coins":[{"kind":[]}]}', b'{"pot_id":1}\xff',
    b"[" * 40 + b"]" * 40, b'{"x":' + b"[" * 40 + b"]" * 40 + b"}",
])
def test_json_that_is_malformed(pots_server, body):
    assert_error(post(pots_server, "RemoveCoins", body), "malformed", "BAD_REQUEST")


@pytest.mark.parametrize("body", [
    b"\x08", b"\x0a\x01\x01", b"\x1a\x05\x08", b"\x0b\x0c", b"\x08\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"{}",
])
def test_protobuf_that_is_malformed(pots_server, body):
    answer = post(pots_server, "RemoveCoins", body, {"Content-Type": "application/protobuf"})
    assert_error(answer, "malformed", "BAD_REQUEST")


@pytest.mark.parametrize("name", [b"PP\xff", b"PP\x00P", b"\xc0\x80PP"])
def test_a_protobuf_string_that_is_no_text_is_malformed(pots_server, name):
    body = b"\x0a" + bytes([len(name)]) + name + b"\x10\x0a"
    assert_error(post(pots_server, "CreatePot", body, {"Content-Type": "application/protobuf"}), "malformed")


def test_a_kind_that_is_not_listed_by_name_is_an_invalid_argument(pots, pots_server):
    pot_id = pots.new_pot()
    body = json.dumps({"pot_id": pot_id, "coins": [{"kind": "PLATINUM", "count": 1}]})
    assert_error(post(pots_server, "AddCoins", body), "invalid_argument", argument="coins[0].kind")


@pytest.mark.parametrize("path", [
    "/twirp/pyggpot.pot.Pot/Nothing", "/twirp/pyggpot.pot.Nothing/CreatePot", "/twirp/Pot/CreatePot", "/twirp/",
    "/twirp/pyggpot.pot.Pot/CreatePot/", "/twirp/pyggpot.pot.Pot/CreatePot/x", "/twirp/pyggpot.pot.Pot/createPot",
])
def test_a_path_that_is_no_method_is_a_bad_route(pots_server, path):
    assert_error(pots_server.ask("POST", path, b"{}", JSON), "bad_route", "ROUTE_NOT_FOUND")


@pytest.mark.parametrize("http_method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_post_is_a_route(pots_server, http_method):
    answer = pots_server.ask(http_method, path_of("ListPots"), b"{}", JSON)
    assert_error(answer, "bad_route", "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-protobuf", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_a_bad_route(pots_server, media_type):
    answer = post(pots_server, "ListPots", '{"page":1}', {"Content-Type": media_type})
    assert_error(answer, "bad_route", "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_content_types_that_are_json(pots_server, media_type):
    answer = post(pots_server, "ListPots", '{"page":1}', {"Content-Type": media_type})
    assert answer.status == 200 and answer.header("content-type") == "application/json"


def test_a_body_without_a_content_type_is_json(pots_server):
    with pots_server.connect() as connection:
        body = b'{"page":1}'
        connection.send(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                        % (path_of("ListPots").encode(), len(body), body))
        assert connection.read_answer().status == 200


def test_a_body_that_is_too_large_is_malformed(pots_server):
    answer = post(pots_server, "AddCoins", b"{" + b" " * (1024 * 1024) + b"}")
    assert_error(answer, "malformed", "BODY_TOO_LARGE")


def test_a_foreign_host_or_page_is_denied(pots_server):
    for headers, reason in [({"Host": "evil.example"}, "FORBIDDEN_HOST"), ({"Origin": "http://evil.example"}, "FORBIDDEN_ORIGIN")]:
        with pots_server.connect() as connection:
            host = headers.get("Host", "localhost")
            more = {name: value for name, value in headers.items() if name != "Host"}
            connection.send(render("POST", path_of("ListPots"), b'{"page":1}', {**JSON, **more}, host=host))
            assert_error(connection.read_answer(), "permission_denied", reason)


def test_a_body_that_does_not_come_is_a_deadline_exceeded(serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "pots", "--body-timeout", "100ms")
    with server.connect() as connection:
        connection.send(request("ListPots", {"page": 1})[:-3])
        assert_error(connection.read_answer(), "deadline_exceeded", "REQUEST_TIMEOUT")
        connection.assert_closed()


def test_a_full_lane_is_unavailable(serve, pots_client, sqlite_store):
    server = serve(sqlite_store, "--roles", "pots", "--lane-bytes", "65536")
    pots = pots_client(server)
    pot_id = pots.new_pot(max_coins=10**6)
    body = encode("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1) * 5000}, "json")
    answer = post(server, "AddCoins", body)
    assert_error(answer, "unavailable", "OVERLOADED")
    assert pots.content(pot_id) == {}


def test_a_store_that_is_away_is_unavailable(serve, pots_client, own_postgres, tmp_path):
    from harness.stores import PostgresStore

    store = PostgresStore(own_postgres.create_database(), tmp_path)
    server = serve(store, "--roles", "pots")
    pots = pots_client(server)
    pot_id, key = pots.new_pot(), new_key()
    own_postgres.stop()
    for method, fields in [("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}), ("ListCoins", {"pot_id": pot_id})]:
        error = assert_error(pots.call(method, fields, key=key), "unavailable")
        assert error["meta"]["reason"] in ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN")
    own_postgres.start()
    server.wait_ready()
    assert pots.call("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}, key=key).status == 200
    assert pots.content(pot_id) == {"GOLD": 1}


def test_other_paths_keep_their_own_errors(pots_server):
    answer = pots_server.ask("GET", "/twirpx")
    assert answer.header("content-type") == "application/problem+json" and answer.code == "ROUTE_NOT_FOUND"


def test_requests_in_a_row_on_one_connection_are_answered_in_order(pots, pots_server):
    pot_id = pots.new_pot()
    with Connection(pots_server.port) as connection:
        connection.send(
            request("AddCoins", {"pot_id": pot_id, "coins": coins(gold=5)})
            + request("RemoveCoins", {"pot_id": pot_id, "coins": coins(gold=2)}, "protobuf")
            + request("ListCoins", {"pot_id": pot_id}))
        assert connection.read_answer().json() == {"coins": coins(gold=5)}
        assert decode("RemoveCoins", connection.read_answer()) == {"coins": coins(gold=2)}
        assert connection.read_answer().json() == {"coins": coins(gold=3)}
