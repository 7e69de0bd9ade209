"""quipu verify: after real traffic and during it nothing differs, and every kind of damage is named."""

import contextlib
import json
import pathlib
import re

import pytest

from harness.quipu import run
from harness.receivers import Handler, Receiver, running
from harness.verify import (
    SERVICES, Traffic, damage, from_now, load, octets, query, verified, verify, walk,
)
from harness.waiting import wait_until

ALL = ("--roles", "all")
COUNTS, LIMITS, POTS = ("--roles", "counts"), ("--roles", "gateway,sender"), ("--roles", "pots")
DIALOGS = ("--roles", "dialogs,counters")
ENTITLEMENTS = ("--roles", "entitlements,notifications")
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORD = re.compile(r'differ(?:_in_line|_with)?\((?:[^;"]*?)"([a-z-]+)"')


@pytest.fixture
def traffic():
    made = []

    def make(server):
        made.append(Traffic(server.port))
        return made[-1]

    yield make
    for each in made:
        each.close()


def settled(server, store):
    """Everything that five names of traffic lead to was published, sent and counted."""
    wait_until(lambda: server.metric("quipu_sender_sent_total") == 15, "every message is sent")
    wait_until(lambda: server.metric("quipu_notifications_sent_total") > 0, "a notification is sent")
    wait_until(lambda: walk(server, "unread", 1000)[0] == [], "everything is counted")
    return store


# ---- what is right


def test_after_traffic_everything_is_right(binary, serve, store, traffic):
    server = serve(store, *ALL)
    for number in range(5):
        traffic(server).all(f"a-{number}")
    settled(server, store)
    told = verify(binary, server)
    assert told.returncode == 0, told
    lines = told.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == SERVICES
    assert all(line.endswith(("checked, all right", ", all counters are right")) for line in lines), lines
    assert "counts: 25 checked, all right" in lines  # 5 counts, 15 changes and 5 creations under keys


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.full)])
def test_during_traffic_nothing_differs(binary, serve, store, rounds):
    server = serve(store, *ALL, "--idempotency-ttl", "1h")
    services = [service for service in SERVICES if service != "unread"]
    with load(server, [f"a-{number}" for number in range(4)]):
        wait_until(lambda: walk(server, "notifications", 1000)[1] != [0], "there are notifications")
        for _ in range(rounds):
            for service in services:
                assert verified(binary, server, service)[0] == set()
                assert walk(server, service, 7, pages=100)[0] == []  # traffic may add rows faster than this reads


def test_nothing_differs_in_a_store_without_rows(binary, serve, store):
    told = verify(binary, serve(store, *ALL), "--json")
    assert told.returncode == 0
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["service"] for line in lines] == SERVICES
    assert all(line["checked"] == 0 and line["differences"] == 0 for line in lines)


def test_small_pages_see_every_row_once(binary, serve, store, traffic):
    server = serve(store, *ALL)
    for number in range(5):
        traffic(server).all(f"a-{number}")
    settled(server, store)
    for service in SERVICES:
        whole = sum(walk(server, service, 1000)[1])
        assert whole >= 5
        for limit in (1, 2, 3):
            differences, checked = walk(server, service, limit)
            assert differences == [] and sum(checked) == whole and max(checked) == limit


# ---- damage


def restarted(serve, store, roles, file, server, statements):
    server.stop()
    damage(store, file, statements)
    return serve(store, *roles)


def test_damaged_counts_are_named(binary, serve, store, traffic):
    server = serve(store, *COUNTS)
    for name in ("good", "ahead", "old", "answer", "reset", "print", "status", "waits", "under", "over"):
        traffic(server).counts(name)
    keys = {}
    server.stop()
    for scope, key, body in query(store, "counts.db", "SELECT scope, key, body FROM idempotency_keys WHERE status < 300"):
        keys[scope, json.loads(bytes(body))["itemId"]] = key
    increase, reset = "POST /api/v1/counts/{itemId}/increase", "POST /api/v1/counts/{itemId}/reset"
    create = "POST /api/v1/internal/counts"
    seven = octets(store, '{"itemId":"reset","value":7}')

    def kept(scope, item):
        return f"WHERE scope = '{scope}' AND key = '{keys[scope, item]}'"

    damage(store, "counts.db", [
        f"UPDATE count_values SET last_updated_at = {from_now(store, 3600)} WHERE item_id = 'ahead'",
        f"UPDATE count_values SET last_updated_at = {from_now(store, -3600)} WHERE item_id = 'old'",
        "UPDATE count_values SET min_value = 1, max_value = 5 WHERE item_id = 'under'",
        "UPDATE count_values SET max_value = -1 WHERE item_id = 'over'",
        "UPDATE count_values SET min_value = 0, max_value = 0 WHERE item_id = 'good'",
        f"INSERT INTO count_values (item_id, current_value, last_updated_at) VALUES ('bell\x07', 1, {from_now(store, 0)})",
        f"UPDATE idempotency_keys SET body = {octets(store, 'nonsense')} {kept(increase, 'answer')}",
        f"UPDATE idempotency_keys SET body = {seven} {kept(reset, 'reset')}",
        f"UPDATE idempotency_keys SET fingerprint = {octets(store, 'short')} {kept(create, 'print')}",
        f"UPDATE idempotency_keys SET status = 503 {kept(increase, 'status')}",
        f"UPDATE idempotency_keys SET owner = 'me', lease_until = {from_now(store, 7200)} {kept(create, 'waits')}",
    ])
    server = serve(store, *COUNTS)
    differences, checked = verified(binary, server, "counts")
    assert differences == {
        ("ahead", "in-the-future"), ("old", "older-than-kept"), ("bell\x07", "id"),
        ("under", "out-of-bounds"), ("over", "out-of-bounds"),
        (f"{increase} {keys[increase, 'answer']}", "answer"), (f"{reset} {keys[reset, 'reset']}", "answer"),
        (f"{create} {keys[create, 'print']}", "fingerprint"), (f"{increase} {keys[increase, 'status']}", "not-kept"),
        (f"{create} {keys[create, 'waits']}", "pending"), (f"{create} {keys[create, 'waits']}", "long-lease"),
    }
    assert checked == 11 + 10 * 4
    assert {(found["id"], found["what"]) for found in walk(server, "counts", 1)[0]} == differences


def test_damaged_limits_are_named(binary, serve, store, traffic):
    server = serve(store, *LIMITS)
    for name in ("good", "config", "window", "current", "reserved", "negative", "ahead", "lowered"):
        traffic(server).limits(name)
    traffic(server).post("/api/config", {"userId": "lowered", "rateLimit": 1, "timeWindow": 1})  # a new window, so it may
    server = restarted(serve, store, LIMITS, "gateway.db", server, [
        "UPDATE rate_limit_store SET rate_limit = 0, reserved_count = 0, current_count = 0 WHERE user_id = 'config'",
        "UPDATE rate_limit_store SET time_window = 525601 WHERE user_id = 'window'",
        "UPDATE rate_limit_store SET current_count = 3, reserved_count = 2 WHERE user_id = 'current'",
        "UPDATE rate_limit_store SET reserved_count = 4 WHERE user_id = 'reserved'",
        "UPDATE rate_limit_store SET current_count = -1 WHERE user_id = 'negative'",
        f"UPDATE rate_limit_store SET last_refresh_time = {from_now(store, 3600)} WHERE user_id = 'ahead'",
        f"UPDATE idempotency_keys SET owner = 'me', note = 'nothing', lease_until = {from_now(store, 1)} "
        "WHERE scope = 'POST /api/send' AND key = (SELECT min(key) FROM idempotency_keys WHERE scope = 'POST /api/send')",
    ])
    differences, _ = verified(binary, server, "limits")
    notes = {pair for pair in differences if pair[0].startswith("POST /api/send ")}
    assert {what for _, what in notes} == {"note"} and len(notes) == 1
    assert differences - notes == {
        ("config", "config"), ("window", "config"), ("current", "over-reserved"), ("reserved", "over-limit"),
        ("negative", "negative"), ("ahead", "in-the-future"),
    }


def test_damaged_pots_are_named(binary, serve, store, traffic):
    server = serve(store, *POTS)
    for number in range(8):
        traffic(server).pots(f"pot{number}")
    free_hand = [
        "ALTER TABLE coin DROP CONSTRAINT coin_denomination_check",
        "ALTER TABLE coin DROP CONSTRAINT coin_coin_count_check",
        "ALTER TABLE coin DROP CONSTRAINT coin_pot_id_fkey",
    ] if store.name == "postgres" else []
    token = "'11111111-1111-4111-8111-111111111111'"
    server = restarted(serve, store, POTS, "pots.db", server, [
        *free_hand,
        "UPDATE pot SET pot_name = '!' WHERE id = 1",
        "DELETE FROM coin WHERE pot_id = 2",
        "UPDATE pot SET max_coins = 5 WHERE id = 2",
        "UPDATE coin SET coin_count = 21 WHERE pot_id = 3 AND denomination = 100",
        f"UPDATE pot SET lock = {token} WHERE id = 4",
        f"UPDATE pot SET lock_expire_time = {from_now(store, 0)} WHERE id = 5",
        "UPDATE coin SET coin_count = -1 WHERE pot_id = 6 AND denomination = 1",
        "UPDATE coin SET denomination = 7 WHERE pot_id = 7 AND denomination = 1",
        "INSERT INTO coin (denomination, coin_count, pot_id) VALUES (1, 1, 99)",
        f"UPDATE pot SET create_time = {from_now(store, 3600)} WHERE id = 8",
    ])
    assert verified(binary, server, "pots")[0] == {
        ("1", "name"), ("2", "max-coins"), ("3", "over-max"), ("4", "lock"), ("5", "lock"), ("6", "negative"),
        ("7", "kind"), ("99", "no-pot"), ("8", "in-the-future"),
    }


ENTITLED = (
    "good", "version", "status", "missing", "differs", "action", "gap", "twice", "orphan", "silent", "lies", "ahead",
    "bare", "left", "step", "loud")


def test_damaged_entitlements_are_named(binary, serve, store, traffic):
    server = serve(store, *ENTITLEMENTS)
    for name in ENTITLED:
        traffic(server).entitlements(name)  # versions 1, 2 and 3, and two steps of version 3
    wait_until(lambda: server.metric("quipu_notifications_sent_total") == 3 * len(ENTITLED), "all are sent")
    server.stop()
    ((event,),) = query(store, "entitlements.db",
                        "SELECT event_id FROM entitlement_audit WHERE user_id = 'good' AND version = 1")
    another = f"'{event}'"
    damage(store, "entitlements.db", [
        "UPDATE entitlements SET version = 0 WHERE user_id = 'version'",
        "UPDATE entitlements SET status = 'REVOKED' WHERE user_id = 'status'",
        "DELETE FROM entitlement_audit WHERE user_id = 'missing'",
        "UPDATE entitlements SET version = 5 WHERE user_id = 'differs'",
        "UPDATE entitlement_audit SET action = 'GRANTED' WHERE user_id = 'action' AND version = 2",
        "DELETE FROM entitlement_audit WHERE user_id = 'gap' AND version = 2",
        "INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, version, step, reason, "
        f"purchase_id, event_id) SELECT {from_now(store, 0)}, user_id, stock_keeping_unit, action, version, step, reason, "
        f"purchase_id, {another} FROM entitlement_audit WHERE user_id = 'twice' AND version = 2",
        "DELETE FROM entitlements WHERE user_id = 'orphan'",
        "DELETE FROM outbox_events WHERE event_id IN "
        "(SELECT event_id FROM entitlement_audit WHERE user_id = 'silent' AND version = 3)",
        "UPDATE entitlement_sources SET status = 'REVOKED', revoked_at = granted_at WHERE user_id = 'bare'",
        "UPDATE entitlement_sources SET status = 'ACTIVE', revoked_at = NULL WHERE user_id = 'left'",
        "UPDATE entitlements SET status = 'REVOKED', version = 4 WHERE user_id = 'left'",
        "DELETE FROM entitlement_audit WHERE user_id = 'step' AND step = 1",
        f"UPDATE entitlement_audit SET event_id = {another} WHERE user_id = 'loud' AND step = 2",
        "UPDATE outbox_events SET aggregate_key = 'nobody' WHERE event_id IN "
        "(SELECT event_id FROM entitlement_audit WHERE user_id = 'lies' AND version = 1)",
        f"UPDATE entitlements SET updated_at = {from_now(store, 3600)} WHERE user_id = 'ahead'",
    ])
    server = serve(store, *ENTITLEMENTS)
    assert verified(binary, server, "entitlements")[0] == {
        (f"{name}:item", what) for name, what in (
            ("version", "version"), ("version", "audit-differs"), ("status", "status"), ("status", "audit-differs"),
            ("status", "source-left"), ("bare", "no-source"), ("left", "source-left"), ("left", "audit-differs"),
            ("step", "audit-gap"), ("loud", "outbox-differs"),
            ("missing", "audit-missing"), ("differs", "audit-differs"),
            # its event says so too
            ("action", "audit-action"), ("action", "outbox-differs"),
            ("gap", "audit-gap"), ("twice", "audit-repeated"), ("twice", "outbox-differs"),
            ("orphan", "no-entitlement"), ("orphan", "source-alone"), ("silent", "outbox-missing"), ("lies", "outbox-differs"),
            ("ahead", "in-the-future"), ("ahead", "audit-differs"),
        )
    }


def test_conversations_that_do_not_fit_their_messages_are_named(binary, serve, store, traffic):
    server = serve(store, *DIALOGS)
    for name in ("good", "behind", "ahead", "silent", "unknown", "lonely", "alice"):
        traffic(server).unread(name)
    server = restarted(serve, store, DIALOGS, "dialogs.db", server, [
        "UPDATE conversations SET last_span = '0000000' WHERE user_id = 'behind'",
        "UPDATE conversations SET last_span = 'fffffff' WHERE user_id = 'ahead'",
        "DELETE FROM messages WHERE receiver_id = 'silent'",
        "DELETE FROM conversations WHERE other_id = 'unknown'",
        "DELETE FROM conversations WHERE user_id = 'lonely'",
        "DELETE FROM conversations WHERE user_id = 'alice' AND other_id = 'alice'",
        "UPDATE idempotency_keys SET status = 503 WHERE key = (SELECT min(key) FROM idempotency_keys "
        "WHERE scope LIKE 'POST /dialogs/send%')",
    ])
    differences = verified(binary, server, "dialogs")[0]
    assert {what for _, what in differences} == {"span-differs", "no-message", "no-conversation", "not-kept"}
    assert {found for found in differences if found[1] != "not-kept"} == {
        ("behind:alice", "span-differs"), ("ahead:alice", "span-differs"), ("silent:alice", "no-message"),
        ("alice:silent", "no-message"), ("alice:unknown", "no-conversation"), ("lonely:alice", "no-conversation"),
        ("alice:alice", "no-conversation"),
    }


def states(store, table, identifier, busy, done, done_at):
    """What no transition leads to, as changes of rows that are done, each with what is to be said of it."""
    now = from_now(store, 0)
    return [
        (f"lease_until = {now}", {"lease"}),
        (f"status = '{busy}', {done_at} = NULL", {"lease"}),
        ("claim_epoch = 0", {"epoch"}),
        (f"{done_at} = NULL", {"done"}),
        (f"status = 'PENDING', next_retry_at = {from_now(store, 3600)}", {"done"}),
        (f"status = 'DISCARDED', attempt_count = 1, {done_at} = NULL", {"error"}),
        ("last_error = 'why'", {"error"}),
        (f"next_retry_at = {now}", {"retry"}),
        ("attempt_count = -1", {"attempts"}),
        (f"status = 'DISCARDED', last_error = 'why', {done_at} = NULL", {"attempts"}),
        (f"created_at = {from_now(store, 3600)}", {"in-the-future"}),
    ]


@pytest.mark.parametrize("service, file, table, identifier, words", [
    ("entitlements", "entitlements.db", "outbox_events", "event_id", ("IN_FLIGHT", "PUBLISHED", "published_at")),
    ("notifications", "notifications.db", "notifications", "notification_id", ("PROCESSING", "SENT", "sent_at")),
])
def test_states_that_nothing_leads_to_are_named(binary, serve, store, traffic, service, file, table, identifier, words):
    server = serve(store, *ENTITLEMENTS)
    for number in range(6):
        traffic(server).entitlements(f"user-{number}")
    wait_until(lambda: server.metric("quipu_notifications_sent_total") == 18, "all are sent")
    server.stop()
    ids = [str(row[0]) for row in query(store, file, f"SELECT {identifier} FROM {table} ORDER BY {identifier}")]
    changes = states(store, table, identifier, *words)
    if service == "notifications":
        changes.append(("attempt_count = 11", {"attempts"}))
    damage(store, file, [
        f"UPDATE {table} SET {change} WHERE {identifier} = '{row}'" for (change, _), row in zip(changes, ids, strict=False)
    ])
    server = serve(store, *ENTITLEMENTS)
    assert verified(binary, server, service)[0] == {
        (row, what) for (_, told), row in zip(changes, ids, strict=False) for what in told
    }


def test_notifications_without_their_event_or_letter_are_named(binary, serve, store, traffic):
    server = serve(store, *ENTITLEMENTS)
    traffic(server).entitlements("user")
    wait_until(lambda: server.metric("quipu_notifications_sent_total") == 3, "all are sent")
    server.stop()
    rows = query(store, "notifications.db", "SELECT notification_id, event_id FROM notifications ORDER BY notification_id")
    damage(store, "notifications.db", [
        f"DELETE FROM processed_events WHERE event_id = '{rows[0][1]}'",
        "UPDATE notifications SET status = 'FAILED', last_error = 'why', attempt_count = 1, sent_at = NULL "
        f"WHERE notification_id = '{rows[1][0]}'",
    ])
    server = serve(store, *ENTITLEMENTS)
    assert verified(binary, server, "notifications")[0] == {
        (str(rows[0][0]), "event-missing"), (str(rows[1][0]), "letter-missing"),
    }


# ---- how it is told


def test_people_read_sentences_and_programs_read_lines_of_json(binary, serve, sqlite_store, traffic):
    server = serve(sqlite_store, *ALL)
    traffic(server).limits("1001")
    wait_until(lambda: server.metric("quipu_sender_sent_total") == 3, "every message is sent")
    server = restarted(serve, sqlite_store, ALL, "gateway.db", server, ["UPDATE rate_limit_store SET reserved_count = 7"])
    sentence = "1001: reserved_count 7 is more than rate_limit 3"
    told = verify(binary, server, "limits")
    assert (told.returncode, told.stdout.splitlines()) == (1, [sentence, "limits: 7 checked, 1 differ"])
    told = verify(binary, server)
    assert told.returncode == 1
    assert f"limits: {sentence}" in told.stdout.splitlines()
    assert "pots: 0 checked, all right" in told.stdout.splitlines()
    told = verify(binary, server, "limits", "--json")
    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {"service": "limits", "id": "1001", "what": "over-limit", "detail": sentence},
        {"service": "limits", "checked": 7, "differences": 1},
    ]


def test_only_what_runs_there_is_verified(binary, serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "counts,pots")
    assert server.ask("GET", "/operator/verify").json() == {"services": ["counts", "pots"]}
    assert [line.split(":")[0] for line in verify(binary, server).stdout.splitlines()] == ["counts", "pots"]
    told = verify(binary, server, "limits", "--json")
    assert told.returncode == 1 and "the server does not run this service" in told.stderr
    assert set(json.loads(told.stdout)) == {"service", "error"}
    answer = server.ask("GET", "/operator/verify/limits")
    assert (answer.status, answer.code) == (404, "ROLE_NOT_HERE")


def test_where_nothing_can_be_verified_it_says_so(binary, serve, sqlite_store):
    told = verify(binary, serve(sqlite_store, "--roles", "dialogs,counters", "--unread-bus", "local:"), "counts")
    assert told.returncode == 1


def test_a_cursor_that_is_none_is_refused(serve, sqlite_store):
    server = serve(sqlite_store, *ENTITLEMENTS)
    for after in ("nonsense", "nonsense:", "audit:a%1fb%1fc", "%1f"):
        answer = server.ask("GET", f"/operator/verify/entitlements?after={after}")
        assert answer.status == 400, (after, answer)


def test_a_store_that_is_away_is_told_and_the_others_are_verified(binary, serve, own_postgres, tmp_path):
    database = own_postgres.create_database()
    server = serve(Mixed(database, tmp_path / "data"), "--roles", "counts,pots")
    own_postgres.stop("immediate")
    told = verify(binary, server, "--json")
    assert told.returncode == 1
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["service"] for line in lines] == ["counts", "pots"]
    assert "error" in lines[0] and lines[1] == {"service": "pots", "checked": 0, "differences": 0}


class Mixed:
    """counts on PostgreSQL, everything else on SQLite."""

    def __init__(self, database, data):
        self._database, self._data = database, data

    def arguments(self):
        return ["--counts-store", self._database.url, "--data", str(self._data)]


def test_without_a_server_it_fails(binary):
    told = run(binary, "verify", "counts", "--server", "http://127.0.0.1:1")
    assert told.returncode == 1 and told.stderr


@pytest.fixture
def server_of_another():
    """Makes a server that answers every request with this."""
    with contextlib.ExitStack() as stack:
        def make(members, status=200):
            page = json.dumps(members, ensure_ascii=False).encode()

            class Page(Handler):
                def do_GET(self):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(page)))
                    self.end_headers()
                    self.wfile.write(page)

            return f"http://127.0.0.1:{stack.enter_context(running(Receiver(Page))).server_port}"

        yield make


def page_of(*differences):
    return {"checked": 1, "differences": differences}


def test_a_terminal_obeys_nothing_that_a_server_says(binary, server_of_another):
    evil = {"id": "a\x9b31mb", "what": "odd", "detail": "c\x9b31md"}
    told = run(binary, "verify", "counts", "--server", server_of_another(page_of(evil)))
    assert told.stdout.splitlines()[0] == "c\\xc2\\x9b31md"
    told = run(binary, "verify", "counts", "--json", "--server", server_of_another(page_of(evil)))
    assert "\x9b" not in told.stdout
    assert json.loads(told.stdout.splitlines()[0]) == {"service": "counts", **evil}
    for flags in [], ["--json"]:
        told = run(binary, "verify", "counts", *flags, "--server", server_of_another({"detail": "c\x9b31md"}, status=500))
        assert told.returncode == 1
        assert "31md" in told.stderr and "\x9b" not in told.stdout + told.stderr


@pytest.mark.parametrize("difference", [5, "text", None, [], {}])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_page_that_no_server_of_ours_sends_is_told(binary, server_of_another, difference, flags):
    told = run(binary, "verify", "counts", *flags, "--server", server_of_another(page_of(difference)))
    assert (told.returncode, told.stderr) == (1, "quipu: the server's list of differences is not valid\n")


@pytest.mark.parametrize("arguments", [
    ["nonsense"], ["counts", "pots"], ["--repair"], ["counts", "--repair"], ["unread", "--nonsense"],
])
def test_a_wrong_use_is_told(binary, arguments):
    assert run(binary, "verify", *arguments).returncode == 2


def test_the_page_for_operators_explains_every_word():
    words = {word for path in (ROOT / "src").rglob("*verify*.c") for word in WORD.findall(path.read_text())}
    assert len(words) > 30
    page = (ROOT / "docs/OPERATIONS.md").read_text(encoding="utf-8")
    assert sorted(word for word in words if f"`{word}`" not in page) == []
