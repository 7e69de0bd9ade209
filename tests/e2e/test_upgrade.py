"""An upgrade from the previous release: what it left behind is served, both versions can run side by side while new
features are unused, and there is no way back without a backup, which the older program says."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import sqlite3
import subprocess

import pytest

from engines.kafka import LONG_SESSION_MS
from harness import previous
from harness.available import available
from harness.fixtures import Servers
from harness.gateway import send_request, sms_sent, texts_sent
from harness.gateway_stacks import KafkaStack
from harness.http import ask_all
from harness.kafka import Kafka
from harness.quipu import refused_migrate, run
from harness.rabbitmq import NEW_QUEUE
from harness.waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def upgraded(request, serve):
    """A server of this version on what the previous one has left behind."""
    if request.param == "sqlite":
        store = request.getfixturevalue("sqlite_store")
        previous.restore_sqlite(store.data)
    else:
        store = request.getfixturevalue("postgres_store")
        previous.restore_postgres(store.database)
    return serve(store, "--roles", "all", env=previous.clock_then())


def test_the_data_of_the_previous_version_is_served_and_can_be_changed(upgraded):
    previous.check_values(upgraded)
    previous.check_answers_to_retries(upgraded)
    previous.check_values(upgraded)
    previous.go_on(upgraded)


def test_the_data_of_the_previous_version_keeps_every_rule(upgraded, binary):
    done = run(binary, "verify", "--server", f"http://127.0.0.1:{upgraded.port}", env=previous.clock_then())
    assert done.returncode == 0, done.stdout + done.stderr


# ---- no way back


def test_an_older_program_refuses_the_file_of_a_newer_one_and_says_what_to_do(binary, sqlite_store):
    arguments = ["migrate", "--roles", "counts", *sqlite_store.arguments()]
    assert run(binary, *arguments).returncode == 0
    with contextlib.closing(sqlite3.connect(sqlite_store.data / "counts.db")) as file, file:
        file.execute("INSERT INTO schema_migrations VALUES ('counts', 99, 'from_the_future', 0)")
    done = run(binary, *arguments)
    assert done.returncode == 1
    assert "newer" in done.stderr and "restore a backup" in done.stderr and "99" in done.stderr


def test_an_older_program_refuses_the_database_of_a_newer_one_and_says_what_to_do(binary, postgres_store):
    arguments = ["--roles", "counts", *postgres_store.arguments()]
    assert run(binary, "migrate", *arguments).returncode == 0
    postgres_store.database.query("INSERT INTO schema_migrations (component, version, name) VALUES ('counts', 99, 'x')")
    log = refused_migrate(binary, "restore a backup", *arguments)
    assert "newer" in log and "99" in log


# ---- both versions at once


@pytest.fixture(scope="module")
def previous_program(tmp_path_factory):
    """The program of the previous release: QUIPU_PREVIOUS, or built from the history."""
    if "QUIPU_PREVIOUS" in os.environ:
        return pathlib.Path(os.environ["QUIPU_PREVIOUS"])
    folder = tmp_path_factory.mktemp("previous")
    sources = subprocess.run(["git", "archive", previous.COMMIT], cwd=ROOT, capture_output=True, check=False)
    if sources.returncode != 0:
        pytest.skip(f"the history does not have {previous.COMMIT}")
    subprocess.run(["tar", "-x", "-C", folder], input=sources.stdout, check=True)
    for command in (["meson", "setup", "build", "-Dtest_build=true"], ["ninja", "-C", "build", "quipu"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            why = re.findall(r".*(?:ERROR|error): .*", done.stdout) or done.stdout.splitlines()[-1:]
            pytest.skip(f"version {previous.VERSION} cannot be built here: {why[0]}")
    return folder / "build/quipu"


@pytest.fixture
def serve_previous(previous_program, tmp_path, request):
    """`serve` for the program of the previous release."""
    with contextlib.closing(Servers(previous_program, tmp_path / "old", request.node)) as servers:
        yield servers


def change(server, number):
    """One change of each service; True if all were acknowledged."""
    headers = {"Idempotency-Key": f"change-{number}"}
    item = previous.post(server, "/api/v1/counts/visits/increase", {}, headers)
    coins = {"pot_id": 1, "coins": [{"kind": "GOLD", "count": 1}]}
    previous.post(server, "/twirp/pyggpot.coin.Coin/AddCoins", coins, headers)
    grant = {"user_id": f"u_{number}", "stock_keeping_unit": "item1", "reason": "purchase", "purchase_id": f"p_{number}"}
    previous.post(server, "/v1/entitlements/grants", grant, headers)
    return item["value"] > 0


@pytest.mark.full
def test_both_versions_serve_one_database_while_new_features_are_unused(serve_previous, serve, postgres_store):
    roles = ["--roles", "counts,pots,entitlements,notifications"]
    old = serve_previous(postgres_store, *roles)
    previous.post(old, "/api/v1/internal/counts", {"itemId": "visits"})
    previous.post(old, "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "savings", "max_coins": 100000})
    assert change(old, 0)
    new = serve(postgres_store, *roles)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: change((old, new)[number % 2], number), range(1, 201)))
    assert change(new, 8), "a retry of what the old version has done may reach the new one"
    old.stop()
    assert previous.get(new, "/api/v1/internal/counts/visits")["currentValue"] == 201
    coins = previous.post(new, "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": 1})["coins"]
    assert coins == [{"kind": "GOLD", "count": 201}]
    assert all(previous.get(new, f"/v1/users/u_{number}/entitlements")["entitlements"] for number in range(201))


@pytest.fixture(params=["none", "redis"])
def gateway_stack(request, database, tmp_path):
    """On a Kafka of its own, so that no sender of another test takes the messages."""
    cache = request.getfixturevalue("own_redis").url if request.param == "redis" else "none"
    with available(lambda: Kafka(session_ms=LONG_SESSION_MS)) as broker:
        yield KafkaStack(tmp_path, cache, database, broker)


@pytest.mark.full
def test_gateways_and_senders_of_both_versions_keep_the_limits_and_send_every_message_once(
    gateway_stack, serve_previous, serve, gateway_client  # the stack first: its Kafka outlives the servers
):
    old, limit = serve_previous(gateway_stack), 20
    users = [gateway_client(old).new_user(limit) for _ in range(10)]
    before = ask_all((old.port, send_request(user)) for user in users)
    new = serve(gateway_stack.beside())
    sends = [((old, new)[number % 2].port, send_request(user)) for number in range(2 * limit) for user in users]
    admitted = [answer for answer in [*before, *ask_all(sends)] if answer.status == 200]
    assert {answer.status for answer in ask_all(sends)} == {429}, "the limits are used up in both"
    assert len(admitted) == len({answer.json()["messageId"] for answer in admitted}) == limit * len(users)
    assert {gateway_client(server).count(user) for server in (old, new) for user in users} == {limit}

    old.stop()  # what it has not sent goes to the new one
    after = gateway_client(new).new_user(1)
    gateway_client(new).send(after)
    everybody = [*users, after]
    wait_until(lambda: sorted(user for user, _ in sms_sent(old, new)) == sorted([*users * limit, after]),
               "every message is sent", explain=lambda: {user: [u for u, _ in sms_sent(old, new)].count(user) for user in everybody})
    texts = texts_sent(old, new)
    assert len(texts) == len(set(texts)), "a message was sent twice"


@pytest.mark.full
def test_counters_of_both_versions_count_what_the_new_dialogs_write(serve_previous, serve, full_unread, unread_client):
    """The dialogs of the previous version are stopped before, as the page says."""
    talking = serve_previous(full_unread.play("dialogs"))
    old = serve_previous(full_unread.play("counters"))
    first = [unread_client(talking).sent("carol", "dave") for _ in range(5)]
    unread_client(old).wait_count("dave", 5)
    talking.stop()

    new = serve(full_unread.play("dialogs,counters"))
    wait_until(lambda: full_unread.host.consumers(NEW_QUEUE) == 2, "both versions take events")
    client = unread_client(new)
    ids = [client.sent("carol", "dave") for _ in range(100)]
    for message in [*first, *ids[:60]]:
        assert client.read("dave", message).status == 200
    for server in (old, new):
        unread_client(server).wait_count("dave", 40)
    full_unread.wait_agreement()
    assert old.metric("quipu_inbox_taken_total") > len(first) and new.metric("quipu_inbox_taken_total") > 0


@pytest.mark.full
def test_dialogs_of_the_previous_version_lose_nothing_because_the_new_schema_refuses_them(
    serve_previous, serve, full_unread, unread_client
):
    """This is why they are stopped first: they would write messages that no conversation shows."""
    old = serve_previous(full_unread.play("dialogs"))
    before = unread_client(old).sent("carol", "dave", "before")
    new = serve(full_unread.play("dialogs,counters"))
    refused = old.ask("POST", "/dialogs/send", {"receiverId": "dave", "text": "refused"}, {"X-User-Id": "carol"})
    assert refused.status == 500 and "nothing was changed" in refused.json()["detail"], refused
    assert "in_conversation" in old.log_text(), "the log names the column"
    after = unread_client(new).sent("carol", "dave", "after")
    listed = unread_client(new).list("dave", "carol").json()
    assert [message["text"] for message in listed] == ["before", "after"] and before != after


@pytest.mark.full
def test_the_previous_version_cannot_start_on_the_new_schema_and_says_so(previous_program, binary, postgres_store):
    assert run(binary, "migrate", "--roles", "counts", *postgres_store.arguments()).returncode == 0
    refused_migrate(previous_program, "newer than this program knows", "--roles", "counts", *postgres_store.arguments())
