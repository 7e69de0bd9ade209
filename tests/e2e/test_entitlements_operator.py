"""quipu dlq and quipu outbox against the real server: what was given up is shown, sent again or let go, and recorded."""

import base64
import concurrent.futures
import json
import os

import pytest

from harness import quipu
from harness.entitlements import event_class, make_event, new_user
from harness.gateway import Gateway
from harness.problems import assert_problem
from harness.waiting import wait_until
from harness.webhook import Webhook

ABSENT = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def receiver():
    with Webhook() as running:
        yield running


@pytest.fixture(scope="module")
def stack(module_nats_stack):
    return module_nats_stack


@pytest.fixture(scope="module")
def server(module_serve, stack, receiver):
    return module_serve(stack, "--notify-channel", receiver.channel, "--outbox-poll", "20ms")


@pytest.fixture
def client(server, entitlements_client):
    return entitlements_client(server)


@pytest.fixture
def run(binary, server):
    """Runs a command of the operator; it must succeed unless told otherwise."""
    def command(*words, status=0):
        done = quipu.run(binary, *words, "--server", f"http://127.0.0.1:{server.port}")
        assert done.returncode == status, done
        return done.stdout + done.stderr

    return command


def failed_notification(client, stack, receiver):
    """A user with a notification that was refused, and its id."""
    user = new_user()
    receiver.of_user[user] = 400
    client.grant(user)
    wait_until(lambda: [n["status"] for n in client.inbox(user)] == ["FAILED"], "it is given up")
    return user, client.inbox(user)[0]["notification_id"]


def failed_event(client, stack, payload=b"no event"):
    """A user with an event that cannot be read, and its id."""
    (row,) = stack.query("", "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, created_at)"
                         " VALUES (gen_random_uuid(), 'EntitlementGranted', 'u:i', '', %s, quipu_now())"
                         " RETURNING event_id::text", (payload,))
    wait_until(lambda: stack.count("outbox_events", f"event_id = '{row['event_id']}' AND status = 'FAILED'"),
               "it is given up at once")
    return row["event_id"]


def poison(stack, payload):
    stack.bus.put("entitlements.events.granted", payload)
    (letter,) = wait_until(
        lambda: [l for l in stack.rows("notification_dlq") if bytes(l["payload"]) == payload], "it is put aside")
    return letter["id"]


def actions(stack, id_):
    rows = stack.query("", "SELECT * FROM operator_actions WHERE target LIKE %s ORDER BY id", (f"%{id_}",))
    return [(row["action"], row["detail"]) for row in rows]


def test_a_notification_that_was_given_up_is_shown_replayed_and_sent(client, stack, receiver, run):
    user, id_ = failed_notification(client, stack, receiver)
    assert f"notification/{id_}" in run("dlq", "list")
    shown = json.loads(run("dlq", "show", f"notification/{id_}"))
    event = event_class().FromString(base64.b64decode(shown["payload"]))
    assert (event.user_id, shown["attempt_count"], shown["aggregate_key"]) == (user, 1, f"{user}:item1")
    assert shown["event"]["user_id"] == user and "400" in shown["error"]
    receiver.of_user[user] = 200
    run("dlq", "replay", f"notification/{id_}")
    client.wait_sent(user)
    assert client.inbox(user)[0]["notification_id"] == id_
    assert len({headers["Idempotency-Key"] for _, headers in receiver.of(user)}) == 1
    assert id_ not in run("dlq", "list")
    assert [action for action, _ in actions(stack, id_)] == ["replay"]
    (letter,) = stack.rows("notification_dlq", where=f"id = '{id_}'")
    assert letter["resolved_at"] and letter["resolution"] == "REPLAYED"


def test_what_is_replayed_and_refused_again_is_in_the_dlq_again(client, stack, receiver, run):
    user, id_ = failed_notification(client, stack, receiver)
    receiver.of_user[user] = 404
    run("dlq", "replay", f"notification/{id_}")
    wait_until(lambda: len(receiver.of(user)) == 2, "it is sent again")
    wait_until(lambda: id_ in run("dlq", "list"), "it is in the list again")
    assert "404" in json.loads(run("dlq", "show", f"notification/{id_}"))["error"]
    run("dlq", "discard", f"notification/{id_}", "--why", "enough")
    assert id_ not in run("dlq", "list")


def test_a_notification_is_discarded_with_a_reason(client, stack, receiver, run):
    user, id_ = failed_notification(client, stack, receiver)
    run("dlq", "discard", f"notification/{id_}", status=2)
    assert actions(stack, id_) == []
    run("dlq", "discard", f"notification/{id_}", "--why", "sent by mistake")
    ((action, detail),) = actions(stack, id_)
    assert action == "discard" and "sent by mistake" in detail
    assert [n["status"] for n in client.inbox(user)] == ["DISCARDED"]
    assert id_ not in run("dlq", "list")
    run("dlq", "replay", f"notification/{id_}", status=1)
    assert len(receiver.of(user)) == 1


def test_poison_is_shown_with_its_payload_and_discarded(stack, run):
    id_ = poison(stack, b"\x00garbage \xff")
    assert f"poison/{id_}" in run("dlq", "list")
    shown = json.loads(run("dlq", "show", f"poison/{id_}"))
    assert base64.b64decode(shown["payload"]) == b"\x00garbage \xff"
    assert shown["position"].startswith("ENTITLEMENTS/") and "event" not in shown
    run("dlq", "replay", f"poison/{id_}", status=1)
    run("dlq", "discard", f"poison/{id_}", "--why", "not ours")
    assert [action for action, _ in actions(stack, id_)] == ["discard"]


def test_poison_that_can_be_read_now_is_replayed_once(client, stack, run):
    """As after a newer version has learnt to read it."""
    id_ = poison(stack, b"from a newer version")
    user = new_user()
    stack.database.query("UPDATE notification_dlq SET payload = %s WHERE id = %s",
                         (make_event(user).SerializeToString(), id_))
    run("dlq", "replay", f"poison/{id_}")
    client.wait_sent(user)
    run("dlq", "replay", f"poison/{id_}", status=1)
    assert len(client.inbox(user)) == 1
    assert [action for action, _ in actions(stack, id_)] == ["replay"]


@pytest.mark.parametrize("gone", [
    "UPDATE notification_dlq SET resolved_at = now(), resolution = 'DISCARDED' WHERE id = %s", "DELETE FROM notification_dlq WHERE id = %s",
], ids=["discarded", "erased"])
def test_poison_that_goes_while_it_is_replayed_is_not_applied(serve, entitlements_client, nats_stack, tmp_path, gone):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = entitlements_client(
        serve(nats_stack, env={"QUIPU_FAILPOINTS": "dlq.taken=hold", "QUIPU_FAILPOINT_GATE": str(gate)}))
    id_, user = poison(nats_stack, b"from a newer version"), new_user()
    nats_stack.database.query("UPDATE notification_dlq SET payload = %s WHERE id = %s",
                              (make_event(user).SerializeToString(), id_))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        replayed = pool.submit(client.ask, "POST", f"/operator/dlq/poison/{id_}/replay", {})
        with open(gate, "wb"):  # as soon as the payload has been applied; closing it lets the replay go on
            nats_stack.database.query(gone, (id_,))
        assert_problem(replayed.result(), 404, "DEAD_LETTER_NOT_FOUND")
    assert client.inbox(user) == [] and actions(nats_stack, id_) == []
    client.grant(user)
    client.wait_sent(user)


def test_an_event_that_cannot_be_read_fails_at_once_and_is_discarded(client, stack, run):
    id_ = failed_event(client, stack)
    assert f"outbox/{id_}" in run("dlq", "list")
    assert base64.b64decode(json.loads(run("dlq", "show", f"outbox/{id_}"))["payload"]) == b"no event"
    run("dlq", "discard", f"outbox/{id_}", "--why", "broken by hand")
    (row,) = stack.rows("outbox_events", where=f"event_id = '{id_}'")
    assert (row["status"], row["attempt_count"]) == ("DISCARDED", 1)
    assert [action for action, _ in actions(stack, id_)] == ["discard"]
    assert id_ not in run("dlq", "list")


def test_an_event_that_was_mended_is_replayed_published_and_notified(client, stack, run):
    id_, user = failed_event(client, stack), new_user()
    stack.database.query("UPDATE outbox_events SET payload = %s WHERE event_id = %s",
                         (make_event(user, event_id=id_).SerializeToString(), id_))
    run("dlq", "replay", f"outbox/{id_}")
    client.wait_sent(user)
    (row,) = stack.rows("outbox_events", where=f"event_id = '{id_}'")
    assert (row["status"], row["attempt_count"]) == ("PUBLISHED", 0)
    assert [action for action, _ in actions(stack, id_)] == ["replay"]


def test_an_event_that_the_broker_keeps_refusing_fails_and_is_replayed_when_it_takes_it(
    serve, entitlements_client, nats_stack, nats, binary
):
    """The stream takes small messages only, until somebody makes it larger."""
    stream = {"name": "ENTITLEMENTS", "subjects": ["entitlements.events.granted", "entitlements.events.revoked"],
              "max_msg_size": 10}
    with nats.wire() as wire:
        wire.ask("STREAM.CREATE.ENTITLEMENTS", stream)
        server = serve(nats_stack, "--outbox-poll", "20ms", "--outbox-max-attempts", "2")
        client = entitlements_client(server)
        user = client.granted()
        wait_until(lambda: nats_stack.count("outbox_events", "attempt_count = 1 AND status = 'PENDING'"), "it is refused")
        nats_stack.make_due("outbox_events")
        wait_until(lambda: nats_stack.count("outbox_events", "status = 'FAILED'"), "it is given up")
        (row,) = nats_stack.rows("outbox_events")
        assert (row["attempt_count"], row["next_retry_at"], row["lease_until"]) == (2, None, None)
        assert row["last_error"]
        wait_until(lambda: server.metric("quipu_outbox_given_up_total") == 1, "it is counted that it was given up")
        # just after the start refusals are no attempts, so there may be more retries than attempts
        wait_until(lambda: server.metric("quipu_outbox_retried_total") >= 1, "retries are counted")
        wire.ask("STREAM.UPDATE.ENTITLEMENTS", {**stream, "max_msg_size": -1})
    done = quipu.run(binary, "dlq", "replay", f"outbox/{row['event_id']}", "--server", f"http://127.0.0.1:{server.port}")
    assert done.returncode == 0, done
    client.wait_sent(user)


@pytest.mark.parametrize("kind", ["outbox", "notification", "poison"])
def test_what_is_not_there_is_told_and_nothing_recorded(client, stack, run, kind):
    before = stack.count("operator_actions")
    for words in [("show",), ("replay",), ("discard", "--why", "x")]:
        run("dlq", words[0], f"{kind}/{ABSENT}", *words[1:], status=1)
    path = f"/operator/dlq/{kind}/{ABSENT}"
    assert_problem(client.ask("GET", path), 404, "DEAD_LETTER_NOT_FOUND")
    assert_problem(client.ask("GET", f"/operator/dlq/{kind}/no-uuid"), 404, "DEAD_LETTER_NOT_FOUND")
    assert_problem(client.ask("POST", f"{path}/replay"), 404, "DEAD_LETTER_NOT_FOUND")
    assert_problem(client.ask("POST", f"{path}/discard", {"why": "x"}), 404, "DEAD_LETTER_NOT_FOUND")
    assert_problem(client.ask("POST", f"{path}/discard", {}), 400, "BAD_REQUEST", "why")
    assert stack.count("operator_actions") == before


def test_every_kind_is_listed_with_how_many_wait(client, server, stack, receiver):
    def waiting():
        return {row["kind"]: row["waiting"] for row in server.ask("GET", "/operator/dlq").json()["kinds"]}

    before = waiting()
    assert before.keys() == {"outbox", "notification", "poison"}
    failed_event(client, stack)
    failed_notification(client, stack, receiver)
    poison(stack, b"one")
    poison(stack, b"another")
    assert waiting() == {"outbox": before["outbox"] + 1, "notification": before["notification"] + 1,
                         "poison": before["poison"] + 2}


# ---- one letter of every kind

SMALL = {"name": "ENTITLEMENTS", "subjects": ["entitlements.events.granted", "entitlements.events.revoked"],
         "max_msg_size": 10}
NO_EVENT = b'{"message":{"note":"no event"}}'


def failed_dialog_event(stack, payload):
    """The id of an event of dialogs that cannot be published."""
    (row,) = stack.query("", "INSERT INTO dialog_outbox_events (event_id, event_type, aggregate_key, trace_id, payload,"
                         " created_at) VALUES (gen_random_uuid(), 'NewMessageEvent', 'm', '', %s, quipu_now())"
                         " RETURNING event_id::text", (payload,))
    wait_until(lambda: stack.count("dialog_outbox_events", f"event_id = '{row['event_id']}' AND status = 'FAILED'"),
               "it is given up at once")
    return row["event_id"]


def refused_event(client, stack):
    """A user and the id of their event, which NATS refuses from now on, because it is too large."""
    with stack.bus.wire() as wire:
        wire.ask("STREAM.UPDATE.ENTITLEMENTS", SMALL)
    user = client.granted()
    (row,) = wait_until(
        lambda: stack.rows("outbox_events", "event_id::text", f"aggregate_key = '{user}:item1' AND status = 'FAILED'"),
        "it is given up")
    return user, row["event_id"]


def failed_message(server, gateway, provider):
    """A user and the id of their message, which was refused."""
    user = gateway.new_user()
    provider.of_user[user] = 422
    id_ = gateway.send(user).json()["messageId"]
    wait_until(lambda: server.ask("GET", "/operator/dlq/sms").json()["letters"], "it is given up")
    return user, id_


def test_a_letter_of_every_kind_is_read_by_get_and_by_show(serve, nats_stack, openapi, entitlements_client, binary):
    with Webhook() as receiver, Webhook(user="userId") as provider:
        server = serve(nats_stack, "--roles", "all", "--cache", "none", "--outbox-poll", "20ms", "--outbox-max-attempts", 1,
                       "--notify-channel", receiver.channel, "--sms-channel", provider.channel)
        client, gateway = entitlements_client(server), Gateway(server.port, openapi)
        notified, notification = failed_notification(client, nats_stack, receiver)
        texted, message = failed_message(server, gateway, provider)
        granted, refused = refused_event(client, nats_stack)
        letters = {
            ("notification", notification): lambda event: event["user_id"] == notified,
            ("outbox", refused): lambda event: event["user_id"] == granted,
            ("sms", message): lambda event: (event["userId"], event["messageId"]) == (texted, message),
            ("dialog-outbox", failed_dialog_event(nats_stack, NO_EVENT)): lambda event: event == json.loads(NO_EVENT),
            ("dialog-outbox", failed_dialog_event(nats_stack, b'{"cut off":')): lambda event: event is None,
            ("poison", poison(nats_stack, b"\xffpoison")): lambda event: event is None,
        }
        kinds = {row["kind"] for row in server.ask("GET", "/operator/dlq").json()["kinds"]}
        assert kinds == {kind for kind, _ in letters}
        for (kind, id_), has_contents in letters.items():
            letter = json.loads(client.ask("GET", f"/operator/dlq/{kind}/{id_}").body)
            assert (letter["kind"], letter["id"]) == (kind, id_)
            assert has_contents(letter.get("event")), letter
            shown = quipu.run(binary, "dlq", "show", f"{kind}/{id_}", "--server", f"http://127.0.0.1:{server.port}")
            assert shown.returncode == 0, shown.stderr
            assert json.loads(shown.stdout) == letter
        gateway.close()


def test_the_list_is_paged(client, stack, run):
    ids = sorted(poison(stack, f"page {number}".encode()) for number in range(5))
    found, target = [], "/operator/dlq/poison?limit=2"
    while target:
        page = client.ask("GET", target)
        assert page.status == 200
        found += [letter["id"] for letter in page.json()["letters"]]
        target = page.header("link") and page.header("link")[1:].split(">")[0]
    assert found == sorted(found) and set(ids) <= set(found)
    run("dlq", "discard", *(f"poison/{id_}" for id_ in ids[:1]), "--why", "done")


def test_a_process_without_the_role_says_so(serve, entitlements_client, nats_stack, binary):
    server = serve(nats_stack.beside("notifications"))
    client = entitlements_client(server)
    assert_problem(client.ask("GET", "/operator/dlq/outbox"), 404, "ROLE_NOT_HERE")
    assert client.ask("GET", "/operator/dlq/poison").status == 200
    resend = client.ask("POST", "/operator/outbox/resend", {"since": "2026-01-08T07:10:00Z"})
    assert_problem(resend, 404, "ROLE_NOT_HERE")


@pytest.mark.parametrize("since", ["yesterday", "", 7, None])
def test_a_time_that_is_none_is_refused(client, since):
    assert_problem(client.ask("POST", "/operator/outbox/resend", {"since": since}), 400, "BAD_REQUEST", "since")
