"""How a Citus cluster commits: a change of one shard and of the coordinator's own tables happens on both nodes or on none.

A node is held in the middle of a commit by a standby that does not exist: it has written the end of its transaction, waits for
the standby, and answers nobody. Skipped where pg_config finds no Citus.
"""

import bisect
import concurrent.futures
import contextlib
import re
import threading

import pytest

from engines.citus import Citus
from harness.available import available
from harness.citus import distribute, prepared_on_workers
from harness.counts import new_key
from harness.everything import post, use_every_service
from harness.stores import PostgresStore
from harness.unread import new_user
from harness.waiting import wait_until

SETTINGS = {"citus.recover_2pc_interval": "1s", "log_statement": "all", "log_line_prefix": "%m [%p] %d %a|"}
HELD = "SELECT pid, application_name FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
ON_COORDINATOR = ("SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' "
                  "AND oid NOT IN (SELECT logicalrelid FROM pg_dist_partition)")


@pytest.fixture(scope="module")
def cluster():
    """Its nodes may be held and killed; each test leaves them running. Their logs show every statement."""
    with available(lambda: Citus(**SETTINGS)) as nodes:
        yield nodes


@pytest.fixture
def database(cluster, binary):
    return distribute(binary, cluster.create_database())


@pytest.fixture
def server(serve, database, tmp_path):
    return serve(PostgresStore(database, tmp_path), "--roles", "all")


# ---- every transaction of every service, by the logs of the nodes

RECORD = re.compile(r"(?P<at>\S+ \S+) \S+ \[(?P<pid>\d+)\] (?P<database>\S*) (?P<who>.*?)\|LOG:  (?:statement|execute [^:]+): "
                    r"(?P<sql>.*)")
BEGINS, ENDS = re.compile(r"BEGIN\b"), re.compile(r"(COMMIT|ROLLBACK)$|PREPARE TRANSACTION")
SHARD = re.compile(r"^(?:WITH .* )?(?:UPDATE|INSERT INTO|DELETE FROM|COPY) public\.")


class Transaction:
    """What one session did from its BEGIN to its end."""

    def __init__(self, record):
        self.pid, self.who = int(record["pid"]), record["who"]
        self.began = self.ended = record["at"]
        self.statements = []

    def add(self, record):
        self.ended = record["at"]
        self.statements.append(record["sql"])

    def coordinator(self):
        """The session of the coordinator that had this worker do this."""
        gpid = re.fullmatch(r"citus_internal gpid=(\d+)", self.who)
        return int(gpid[1]) % 10**10 if gpid else None

    def tables(self, names):
        """Those of `names` that it changed."""
        changes = re.compile(rf"(?:INSERT INTO|UPDATE|DELETE FROM) ({'|'.join(names)})\b")
        return {name for sql in self.statements for name in changes.findall(sql)}


def transactions(node, database):
    """The finished transactions in a node's log, in the order of their beginnings."""
    open_ones, finished = {}, []
    for record in map(RECORD.match, node.log.read_text(errors="replace").splitlines()):
        if not record or record["database"] != database.name:
            continue
        if BEGINS.match(record["sql"]):
            open_ones[record["pid"]] = Transaction(record)
        elif record["pid"] in open_ones:
            open_ones[record["pid"]].add(record)
            if ENDS.match(record["sql"]):
                finished.append(open_ones.pop(record["pid"]))
    return sorted(finished, key=lambda one: one.began)


class Sessions:
    """The coordinator's transactions, to be found by a worker's part of them."""

    def __init__(self, found):
        self._by_pid = {}
        for one in found:
            self._by_pid.setdefault(one.pid, []).append(one)

    def whole(self, part):
        ours = self._by_pid.get(part.coordinator(), [])
        before = bisect.bisect_right([one.began for one in ours], part.began)
        return ours[before - 1] if before and part.began <= ours[before - 1].ended else None


def test_a_transaction_of_one_shard_and_the_coordinator_is_prepared(cluster, database, server):
    """In every service, and also where no Idempotency-Key adds a second shard."""
    use_every_service(server)
    grant = {"user_id": "u", "stock_keeping_unit": "item", "reason": "purchase", "purchase_id": "p_1"}
    post(server, "/v1/entitlements/revokes", grant, key=new_key())
    first, second = [post(server, "/dialogs/send", {"receiverId": "carol", "text": "Hello!"}).json()["messageId"] for _ in "12"]
    post(server, f"/dialogs/read/{first}", None, user="carol")
    post(server, "/dialogs/read-up-to", {"senderId": "alice", "messageId": second}, user="carol")
    for service, user in (("dialogs", "carol"), ("counters", "carol"), ("entitlements", "u"), ("gateway", "1001")):
        post(server, f"/operator/erase/{service}", {"userId": user})

    stays = [name for (name,) in database.query(ON_COORDINATOR)]
    sessions = Sessions(transactions(cluster.coordinator, database))
    both, alone = set(), []
    for part in (part for worker in cluster.workers for part in transactions(worker, database)):
        whole = sessions.whole(part)
        if whole and any(SHARD.match(sql) for sql in part.statements):
            both |= whole.tables(stays)
            if part.statements[-1] == "COMMIT" and whole.tables(stays):
                alone.append((whole.statements, part.statements))
    assert alone == []
    assert both >= {"dialog_outbox_events", "outbox_events", "queued_messages", "operator_actions"}


# ---- nodes that die in the middle


@contextlib.contextmanager
def held(*nodes):
    """While the block runs, these nodes write the end of a transaction and then do not answer. One that is killed in the
    meantime must run again when the block ends."""
    over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for node in nodes:
            node.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            node.execute("SELECT pg_reload_conf()")
        try:
            for node in nodes:
                pool.submit(write_until, over, node)
            for node in nodes:
                wait_until(lambda node=node: held_on(node, "probe"), "commits are held")
            yield
        finally:
            over.set()
            for node in nodes:
                forget_standby(node)
                node.execute("SELECT pg_reload_conf()")


def write_until(over, node):
    """Is held as soon as the node has noticed its new setting."""
    with contextlib.closing(node.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET application_name = 'probe'")
        while not over.is_set():
            cursor.execute("SELECT pg_logical_emit_message(true, 'probe', '')")


def forget_standby(node):
    """From the next start on, or when the settings are read again."""
    node.execute("ALTER SYSTEM RESET synchronous_standby_names")


def held_on(node, who):
    """The sessions of this name that are held."""
    with contextlib.closing(node.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(HELD)
        return {pid for pid, name in cursor.fetchall() if name.startswith(who)}


def preparer(database, table, row):
    """The session of the coordinator that has prepared a change of this row; its pid is in the name of what it prepared."""
    asked = f"SELECT split_part(gid, '_', 3) FROM %s JOIN pg_prepared_xacts ON transaction = xmax WHERE {row}"
    found = database.query("SELECT result::int FROM run_command_on_placements(%s, %s) WHERE result <> ''", (table, asked))
    return {pid for (pid,) in found}


@pytest.fixture
def background():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture
def unread(server, unread_client):
    return unread_client(server)


def is_read(database, user, message):
    ((value,),) = database.query("SELECT is_read FROM messages WHERE receiver_id = %s AND id = %s", (user, message))
    return value


def read_events(database, user):
    ((count,),) = database.query("SELECT count(*) FROM dialog_outbox_events WHERE event_type = 'MessageReadEvent' "
                                 "AND aggregate_key = %s", (user,))
    return count


def test_a_coordinator_that_dies_while_a_worker_ends_its_part_has_changed_nothing(
    cluster, database, server, unread, background
):
    """A message that is read without its event would be counted as unread for ever."""
    user = new_user()
    message = unread.sent(new_user(), user)
    unread.wait_count(user, 1)
    with held(*cluster.workers):
        answer = background(server.ask, "POST", f"/dialogs/read/{message}", None, {"X-User-Id": user})
        wait_until(lambda: any(held_on(worker, "citus_internal") for worker in cluster.workers), "a worker ends its part")
        cluster.coordinator.stop("immediate")
    assert answer.result().status == 503
    cluster.coordinator.start()
    wait_until(lambda: prepared_on_workers(database) == 0, "every transaction has ended on every node")
    assert (is_read(database, user, message), read_events(database, user)) == (False, 0)
    wait_until(lambda: unread.read(user, message).status == 200, "the message is read")
    unread.wait_count(user, 0)


def served(answer):
    return answer if answer.status == 200 else None


def test_a_coordinator_that_dies_after_its_commit_has_changed_everything(
    cluster, database, server, unread, client, background
):
    """The workers have prepared their parts, and nobody has told them to commit. One change has an Idempotency-Key, the
    other has none."""
    counts = client(server)
    item, key, user = counts.new_item(), new_key(), new_user()
    message = unread.sent(new_user(), user)
    unread.wait_count(user, 1)
    with held(cluster.coordinator):
        answers = [background(server.ask, "POST", f"/api/v1/counts/{item}/increase", None, {"Idempotency-Key": key}),
                   background(server.ask, "POST", f"/dialogs/read/{message}", None, {"X-User-Id": user})]
        for table, row in (("count_values", f"item_id = '{item}'"), ("messages", f"id = '{message}'")):
            wait_until(lambda table=table, row=row: preparer(database, table, row) & held_on(cluster.coordinator, "quipu"),
                       "the change is prepared on a worker and committed on the coordinator")
        assert (database.value(item), is_read(database, user, message)) == (0, False)
        forget_standby(cluster.coordinator)
        cluster.coordinator.stop("immediate")
        cluster.coordinator.start()
    assert [(answer.result().status, answer.result().code) for answer in answers] == [(503, "OUTCOME_UNKNOWN")] * 2
    wait_until(lambda: prepared_on_workers(database) == 0, "every transaction has ended on every node")
    assert (database.value(item), is_read(database, user, message), read_events(database, user)) == (1, True, 1)
    again = wait_until(lambda: served(counts.increase(item, key=key)), "the change is answered")
    assert (again.json()["value"], again.header("idempotent-replayed")) == (1, "true")
    unread.wait_count(user, 0)


def test_while_a_worker_is_away_users_of_the_other_one_read_their_messages(cluster, database, unread):
    """Asking for two phases needs no node that the change does not need."""
    here, away = cluster.workers
    users = [user for user in (new_user() for _ in range(20)) if worker_of(database, user) == here.port]
    messages = [unread.sent(user, user) for user in users]
    away.stop("immediate")
    try:
        assert {unread.read(user, message).status for user, message in zip(users, messages)} == {200}
    finally:
        away.start()


def worker_of(database, user):
    ((port,),) = database.query("SELECT nodeport FROM citus_shards WHERE shardid = "
                                "get_shard_id_for_distribution_column('messages', %s)", (user,))
    return port
