"""The events as others read them: NATS's text protocol and Kafka's, and messages compiled from the .proto by protoc."""

import datetime

import pytest

from harness import kafka as kf
from harness import quipu
from harness.entitlements import PostgresBus, event_class, make_event, new_user
from harness.waiting import wait_until

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GARBAGE = [b"garbage", b"", b"\xff" * 300, b"\x0a\x05ab\x00de", bytes(range(256)) * 40]


def microseconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_a_consumer_written_against_the_wire_reads_every_event(serve, entitlements_client, nats_stack, nats):
    client = entitlements_client(serve(nats_stack))
    user = new_user()
    granted = client.grant(user, "item é", purchase="p_456", headers={"traceparent": TRACE}).json()
    revoked = client.revoke(user, "item é", purchase="p_456").json()
    nats_stack.wait_published()
    messages = sorted(nats.messages(), key=lambda message: event_class().FromString(message.payload).version)
    rows = sorted(nats_stack.rows("entitlement_audit"), key=lambda row: row["version"])
    for message, answer, row, source in zip(messages, [granted, revoked], rows, ["purchase", "refund"], strict=True):
        event = event_class().FromString(message.payload)
        kind = "Granted" if source == "purchase" else "Revoked"
        assert message.subject == f"entitlements.events.{kind.lower()}"
        assert (event.event_id, event.event_type) == (str(row["event_id"]), f"Entitlement{kind}")
        assert (event.user_id, event.stock_keeping_unit) == (user, "item é")
        assert (event.source, event.source_id, event.version) == (source, row["purchase_id"], answer["version"])
        assert event.occurred_at.ToDatetime(datetime.timezone.utc) == microseconds(answer["updated_at"])
        assert message.headers["Nats-Msg-Id"] == event.event_id
        assert message.headers["event_type"] == event.event_type
        assert message.headers["aggregate_key"] == f"{user}:item é"
        assert microseconds(message.headers["occurred_at"]) == microseconds(answer["updated_at"])
        assert event.SerializeToString() == message.payload, "nothing that the .proto does not know"
    assert messages[0].headers["trace_id"] == TRACE.split("-")[1]
    assert messages[0].headers["traceparent"] == TRACE
    client.wait_sent(user, count=2)


def test_the_stream_and_its_durable_are_as_documented(serve, nats_stack, nats):
    serve(nats_stack)
    with nats.wire() as wire:
        stream = wire.ask("STREAM.INFO.ENTITLEMENTS")["config"]
    assert set(stream["subjects"]) == {"entitlements.events.granted", "entitlements.events.revoked"}
    assert stream["max_age"] == 7 * 24 * 3600 * 10**9
    assert stream["storage"] == "file"
    durable = wait_until(nats.consumer, "the durable is there")["config"]
    assert (durable["durable_name"], durable["ack_policy"]) == ("notifications", "explicit")


def test_garbage_on_the_subject_stops_nobody_and_is_kept(serve, entitlements_client, nats_stack, nats):
    server = serve(nats_stack)
    client = entitlements_client(server)
    client.wait_sent(client.granted())
    for payload in GARBAGE:
        nats.put("entitlements.events.granted", payload)
    client.wait_sent(client.granted())
    wait_until(lambda: nats_stack.count("notification_dlq") == len(GARBAGE), "all garbage is kept")
    letters = nats_stack.rows("notification_dlq")
    assert sorted(bytes(letter["payload"]) for letter in letters) == sorted(GARBAGE)
    assert all(letter["kind"] == "poison" and letter["last_error"] and letter["resolved_at"] is None for letter in letters)
    places = {letter["position"].partition("@")[0] for letter in letters}  # then the server's time
    assert places == {f"ENTITLEMENTS/{n}" for n in range(2, 2 + len(GARBAGE))}
    wait_until(lambda: server.metric("quipu_inbox_poison_total") == len(GARBAGE), "all garbage is counted")
    wait_until(lambda: nats.consumer()["num_ack_pending"] == 0, "nothing comes again")


@pytest.fixture(scope="module")
def taker(module_serve, module_nats_stack):
    """A stack with a server that only takes in, for tests that write to its subject."""
    module_serve(module_nats_stack.beside("notifications"))
    return module_nats_stack


@pytest.mark.parametrize("field,value", [
    ("event_id", ""), ("event_type", "EntitlementLent"), ("user_id", ""), ("user_id", "x" * 129),
    ("stock_keeping_unit", ""), ("stock_keeping_unit", "a\x01b"), ("version", 0), ("version", -1),
])
def test_an_event_that_breaks_the_rules_is_put_aside(taker, field, value):
    event = make_event("someone")
    setattr(event, field, value)
    payload = event.SerializeToString()
    taker.bus.put("entitlements.events.granted", payload)
    (letter,) = wait_until(
        lambda: [l for l in taker.rows("notification_dlq") if bytes(l["payload"]) == payload], "it is put aside")
    assert field in letter["last_error"]


# ---- Kafka


@pytest.fixture
def kafka_stack(binary, tmp_path, database):
    done = quipu.run(binary, "serve", "--check-config", "--roles", "entitlements", "--entitlements-bus",
                     "kafka://127.0.0.1:1", cwd=tmp_path)
    if done.returncode != 0:
        pytest.skip(f"this build has no Kafka: {done.stderr.strip()}")
    with kf.Kafka(real=False) as broker:
        yield PostgresBus(tmp_path, database, broker)


def test_the_whole_way_on_kafka(serve, entitlements_client, kafka_stack):
    servers = [serve(kafka_stack), serve(kafka_stack.beside("entitlements"))]
    client, other = (entitlements_client(server) for server in servers)
    user = new_user()
    client.grant(user, headers={"traceparent": TRACE})
    other.revoke(user)
    client.wait_sent(user, count=2)
    client.wait_sent(*other.granted(20))
    kafka_stack.wait_all_sent(22)
    records = kafka_stack.bus.read("entitlements.events")
    events = [event_class().FromString(record.value) for record in records]
    assert len(records) == len({event.event_id for event in events}) == 22, "no row is published twice"
    assert all(record.key.decode() == f"{event.user_id}:item1" for record, event in zip(records, events))
    (first,) = [record for record, event in zip(records, events) if (event.user_id, event.version) == (user, 1)]
    headers = {name: value.decode() for name, value in first.headers}
    assert headers["event_type"] == "EntitlementGranted"
    assert headers["aggregate_key"] == f"{user}:item1"
    assert headers["trace_id"] == TRACE.split("-")[1]
    assert headers["occurred_at"] and headers["event-id"]
    kafka_stack.bus.write(b"garbage", topic="entitlements.events")
    client.wait_sent(client.granted())
    wait_until(lambda: kafka_stack.count("notification_dlq", "payload = 'garbage'::bytea") == 1, "garbage is kept")
