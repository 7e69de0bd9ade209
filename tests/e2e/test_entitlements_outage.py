"""The broker stopped, gone for ever or without its data; the store away; starting without them; ending in order."""

import contextlib
import os
import pathlib
import re
import subprocess

import pytest

from harness import quipu
from harness.counts import new_key
from harness.entitlements import PostgresBus, new_user
from harness.entitlement_load import Grants
from harness.waiting import HANG_S, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/OPERATIONS.md"
FAST = ["--outbox-poll", "20ms"]


def dependencies(server):
    answer = server.ask("GET", "/readyz")
    return {entry["name"]: entry["status"] for entry in answer.json()["dependencies"]}


def wait_bus(server, status):
    wait_until(lambda: dependencies(server)["entitlements-bus"] == status, f"the bus is {status}")


def test_nats_stopped_under_load_costs_nothing_and_drains_by_itself(serve, nats_stack, nats):
    servers = [serve(nats_stack, *FAST), serve(nats_stack.beside(), *FAST)]
    with Grants(*servers) as grants:
        grants.wait_granted(100)
        nats.kill()
        grants.wait_granted(200)
        wait_bus(servers[0], "down")
        grants.wait_granted(100)
        nats.start()
        grants.wait_granted(50)
    assert set(grants.statuses) == {200}
    count = nats_stack.count("entitlement_audit")
    assert count == grants.statuses[200]
    wait_bus(servers[0], "up")
    nats_stack.wait_all_sent(count)
    ids = [message.id for message in nats.messages()]
    assert len(ids) == len(set(ids)) == count


# What a failed try leaves in its row, however soon the next one follows
KEEP_TRIES = """
    CREATE TABLE tries AS SELECT *, quipu_now() AS tried_at FROM outbox_events WHERE false;
    CREATE FUNCTION keep_try() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO tries SELECT NEW.*, quipu_now(); RETURN NULL; END $$;
    CREATE TRIGGER keep_try AFTER UPDATE ON outbox_events FOR EACH ROW
        WHEN (NEW.last_error IS NOT NULL AND NEW.attempt_count = OLD.attempt_count + 1) EXECUTE FUNCTION keep_try()
"""


def test_an_event_that_cannot_be_published_waits_as_the_seed_says(serve, entitlements_client, nats_stack, nats):
    """The stream takes small messages only, until somebody makes it larger."""
    stream = {"name": "ENTITLEMENTS", "subjects": ["entitlements.events.granted", "entitlements.events.revoked"],
              "max_msg_size": 10}
    with nats.wire() as wire:
        wire.ask("STREAM.CREATE.ENTITLEMENTS", stream)
    server = serve(nats_stack, *FAST, "--outbox-max-attempts", "100")
    nats_stack.database.query(KEEP_TRIES)
    entitlements_client(server).granted()
    wait_until(lambda: nats_stack.count("tries"), "it was tried")
    for attempt, least_s, most_s in [(0, 0.5, 1.5), (3, 4, 12), (5, 16, 48), (6, 30, 90), (40, 30, 90)]:
        nats_stack.database.query(
            "DELETE FROM tries; "
            "UPDATE outbox_events SET attempt_count = %s, next_retry_at = quipu_now(), status = 'PENDING', last_error = NULL",
            (attempt,))
        (row,) = wait_until(
            lambda attempt=attempt: nats_stack.rows("tries", where=f"attempt_count = {attempt + 1}"), "it was tried again")
        assert (row["status"], row["lease_until"], row["published_at"]) == ("PENDING", None, None)
        assert row["last_error"] and row["locked_by"]
        assert least_s <= (row["next_retry_at"] - row["locked_at"]).total_seconds(), "counted from before the try"
        assert (row["next_retry_at"] - row["tried_at"]).total_seconds() <= most_s, "counted from after it"
    assert server.metric("quipu_outbox_retried_total") >= 6
    assert server.metric("quipu_outbox_given_up_total") == 0
    with nats.wire() as wire:
        wire.ask("STREAM.UPDATE.ENTITLEMENTS", {**stream, "max_msg_size": -1})
    nats_stack.make_due("outbox_events")
    nats_stack.wait_all_sent(1)
    (row,) = nats_stack.rows("outbox_events")
    assert row["last_error"] is None and row["attempt_count"] >= 40


def test_an_outage_counts_as_no_attempt_and_puts_nothing_off(serve, entitlements_client, nats_stack, nats):
    """A row that has one attempt left, and would be put off for 30 s and more, is the probe again and again."""
    server = serve(nats_stack, *FAST)
    nats.stop()
    wait_bus(server, "down")
    entitlements_client(server).granted()
    nats_stack.database.query("UPDATE outbox_events SET attempt_count = 9, next_retry_at = NULL")
    wait_until(lambda: nats_stack.count("outbox_events", "claim_epoch >= 5"), "it was the probe five times")
    (row,) = wait_until(lambda: nats_stack.rows("outbox_events", where="status = 'PENDING'"), "it was returned")
    assert (row["attempt_count"], row["next_retry_at"], row["last_error"]) == (9, None, None)
    nats.start()
    nats_stack.wait_all_sent(1)


def test_however_long_the_broker_is_away_no_event_fails(serve, entitlements_client, nats_stack, nats):
    nats.stop()
    server = serve(nats_stack, *FAST, ready=False)
    wait_until(lambda: dependencies(server).get("entitlements-store") == "up", "the store is up")
    users = entitlements_client(server).granted(5)
    server.stop()
    nats_stack.database.query("UPDATE outbox_events SET attempt_count = 11, next_retry_at = quipu_now()")
    for days in (1, 29, 300):
        nats_stack.database.query("UPDATE outbox_events SET claim_epoch = 0")
        server = serve(nats_stack, *FAST, env={"QUIPU_TEST_CLOCK_OFFSET": f"{days}d"}, ready=False)
        wait_until(lambda: nats_stack.count("outbox_events", "claim_epoch >= 2"), "one is the probe")
        assert nats_stack.count("outbox_events", "status = 'FAILED'") == 0
        server.stop()
    assert nats_stack.count("outbox_events", "attempt_count = 11 AND status = 'PENDING'") == 5
    nats.start()
    server = serve(nats_stack, *FAST, env={"QUIPU_TEST_CLOCK_OFFSET": "301d"})
    nats_stack.wait_all_sent(5)
    assert len(users) == len(nats.messages()) == 5


def test_nats_without_its_data_gets_it_again_and_nothing_is_notified_twice(
    serve, entitlements_client, nats_stack, nats, binary
):
    server = serve(nats_stack, *FAST)
    client = entitlements_client(server)
    users = client.granted(20)
    nats_stack.wait_all_sent(20)
    notified = {user: client.inbox(user) for user in users}
    nats.kill()
    nats.wipe()
    nats.start()
    wait_bus(server, "up")
    done = quipu.run(binary, "outbox", "resend", "--since", "24h", "--server", f"http://127.0.0.1:{server.port}")
    assert done.returncode == 0, done.stderr
    assert "20" in done.stdout
    wait_until(lambda: server.metric("quipu_inbox_repeated_total") == 20, "all came a second time")
    nats_stack.wait_all_sent(20)
    assert {message.id for message in nats.messages()} == {
        row["event_id"] for row in nats_stack.rows("outbox_events", "event_id")}
    assert {user: client.inbox(user) for user in users} == notified
    (record,) = nats_stack.rows("operator_actions")
    assert (record["action"], record["target"]) == ("resend", "outbox_events") and "20" in record["detail"]


def test_the_commands_of_the_page_on_a_broker_outage(serve, entitlements_client, nats_stack, nats, binary, tmp_path):
    """In the order in which docs/OPERATIONS.md has them: look, wait, resend after a broker that forgot, dead letters."""
    section = PAGE.read_text(encoding="utf-8").split("## Survive a broker outage")[1].split("\n## ")[0]
    look, resend, letters = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    server = serve(nats_stack, *FAST, "--roles", "entitlements,notifications,dialogs,counters")
    (tmp_path / "quipu").symlink_to(binary)

    def run_block(block):
        script = "set -e -o pipefail\n" + block.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}").replace("curl", "curl -sS -f")
        where = {"QUIPU_SERVER": f"http://127.0.0.1:{server.port}", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=HANG_S, check=False,
                              env=quipu.environment(where))
        assert done.returncode == 0, done.stderr
        return done.stdout

    nats.kill()
    wait_bus(server, "down")
    entitlements_client(server).granted(3)
    assert '"status":"down"' in run_block(look)
    wait_until(lambda: 'quipu_outbox_pending{outbox="entitlements"} 3\n' in run_block(look), "three events wait")
    nats.start()
    nats_stack.wait_all_sent(3)
    wait_until(lambda: 'quipu_outbox_pending{outbox="entitlements"} 0\n' in run_block(look), "none waits")
    nats.kill()
    nats.wipe()
    nats.start()
    wait_bus(server, "up")
    assert run_block(resend).startswith("3 events will be sent again")
    wait_until(lambda: server.metric("quipu_inbox_repeated_total") == 3, "all came a second time")
    nats_stack.wait_all_sent(3)
    nats_stack.database.query("UPDATE outbox_events SET status = 'FAILED', published_at = NULL, last_error = 'too large'")
    assert run_block(letters).count("too large") == 3
    nats_stack.wait_all_sent(3)


def test_resend_only_reaches_back_as_far_as_told(serve, entitlements_client, entitlement_stack, binary):
    client = entitlements_client(server := serve(entitlement_stack))
    client.granted(3)
    entitlement_stack.wait_all_sent(3)
    where = ["--server", f"http://127.0.0.1:{server.port}"]
    future = quipu.run(binary, "outbox", "resend", "--since", "2999-01-01T00:00:00Z", *where)
    assert future.returncode == 0 and "0" in future.stdout, future
    past = quipu.run(binary, "outbox", "resend", "--since", "1h", *where)
    assert past.returncode == 0 and "3" in past.stdout, past
    entitlement_stack.wait_all_sent(3)


# ---- starting and ending


def test_it_starts_without_the_broker_and_drains_when_it_comes(serve, entitlements_client, nats_stack, nats):
    nats.stop()
    server = serve(nats_stack, *FAST, ready=False)
    client = entitlements_client(server)
    wait_until(lambda: client.grant(new_user(), key=new_key()).status == 200, "grants go on without the broker")
    user = client.granted()
    assert dependencies(server)["entitlements-bus"] == "down"
    assert nats_stack.open_events() >= 2
    nats.start()
    client.wait_sent(user)


def test_it_starts_without_the_store_and_works_when_it_comes(
    serve, entitlements_client, tmp_path, own_postgres, nats
):
    stack = PostgresBus(tmp_path, own_postgres.create_database(), nats)
    own_postgres.stop()
    server = serve(stack, *FAST, ready=False)
    client = entitlements_client(server)
    assert client.grant(new_user()).status == 503
    own_postgres.start()
    server.wait_ready()
    user = client.granted()
    client.wait_sent(user)
    own_postgres.stop("immediate")
    wait_until(lambda: client.grant(new_user()).status == 503, "without the store it is a 503")
    own_postgres.start()
    server.wait_ready()
    again = client.granted()
    client.wait_sent(again)


def test_a_second_address_of_the_broker_that_nobody_has_does_no_harm(serve, entitlements_client, nats_stack, free_port):
    nats_stack.options = f",127.0.0.1:{free_port}"
    client = entitlements_client(serve(nats_stack))
    client.wait_sent(client.granted())


def test_sigterm_under_load_leaves_no_row_claimed_and_the_next_process_goes_on(serve, entitlement_stack):
    server = serve(entitlement_stack, *FAST)
    with Grants(server) as grants:
        grants.wait_granted(150)
        grants.may_lose_connections = True
        server.stop()
    assert entitlement_stack.count("outbox_events", "status = 'IN_FLIGHT'") == 0
    assert entitlement_stack.count("notifications", "status = 'PROCESSING'") == 0
    count = entitlement_stack.count("entitlement_audit")
    assert count >= grants.statuses[200]
    serve(entitlement_stack)
    entitlement_stack.wait_all_sent(count)


def test_after_nats_has_lost_the_end_of_its_stream_new_events_arrive_and_old_ones_not_twice(serve, nats_stack, nats):
    """It has not lost what the consumer had read: it would take the next events for those that are gone."""
    server = serve(nats_stack, *FAST)
    with Grants(server) as grants:
        grants.wait_granted(5)
    nats_stack.wait_all_sent(kept := grants.statuses[200])
    nats.stop()
    nats.copy_messages()
    nats.start()
    with Grants(server) as grants:
        grants.wait_granted(20)
    nats_stack.wait_all_sent(kept + (lost := grants.statuses[200]))
    nats.stop()  # in order: it writes down what the consumer has read
    nats.put_messages_back()
    nats.start()
    with Grants(server) as grants:
        grants.wait_granted(5)
    nats_stack.wait_all_sent(kept + lost + grants.statuses[200])


@contextlib.contextmanager
def stopped(nats):
    nats.stop()
    try:
        yield
    finally:
        nats.start()


@pytest.mark.parametrize("how", ["hang", "down"])
def test_sigterm_while_the_broker_hangs_or_is_away_ends_and_returns_the_claims(
    serve, entitlements_client, nats_stack, nats, how
):
    server = serve(nats_stack, *FAST, "--outbox-lease", "6s")
    client = entitlements_client(server)
    client.wait_sent(client.granted())
    with nats.frozen() if how == "hang" else stopped(nats):
        client.granted(3)
        if how == "hang":
            wait_until(lambda: nats_stack.count("outbox_events", "status = 'IN_FLIGHT'") > 0, "some are in flight")
        server.stop()
        assert nats_stack.count("outbox_events", "status = 'IN_FLIGHT'") == 0
        assert nats_stack.open_events() == 3
