"""`quipu migrate --distribute`: the tables of every service on the nodes of a Citus cluster.

The stories of the services on a cluster are those of the other files, which `make test-citus` runs there. Tests that
need a cluster are skipped where pg_config finds no Citus.
"""

import json
import pathlib
import re
import shlex

import pytest

from engines import shared
from harness.available import available
from harness.citus import distribute, migrate
from harness.everything import post, use_every_service
from harness.quipu import run
from harness.stores import PostgresStore
from harness.verify import verify

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/SCALING.md"
ALL = ("--roles", "all")
PLACED = {
    "conversations": "user_id", "count_values": "item_id", "counter_messages": "user_id", "counters": "user_id",
    "entitlement_audit": "user_id", "entitlement_sources": "user_id", "entitlements": "user_id",
    "idempotency_keys": "key", "messages": "receiver_id", "rate_limit_store": "user_id",
}
PLACES = ("SELECT table_name::text, distribution_column FROM citus_tables "
          "WHERE table_name::text !~ '^entitlement_audit_'")
TABLES = ("SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
          "AND NOT relispartition AND relname !~ '^citus_'")
MONTHS = "SELECT count(*) FROM citus_tables WHERE table_name::text ~ '^entitlement_audit_y'"
NOT_PREPARED = "not prepared for it; run \\\"quipu migrate --distribute\\\""


@pytest.fixture
def plain():
    """A database of a PostgreSQL without Citus, also in make test-citus."""
    with available(shared.databases) as server:
        database = server.create_database()
        yield database
        database.drop()


@pytest.fixture
def bare(bare_cluster):
    """A database of the cluster without tables."""
    database = bare_cluster.create_database()
    yield database
    database.drop()


def test_rows_of_every_service_are_there_after_the_tables_are_distributed(bare, serve, client, binary, tmp_path):
    """What the tables held before counts and is found, and the requests that wrote it are recognised."""
    store = PostgresStore(bare, tmp_path)
    server = serve(store, *ALL)
    keyed = use_every_service(server)
    answers = [post(server, *request).body for request in keyed]
    items = [client(server).new_item(initial) for initial in range(40)]
    assert NOT_PREPARED in server.log_text()
    server.stop()
    distribute(binary, bare)
    assert dict(bare.query(PLACES)) == PLACED
    server = serve(store, *ALL)
    checked = verify(binary, server)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [bare.value(item) for item in items] == [*range(40)]
    for request, answer in zip(keyed, answers):
        again = post(server, *request)
        assert again.body == answer and again.header("Idempotent-Replayed") == "true", request
    assert server.ask("GET", "/counters/user/bob/UnreadMessages").json()["count"] == 1
    assert bare.query("SELECT count(*) FROM entitlement_audit") == [(1,)]


def test_a_copy_fills_tables_that_are_distributed(bare, sqlite_store, serve, client, binary, tmp_path):
    server = serve(sqlite_store, *ALL)
    keyed = use_every_service(server)
    items = [client(server).new_item(initial) for initial in range(40)]
    server.stop()
    distribute(binary, bare)
    copied = run(binary, "copy", "--from", f"sqlite:{sqlite_store.data}", "--to", bare.url)
    assert copied.returncode == 0, copied.stderr
    server = serve(PostgresStore(bare, tmp_path), *ALL)
    checked = verify(binary, server)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [bare.value(item) for item in items] == [*range(40)]
    assert [post(server, *request).header("Idempotent-Replayed") for request in keyed] == ["true"] * len(keyed)


def test_a_distributed_database_is_said_to_be_nothing_special(bare, serve, binary, tmp_path):
    distribute(binary, bare)
    server = serve(PostgresStore(bare, tmp_path))
    assert NOT_PREPARED not in server.log_text()


def test_distributing_again_does_nothing_and_a_dry_run_never_does(bare, binary):
    planned = migrate(binary, bare, "--distribute", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert bare.query(PLACES) == []
    lines = migrate(binary, bare, "--distribute", "--dry-run", "--json").stdout.splitlines()
    assert [json.loads(line)["sql"] + ";" for line in lines] == planned.stdout.splitlines()
    done = migrate(binary, bare, "--distribute")
    assert done.stdout == planned.stdout + "the schema is up to date and distributed\n"
    assert dict(bare.query(PLACES)) == PLACED
    again = migrate(binary, bare, "--distribute")
    assert (again.returncode, again.stdout) == (0, "the schema is up to date and distributed\n")


def test_distributing_goes_on_where_it_was_interrupted(bare, binary):
    """After its rows were copied to the shards, and before the originals were truncated."""
    assert migrate(binary, bare).returncode == 0
    bare.query("INSERT INTO count_values (item_id, current_value) VALUES ('a', 7)")
    bare.query("SELECT create_distributed_table('count_values', 'item_id')")
    originals = "SELECT pg_relation_size('count_values')"
    assert bare.query(originals) > [(0,)]
    distribute(binary, bare)
    assert bare.query(originals) == [(0,)]
    assert bare.query("SELECT current_value FROM count_values") == [(7,)]


def test_the_command_of_the_page_distributes_the_tables(bare, binary, tmp_path):
    (command,) = re.findall(r"^ *(quipu migrate --distribute .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    words = [bare.url if word.startswith("postgres://") else word for word in shlex.split(command)[1:]]
    done = run(binary, *words, "--deadline", "1m", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "the schema is up to date and distributed"), done.stderr
    assert dict(bare.query(PLACES)) == PLACED


def test_the_page_says_of_every_table_where_it_is(bare, binary):
    """A table that a later version adds is spread or named with a reason, never forgotten."""
    distribute(binary, bare)
    spread, stays = (names_in_table(head) for head in ("table | spread by", "table | why"))
    tables = {name for (name,) in bare.query(TABLES)}
    assert spread == PLACED.keys()
    assert stays == tables - PLACED.keys()


def names_in_table(head):
    """The names in the first column of a table of the page."""
    rows = PAGE.read_text(encoding="utf-8").split(f"| {head} |\n")[1].split("\n\n")[0].splitlines()[1:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_one_user_is_on_one_node_in_every_service(bare, binary):
    distribute(binary, bare)
    assert len(bare.query("SELECT DISTINCT colocation_id FROM citus_tables")) == 1


def test_workers_lock_as_briefly_and_in_the_same_order_as_sessions_do(bare, binary):
    distribute(binary, bare)
    for node in bare.on_workers("SELECT current_setting('lock_timeout'), current_setting('enable_hashjoin'), "
                                "current_setting('enable_seqscan')"):
        assert node == [("100ms", "off", "off")]


def test_later_months_of_the_audit_are_distributed_too(bare, binary):
    distribute(binary, bare)
    ((months,),) = bare.query(MONTHS)
    bare.query("INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, version, step, reason) "
               "SELECT '2031-05-03', 'user-' || n, 'unit', 'GRANTED', 1, 0, 'gift' FROM generate_series(1, 20) n")
    bare.query("SELECT quipu_make_audit_month('2031-05-01')")
    assert bare.query(MONTHS) == [(months + 1,)]
    assert bare.query("SELECT count(*) FROM entitlement_audit_y2031m05") == [(20,)]
    bare.query("SELECT quipu_drop_audit_months(-1000)")
    assert bare.query(MONTHS) == [(0,)]


def test_a_postgresql_without_citus_is_left_alone(plain, binary):
    done = migrate(binary, plain, "--distribute")
    assert done.returncode == 1
    assert "the database has no Citus" in done.stderr


def test_a_dry_run_of_anything_else_is_refused(plain, binary):
    done = migrate(binary, plain, "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--dry-run requires --distribute" in done.stderr
    done = migrate(binary, plain, "distribute")
    assert (done.returncode, done.stdout) == (2, "")
    assert "migrate takes options only" in done.stderr
