"""What a Citus cluster costs and gives: the same three loads on one PostgreSQL, on a coordinator with one worker, and
with two, in the ways of cases.py. All nodes share this machine, so a cluster cannot be faster here; what the rows show
is how much processor time a change takes on the coordinator and on each worker, from which the gain on machines of
their own follows (docs/PERFORMANCE.md). Round trips are counted in seconds of their own, because counting is slow.

Citus is what the user has installed; pg_config (or $PG_CONFIG) says where."""

import os
import pathlib
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import gateway_cases
import loads
import unread_cases
from cases import INCREASE, ITEMS, Row
from servers import Failed, Missing, Nats, Postgres, Quipu, load_of_tests
from wire import Wire

USERS = gateway_cases.USERS
TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")

# What a server of the bench has; those of the tests save on memory and do not sync.
NODE_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "shared_preload_libraries": "citus,pg_stat_statements",
    "pg_stat_statements.max": "50000",  # each transaction that is prepared is a statement of its own
}
COUNT_SECONDS = 2
SHARDS = 8  # four for each of two workers

FILL = (
    f"INSERT INTO count_values (item_id) SELECT 'item-' || n FROM generate_series(1, {ITEMS}) n",
    "INSERT INTO rate_limit_store (user_id, rate_limit, time_window, last_refresh_time) SELECT 'user-' || n, "
    f"{gateway_cases.NO_LIMIT}, {gateway_cases.WINDOW_MIN}, now() FROM generate_series(1, {USERS}) n",
    # Conversations that have begun, and in this quarter of an hour: the beginning is dearer and rare. A span is the first
    # 28 bits of the time in milliseconds.
    "INSERT INTO conversations (user_id, other_id, last_span) SELECT a, b, left(lpad(to_hex((extract(epoch FROM now()) * 1000)"
    f"::int8), 12, '0'), 7) FROM generate_series(1, {USERS}) n, LATERAL (VALUES ('user-' || n, 'bench'), ('bench', 'user-' || n)) "
    "AS both_ways(a, b)",
    "VACUUM ANALYZE",
)


# -- stores --------------------------------------------------------------------------------------


class OneServer:
    """A database of the PostgreSQL that all cases share."""

    name = "PostgreSQL"

    def __init__(self, bench):
        self.server = bench.shared(Postgres)
        self.database = bench.new_database()
        self.url = self.server.create_database(self.database)
        self.node_pids = [self.server.process.pid]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def distribute(self, program):
        pass

    def query(self, *statements):
        return self.server.run(self.database, *statements)

    def count_statements(self, wanted):
        pass

    def worker_statements(self):
        return 0, 0


class ClusterOf:
    """A database of a private cluster."""

    def __init__(self, bench, workers, shards=SHARDS):
        self.name = f"Citus, {workers} worker{'s' * (workers > 1)}"
        self.data = tempfile.mkdtemp(dir=bench.root)
        tests = load_of_tests("citus")
        try:
            self.cluster = tests.Citus(workers, **NODE_SETTINGS, **{"citus.shard_count": str(shards)})
        except load_of_tests("server").Unavailable as e:
            raise Missing(str(e)) from e

    def __enter__(self):
        try:
            self.cluster.start()
            self.database = self.cluster.create_database()
            self.database.query("CREATE EXTENSION pg_stat_statements")
            self.count_statements(False)
        except BaseException:
            self.cluster.close()
            raise
        self.url = self.database.url
        self.node_pids = [server.pid for server in self.cluster.servers]
        return self

    def __exit__(self, *exception):
        self.cluster.close()

    def distribute(self, program):
        command = [program, "migrate", "--distribute", "--roles", "all", "--store", self.url, "--data", self.data]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"quipu migrate --distribute: {done.stderr.strip()}")

    def query(self, *statements):
        for statement in statements:
            rows = self.database.query(statement)
        return rows

    def count_statements(self, wanted):
        """Workers count what the coordinator asks of them, from the beginning, or do not."""
        for sql in (f"ALTER SYSTEM SET pg_stat_statements.track = '{'top' if wanted else 'none'}'",
                    "SELECT pg_reload_conf()", "SELECT pg_stat_statements_reset()"):
            self.database.on_workers(sql)

    def worker_statements(self):
        """How often the coordinator has asked a worker, and how many transactions it began there: one for each node
        that takes part, or more if it uses several connections to one. They begin with two statements in one round
        trip. Looking for deadlocks is no part of a batch."""
        begun = "FILTER (WHERE query LIKE 'BEGIN TRANSACTION%')"
        counts = self.database.on_workers(
            f"SELECT coalesce(sum(calls), 0)::int8, coalesce(sum(calls) {begun}, 0)::int8 FROM pg_stat_statements "
            "JOIN pg_database d ON d.oid = dbid WHERE d.datname = current_database() "
            "AND query NOT LIKE '%assign_distributed_transaction_id%' AND query NOT LIKE '%pg_stat_statements%' "
            "AND query NOT LIKE 'SELECT waiting_pid%'")
        return tuple(sum(rows[0][i] for rows in counts) for i in range(2))


def processor_us(pid):
    """Microseconds of processor time that a PostgreSQL server and all its sessions have used."""
    children = load_of_tests("process").children(pid)
    ticks = sum(map(int, stat_of(pid)[11:15]))  # its own, and those of sessions that have ended
    for child in children:
        try:
            ticks += sum(map(int, stat_of(child)[11:13]))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
    return ticks * TICK_US


def stat_of(pid):
    """The fields of /proc/PID/stat after the name, which may contain spaces."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


# -- loads ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """One kind of request, the metric label of its lanes, and the query that counts what it changed."""

    what: str
    request: tuple
    keys: int
    lane: str
    counted: str


LOADS = {
    "citus-counts": Load(f"increases over {ITEMS:,} items", INCREASE, ITEMS, 'lane="counts-write-',
                         "SELECT sum(current_value) FROM count_values"),
    "citus-sends": Load(f"sends over {USERS:,} users, NATS", gateway_cases.SEND, USERS, 'lane="gateway-',
                        "SELECT sum(current_count) FROM rate_limit_store"),
    "citus-messages": Load(f"messages to {USERS:,} users, NATS", unread_cases.SEND, USERS, 'lane="dialogs-write-',
                           "SELECT count(*) FROM messages"),
}


class Measured:
    """A Quipu on a store, and the best round of each load; `problems` collects everything that makes them worthless."""

    def __init__(self, bench, store):
        self.bench, self.store = bench, store
        self.best, self.trips, self.problems = {}, {}, []
        self.quipu = self.new_quipu(store.url)

    def new_quipu(self, url):
        bus = self.bench.shared(Nats).url
        options = ("--roles", "counts,gateway,dialogs", "--gateway-bus", bus, "--unread-bus", bus, "--cache", "none")
        return Quipu(self.bench.root, self.bench.quipu_program, url, options)

    def __enter__(self):
        self.store.distribute(self.bench.quipu_program)
        self.quipu.__enter__()
        try:
            self.store.query(*FILL)
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def batches(self, load, quipu=None):
        return (quipu or self.quipu).metric("quipu_batch_size_count", load.lane)

    def marks(self, load):
        """Everything that grows during a round."""
        nodes = [processor_us(pid) for pid in self.store.node_pids]
        return [int(self.store.query(load.counted)[0][0]), self.batches(load), *nodes]

    def measure(self, name):
        load = LOADS[name]
        self.store.query("VACUUM", "CHECKPOINT")
        loads.settle()
        before = self.marks(load)
        result = loads.wrk(f"{name} {self.store.name}", self.quipu.port, load.request, load.keys, self.bench.seconds)
        loads.settle()  # the last sends are confirmed
        counted, batches, *nodes = (after - old for after, old in zip(self.marks(load), before))
        done = result["requests"] - result["status_errors"]
        if result["status_errors"] or not done <= counted <= done + loads.WRK_CONNECTIONS:
            self.problems.append(f"{name}: {done} acknowledged, {result['status_errors']} refused, {counted} counted")
        round_ = {"per_s": result["per_s"], "batch": counted / batches, "node_us": [node / counted for node in nodes]}
        self.bench.say(f"{name}, {self.store.name}: {result['per_s']:,.0f}/s")
        if round_["per_s"] > self.best.get(name, {"per_s": 0})["per_s"]:
            self.best[name] = round_

    def count_trips(self):
        """Counts, with another Quipu behind a proxy, how often a batch waits for an answer: Quipu for the server that it
        talks to, and that one for workers."""
        port = urlsplit(self.store.url).port
        with Wire(port) as wire, self.new_quipu(self.store.url.replace(f":{port}/", f":{wire.port}/")) as quipu:
            for name, load in LOADS.items():
                self.store.count_statements(True)
                before = (self.batches(load, quipu), wire.turns, *self.store.worker_statements())
                loads.wrk(f"{name} {self.store.name}, counting", quipu.port, load.request, load.keys, COUNT_SECONDS)
                after = (self.batches(load, quipu), wire.turns, *self.store.worker_statements())
                batches, *counts = (new - old for new, old in zip(after, before))
                self.trips[name] = dict(zip(("quipu", "workers", "transactions"), (count / batches for count in counts)))
        self.store.count_statements(False)


def row_of(name, alone, cluster):
    """A cluster against one server; there is no floor, because all nodes share the same processors."""
    row = Row(f"{name}-{len(cluster.store.node_pids) - 1}", f"{LOADS[name].what}: {cluster.store.name} / PostgreSQL")
    ours, peers = cluster.best[name], alone.best[name]
    row.quipu, row.peer = f"{ours['per_s']:,.0f}/s", f"{peers['per_s']:,.0f}/s"
    row.ratio = f"{ours['per_s'] / peers['per_s']:.2f}x"
    row.values = {"cluster": {**ours, **cluster.trips[name]}, "alone": {**peers, **alone.trips[name]}}
    problems = alone.problems + cluster.problems
    row.ok = not problems
    coordinator, *workers = (f"{us:.0f}" for us in ours["node_us"])
    row.note = "; ".join([
        f"batches of {ours['batch']:.0f} instead of {peers['batch']:.0f}",
        "round trips a batch: {quipu:.1f} of Quipu, {workers:.1f} of the coordinator in {transactions:.1f} transactions on "
        "workers".format(**cluster.trips[name]) + f", on PostgreSQL {alone.trips[name]['quipu']:.1f} of Quipu",
        f"processor time a change: coordinator {coordinator} us, workers {' + '.join(workers)} us, "
        f"PostgreSQL alone {peers['node_us'][0]:.0f} us", *problems])
    return row


def citus(bench):
    with ExitStack() as stack:
        stores = [stack.enter_context(store) for store in
                  (OneServer(bench), ClusterOf(bench, 1), ClusterOf(bench, 2))]
        alone, *clusters = measured = [stack.enter_context(Measured(bench, store)) for store in stores]
        for one in measured:
            one.count_trips()
        for _ in range(bench.rounds):
            for name in LOADS:
                for one in measured:
                    one.measure(name)
        return [row_of(name, alone, cluster) for name in LOADS for cluster in clusters]


# -- any node ------------------------------------------------------------------------------------


class OnNodes:
    """Processes of `counts` on some nodes of a cluster, a node each, that share one load."""

    def __init__(self, bench, store, name, ports):
        self.bench, self.store, self.name = bench, store, name
        coordinator = urlsplit(store.url).port
        self.quipus = [Quipu(bench.root, bench.quipu_program, store.url.replace(f":{coordinator}/", f":{port}/"),
                             ("--roles", "counts")) for port in ports]
        self.best, self.problem = {"per_s": 0}, ""

    def sum(self):
        return int(self.store.query(LOADS["citus-counts"].counted)[0][0])

    def wrk(self, quipu):
        return loads.wrk(f"citus {self.name}", quipu.port, INCREASE, ITEMS, self.bench.seconds,
                         loads.WRK_CONNECTIONS // len(self.quipus))

    def measure(self):
        with ExitStack() as stack, ThreadPoolExecutor() as threads:
            for quipu in self.quipus:
                stack.enter_context(quipu)
            before = [self.sum(), *map(processor_us, self.store.node_pids)]
            results = list(threads.map(self.wrk, self.quipus))
            counted, *nodes = (new - old for new, old in zip([self.sum(), *map(processor_us, self.store.node_pids)], before))
        done = sum(result["requests"] - result["status_errors"] for result in results)
        refused = sum(result["status_errors"] for result in results)
        if refused or not done <= counted <= done + loads.WRK_CONNECTIONS:
            self.problem = f"{done} acknowledged, {refused} refused, {counted} counted"
        per_s = sum(result["per_s"] for result in results)
        self.bench.say(f"citus, {self.name}: {per_s:,.0f}/s")
        if per_s > self.best["per_s"]:
            self.best = {"per_s": per_s, "node_us": [node / counted for node in nodes]}

    def processor_time(self):
        return " + ".join(f"{us:.0f}" for us in self.best["node_us"]) + " us"


@contextmanager
def counts_on(cluster, bench):
    with cluster as store:
        store.distribute(bench.quipu_program)
        store.query(FILL[0], "VACUUM ANALYZE")
        yield store


def any_node(bench):
    """A process on the coordinator, then one on each of two workers, without the coordinator's help."""
    row = Row("citus-any-node", f"increases over {ITEMS:,} items, 2 workers: a process on each worker / one on the coordinator")
    with counts_on(ClusterOf(bench, 2), bench) as store:
        for name in ("schema_migrations", "operator_actions"):
            store.query(f"SELECT citus_add_local_table_to_metadata('{name}')")
        ports = [server.port for server in store.cluster.servers]
        one, each = OnNodes(bench, store, "coordinator", ports[:1]), OnNodes(bench, store, "workers", ports[1:])
        for _ in range(bench.rounds):
            for nodes in (one, each):
                nodes.measure()
    row.quipu, row.peer = f"{each.best['per_s']:,.0f}/s", f"{one.best['per_s']:,.0f}/s"
    row.ratio = f"{each.best['per_s'] / one.best['per_s']:.2f}x"
    row.values = {"workers": each.best, "coordinator": one.best}
    row.ok = not (one.problem or each.problem)
    row.note = "; ".join(filter(None, [
        "processor time a change on coordinator and workers: " + ", ".join(
            f"{nodes.processor_time()} from the {nodes.name}" for nodes in (one, each)),
        one.problem, each.problem]))
    return [row]


def shards(bench):
    """A batch is one statement for each shard that it touches, whatever the number of nodes: what do shards cost?"""
    rows = []
    for count in (2, 8, 32):
        with counts_on(ClusterOf(bench, 2, count), bench) as store:
            nodes = OnNodes(bench, store, f"{count} shards", [store.cluster.port])
            for _ in range(bench.rounds):
                nodes.measure()
        rows.append(Row(f"citus-shards-{count}", f"increases over {ITEMS:,} items, 2 workers, {count} shards",
                        quipu=f"{nodes.best['per_s']:,.0f}/s", values=nodes.best, ok=not nodes.problem))
        rows[-1].note = f"processor time a change on coordinator and workers: {nodes.processor_time()} {nodes.problem}"
    return rows


CASES = {"citus": citus, "citus-any-node": any_node, "citus-shards": shards}
