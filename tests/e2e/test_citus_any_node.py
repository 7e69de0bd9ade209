"""Quipu on the workers of a Citus cluster, each process with a worker of its own as its coordinator: docs/SCALING.md says which
roles can do that, and how. Skipped where pg_config finds no Citus."""

import contextlib
import pathlib
import re

import pytest

from engines.citus import Citus
from engines.postgres import Database
from harness.available import available
from harness.citus import distribute
from harness.counts import new_key
from harness.load import Load
from harness.problems import assert_problem
from harness.quipu import refused_migrate
from harness.rabbitmq import Host
from harness.stores import PostgresStore
from harness.unread import PostgresUnread, new_user
from harness.waiting import wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/SCALING.md"
TABLES_OF_A_WORKER = "SELECT count(*) FROM pg_class WHERE relname = 'schema_migrations'"


@pytest.fixture
def spread(bare_cluster, binary):
    """A database of the cluster with distributed tables, of which workers know nothing else."""
    database = bare_cluster.create_database()
    yield distribute(binary, database)
    database.drop()


@pytest.fixture
def workers(spread, tmp_path):
    """A store on each worker."""
    return [PostgresStore(Database(node, spread.name), tmp_path) for node in spread.server.nodes[1:]]


@pytest.fixture
def known(spread):
    make_known(spread)


def make_known(database):
    """The statements of the page make workers know what the counts need besides their rows."""
    page = PAGE.read_text(encoding="utf-8")
    statements = re.findall(r"^SELECT citus_add_local_table_to_metadata\('\w+'\);", page, re.MULTILINE)
    assert len(statements) == 2
    for statement in statements:
        database.query(statement)


def test_a_worker_that_was_not_prepared_is_refused_with_the_reason_and_left_alone(binary, workers):
    refused_migrate(binary, "the server is a worker of a Citus cluster; name the coordinator", *workers[0].arguments())
    assert workers[0].database.query(TABLES_OF_A_WORKER) == [(0,)]


@pytest.mark.usefixtures("known")
def test_processes_on_workers_of_their_own_count_exactly_and_honour_each_others_keys(spread, workers, serve, client, tmp_path):
    """A third process is on the coordinator, as the other roles would be."""
    servers = [serve(store, "--roles", "counts") for store in (*workers, PostgresStore(spread, tmp_path))]
    first, *others = [client(server) for server in servers]
    items = [first.new_item() for _ in range(20)]
    with contextlib.ExitStack() as running:
        loads = [running.enter_context(Load(server.port, items, threads=6)) for server in servers]
        for load in loads:
            load.wait_acknowledged(200)
    for load in loads:
        load.assert_nothing_unexpected()
        load.assert_values_unique()
        assert load.unknown == [] and not load.refused
    assert sum(first.value(item) for item in items) == sum(len(load.acknowledged) for load in loads)
    key = new_key()
    answer = first.increase(items[0], key=key)
    for counts in others:
        again = counts.increase(items[0], key=key)
        assert (again.body, again.header("idempotent-replayed")) == (answer.body, "true")


@pytest.mark.usefixtures("known")
def test_counters_on_the_workers_follow_dialogs_on_the_coordinator(
    spread, workers, serve, unread_client, rabbitmq_server, redis_server, tmp_path
):
    host = Host.new(rabbitmq_server)
    stacks = [PostgresUnread(tmp_path, database, host, redis_server) for database in
              (spread, *(store.database for store in workers))]
    dialogs, *counters = [unread_client(serve(stack.play(role))) for stack, role in
                          zip(stacks, ("dialogs", "counters", "counters"))]
    users = [new_user() for _ in range(10)]
    messages = [dialogs.sent(new_user(), user) for user in users * 3]
    for message, user in zip(messages, users):
        dialogs.read(user, message)
    for client in counters:
        for user in users:
            client.wait_count(user, 2)
    assert spread.query("SELECT DISTINCT count FROM counters") == [(2,)]


@pytest.mark.usefixtures("known")
def test_a_newer_schema_is_migrated_on_the_coordinator_only(spread, workers, binary):
    spread.query("DELETE FROM schema_migrations WHERE component = 'counts' AND version = 2")
    refused_migrate(binary, "Connect to the coordinator and run it again", *workers[0].arguments(), "--roles", "counts")


def test_while_the_coordinator_is_away_only_requests_with_keys_wait_for_it(binary, serve, client, tmp_path):
    with available(Citus) as cluster:
        database = distribute(binary, cluster.create_database())
        make_known(database)
        store = PostgresStore(Database(cluster.workers[0], database.name), tmp_path)
        counts = client(serve(store, "--roles", "counts"))
        items, key = [counts.new_item() for _ in range(20)], new_key()
        cluster.coordinator.stop("immediate")
        assert [counts.increase(item).json()["value"] for item in items] == [1] * 20
        assert_problem(counts.increase(items[0], key=key), 503, "STORE_UNAVAILABLE")
        cluster.coordinator.start()
        wait_until(lambda: counts.increase(items[0], key=key).status == 200, "the key is looked up")
        assert counts.value(items[0]) == 2
