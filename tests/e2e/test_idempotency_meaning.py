"""Under an Idempotency-Key, the same request is one that asks for the same, however it is typed and whoever stored it."""

import hashlib
import json
import struct

import pytest

from harness.counts import COLLECTION, action, new_id, new_key
from harness.pots import assert_error, path_of
from harness.problems import assert_problem
from harness.verify import damage, from_now, query

SAME_AMOUNTS = {
    "spaces": b' { "amount" : 5 }\r\n',
    "escapes": rb'{"\u0061mount":5}',
    "tab": b'{\t"amount":5}',
}


def assert_replay(first, second):
    assert second.header("idempotent-replayed") == "true", second
    assert (second.status, second.body) == (first.status, first.body)


@pytest.mark.parametrize("typed", SAME_AMOUNTS.values(), ids=SAME_AMOUNTS)
def test_another_spelling_of_an_amount_is_the_same_request(counts, typed):
    item, key = counts.new_item(), new_key()
    first = counts.ask("POST", action(item, "increase"), b'{"amount":5}', key=key)
    assert_replay(first, counts.ask("POST", action(item, "increase"), typed, key=key))
    assert counts.value(item) == 5


def test_members_in_another_order_are_the_same_request(counts):
    item, key = new_id(), new_key()
    first = counts.ask("POST", COLLECTION, f'{{"itemId":"{item}","initialValue":3}}'.encode(), key=key)
    assert first.status == 201
    assert_replay(first, counts.ask("POST", COLLECTION, f'{{"initialValue": 3, "itemId": "{item}"}}'.encode(), key=key))


def test_an_id_in_the_path_is_the_same_however_it_is_encoded(counts):
    item, key = counts.new_item(), new_key()
    first = counts.increase(item, key=key)
    encoded = "".join(f"%{byte:02x}" for byte in item.encode())
    assert_replay(first, counts.ask("POST", f"/api/v1/counts/{encoded}/increase", key=key))


OTHER_AMOUNTS = {"absent": None, "empty": b"{}", "null": b'{"amount":null}', "more": b'{"amount":2}'}


@pytest.mark.parametrize("typed", OTHER_AMOUNTS.values(), ids=OTHER_AMOUNTS)
def test_a_default_that_is_written_out_is_another_request(counts, typed):
    item, key = counts.new_item(), new_key()
    counts.ask("POST", action(item, "increase"), b'{"amount":1}', key=key)
    assert_problem(counts.ask("POST", action(item, "increase"), typed, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert counts.value(item) == 1


def test_a_user_id_as_a_number_is_not_the_request_of_one_as_a_string(all_roles_server):
    """They are one user, but the answer shows the type."""
    key = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
    body = b'{"userId":1001,"rateLimit":5,"timeWindow":1}'
    first = all_roles_server.ask("POST", "/api/config", body, key)
    assert first.json()["userId"] == 1001
    assert_replay(first, all_roles_server.ask("POST", "/api/config", b'{"timeWindow":1, "rateLimit":5, "userId":1001}', key))
    answer = all_roles_server.ask("POST", "/api/config", body.replace(b"1001", b'"1001"'), key)
    assert_problem(answer, 409, "IDEMPOTENCY_KEY_CONFLICT")


def test_twirp_compares_json_by_its_meaning_and_protobuf_by_its_bytes(all_roles_server):
    path = path_of("CreatePot")

    def ask(body, media, key):
        return all_roles_server.ask("POST", path, body, {"Content-Type": f"application/{media}", "Idempotency-Key": key})

    key = new_key()
    first = ask(b'{"pot_name":"In order","max_coins":10}', "json", key)
    assert first.status == 200
    assert_replay(first, ask(b'{"max_coins": 10, "pot_name": "In order"}', "json", key))
    assert_error(ask(b'{"max_coins": 11, "pot_name": "In order"}', "json", key), "already_exists", "IDEMPOTENCY_KEY_CONFLICT")
    key, name, most = new_key(), b"\x0a\x05Bytes", b"\x10\x0a"
    first = ask(name + most, "protobuf", key)
    assert first.status == 200
    assert_replay(first, ask(name + most, "protobuf", key))
    assert_error(ask(most + name, "protobuf", key), "already_exists", "IDEMPOTENCY_KEY_CONFLICT")


# ---- keys that the version before stored ----------------------------------------------------


def first_fingerprint(*parts):
    """SHA-256 over method, path and body as they were typed, each after its length."""
    return hashlib.sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).hexdigest()


def put_old_key(store, key, path, typed, body):
    """An increase that the version before has answered, as it stored that."""
    digest, answer = first_fingerprint(b"POST", path.encode(), typed), body.encode().hex()

    def octets(text):
        return f"decode('{text}', 'hex')" if store.name == "postgres" else f"x'{text}'"

    damage(store, "counts.db", [
        "INSERT INTO idempotency_keys (scope, key, fingerprint, status, content_type, location, body, owner, note, "
        "lease_until, expires_at) VALUES ("
        f"'POST /api/v1/counts/{{itemId}}/increase', '{key}', {octets(digest)}, 200, 'application/json', '', "
        f"{octets(answer)}, '', '', {from_now(store, 4)}, {from_now(store, 24 * 3600)})"])


@pytest.mark.parametrize("typed", [b"", b"{}", b'{"amount": 5 }'], ids=["absent", "empty", "amount"])
def test_a_retry_across_the_upgrade_gets_the_answer_of_the_version_before(serve, client, store, typed):
    server = serve(store)
    item, key = client(server).new_item(7), new_key()
    server.stop()
    stored = json.dumps({"itemId": item, "value": 7}, separators=(",", ":"))
    put_old_key(store, key, action(item, "increase"), typed, stored)
    counts = client(serve(store))
    for _ in range(2):
        answer = counts.ask("POST", action(item, "increase"), typed, key=key)
        assert (answer.status, answer.body.decode()) == (200, stored)
        assert answer.header("idempotent-replayed") == "true"
    assert counts.value(item) == 7


def test_an_old_key_knows_another_request_and_expires_like_any_other(serve, client, store):
    server = serve(store)
    item, other, key = client(server).new_item(7), client(server).new_item(7), new_key()
    server.stop()
    put_old_key(store, key, action(item, "increase"), b'{"amount":5}', "{}")
    server = serve(store)
    counts = client(server)
    for target, body in [(item, {"amount": 6}), (item, None), (other, {"amount": 5})]:
        answer = counts.ask("POST", action(target, "increase"), body, key=key)
        assert_problem(answer, 409, "IDEMPOTENCY_KEY_CONFLICT")
    server.stop()
    counts = client(serve(store, env={"QUIPU_TEST_CLOCK_OFFSET": "25h"}))
    assert counts.increase(item, 5, key=key).json()["value"] == 12


def test_a_stored_fingerprint_begins_with_its_version(serve, client, store):
    server = serve(store)
    counts = client(server)
    counts.increase(counts.new_item(), key=new_key())
    server.stop()
    ((fingerprint,),) = query(store, "counts.db", "SELECT fingerprint FROM idempotency_keys")
    assert (len(bytes(fingerprint)), bytes(fingerprint)[0]) == (33, 2)
