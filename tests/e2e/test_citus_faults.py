"""Faults of a Citus cluster under load: nodes die, shards move, a worker is added. Sums stay exact throughout.

Every change has an Idempotency-Key, and items and keys are spread over both workers, so almost every transaction is
committed in two phases. Skipped where pg_config finds no Citus.
"""

import contextlib
import time

import pytest

from engines.citus import Citus
from harness.available import available
from harness.citus import PREPARED, distribute, prepared_on_workers
from harness.load import Load
from harness.pauses import Pauses
from harness.stores import PostgresStore
from harness.waiting import wait_until

SHARDS_ON = "SELECT shardid FROM citus_shards WHERE table_name = 'count_values'::regclass AND nodeport = %s ORDER BY 1"


@pytest.fixture
def cluster():
    """A cluster that the test may do anything to. Transactions that a dead node left are ended every second."""
    with available(lambda: Citus(**{"citus.recover_2pc_interval": "1s"})) as nodes:
        yield nodes


@pytest.fixture
def database(cluster):
    """Empty, for an administrator. Quipu has a user of its own: its settings on the workers are not for others."""
    cluster.execute("CREATE ROLE quipu LOGIN")
    for worker in cluster.workers:
        worker.execute("CREATE ROLE quipu LOGIN")
    fresh = cluster.create_database()
    fresh.query("GRANT ALL ON SCHEMA public TO quipu")
    return fresh


@pytest.fixture
def quipus(database, binary):
    """The same for Quipu, with its tables."""
    return distribute(binary, database.of_user("quipu"))


@pytest.fixture
def server(serve, quipus, tmp_path):
    return serve(PostgresStore(quipus, tmp_path))


@pytest.fixture
def counts(server, client):
    return client(server)


@contextlib.contextmanager
def loaded(server, counts, database):
    """Load on both workers, with changes before and after the block; then the sums are checked."""
    items = [counts.new_item() for _ in range(20)]
    with Load(server.port, items, threads=8) as load, Pauses(load, server, database):
        load.wait_acknowledged(100)
        yield load
        load.wait_acknowledged(100)
    wait_until(lambda: prepared_on_workers(database) == 0, "every transaction has ended on every node")
    load.assert_settled(counts)
    print(load.availability())


def seconds_until_acknowledged(load):
    start = time.monotonic()
    load.wait_acknowledged(1)
    return time.monotonic() - start


def test_a_worker_that_is_killed_and_comes_back_loses_nothing(cluster, database, server, counts):
    with loaded(server, counts, database) as load:
        cluster.workers[0].stop("immediate")
        load.wait_refused(8)
        cluster.workers[0].start()
        print(f"served again {seconds_until_acknowledged(load):.2f} s after the worker answered")


# A worker that takes its time to prepare: deferred triggers run before a transaction is prepared. Emptying the table ends it.
BY_HAND = ("SET citus.enable_manual_changes_to_shards = on; SET citus.enable_ddl_propagation = off; "
           "SET citus.override_table_visibility = off; ")
SLOW = BY_HAND + """
    CREATE TABLE is_slow AS SELECT 1 AS one;
    GRANT SELECT ON is_slow TO quipu;
    CREATE FUNCTION wait_a_while() RETURNS trigger LANGUAGE plpgsql AS '
    BEGIN
        WHILE EXISTS (SELECT FROM is_slow) LOOP
            PERFORM pg_sleep(0.1);
        END LOOP;
        RETURN NULL;
    END';
    DO $$
    DECLARE shard regclass;
    BEGIN
        FOR shard IN SELECT oid FROM pg_class WHERE relname ~ '^count_values_[0-9]+$' LOOP
            EXECUTE format('CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON %s INITIALLY DEFERRED FOR EACH ROW '
                'EXECUTE FUNCTION wait_a_while()', shard);
        END LOOP;
    END $$"""
FAST = "DELETE FROM is_slow"


def test_a_coordinator_that_is_killed_between_the_two_phases_loses_nothing(cluster, database, server, counts):
    """One worker takes its time to prepare, so only the other one has prepared when the coordinator dies."""
    quick, slow = cluster.workers
    with loaded(server, counts, database) as load:
        slow.execute(SLOW, database.name)
        wait_until(lambda: prepared_on(quick, database) > 0, "a worker has prepared a transaction")
        cluster.coordinator.stop("immediate")
        load.wait_refused(8)
        slow.execute(FAST, database.name)
        cluster.coordinator.start()
        print(f"served again {seconds_until_acknowledged(load):.2f} s after the coordinator answered")


def prepared_on(node, database):
    with contextlib.closing(node.connect(database.name)) as connection, connection.cursor() as cursor:
        cursor.execute(PREPARED)
        return cursor.fetchone()[0]


def test_shards_move_under_load_and_the_sums_stay_exact(cluster, database, server, counts):
    old, new = cluster.workers
    with loaded(server, counts, database):
        for (shard,) in database.query(SHARDS_ON, (old.port,)):
            database.query(f"SELECT citus_move_shard_placement({shard}, '127.0.0.1', {old.port}, '127.0.0.1', {new.port}, "
                           "'force_logical')")
    assert database.query(SHARDS_ON, (old.port,)) == []


def test_a_worker_is_added_under_load_and_takes_its_share(cluster, database, server, counts, quipus, binary):
    with loaded(server, counts, database):
        added = cluster.add_worker(database)
        distribute(binary, quipus)
        database.query("SELECT citus_rebalance_start(shard_transfer_mode => 'force_logical')")
        database.query("SELECT citus_rebalance_wait()")
    assert database.query(SHARDS_ON, (added.port,)) != []
