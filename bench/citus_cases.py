"""What a Citus cluster costs and gives: the same three loads on one PostgreSQL, on a coordinator with one worker, and
with two, in the ways of cases.py. All nodes share this machine, so a cluster cannot be faster here; what the rows show
is how much processor time a change takes on the coordinator and on the workers, from which the gain on machines of
their own follows (docs/PERFORMANCE.md).

Citus is what the user has installed; pg_config (or $PG_CONFIG) says where."""

import os
import pathlib
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass

import gateway_cases
import loads
import unread_cases
from cases import INCREASE, ITEMS, Row
from servers import Failed, Missing, Nats, Postgres, Quipu, load_of_tests

USERS = gateway_cases.USERS
TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")

# What a server of the bench has; those of the tests save on memory and do not sync.
NODE_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "citus.shard_count": "8",  # four for each worker
}

FILL = (
    f"INSERT INTO count_values (item_id) SELECT 'item-' || n FROM generate_series(1, {ITEMS}) n",
    "INSERT INTO rate_limit_store (user_id, rate_limit, time_window, last_refresh_time) SELECT 'user-' || n, "
    f"{gateway_cases.NO_LIMIT}, {gateway_cases.WINDOW_MIN}, now() FROM generate_series(1, {USERS}) n",
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

    def worker_transactions(self):
        return 0


class ClusterOf:
    """A database of a private cluster."""

    def __init__(self, bench, workers):
        self.name = f"Citus, {workers} worker{'s' * (workers > 1)}"
        tests = load_of_tests("citus")
        try:
            self.cluster = tests.Citus(workers, **NODE_SETTINGS)
        except load_of_tests("server").Unavailable as e:
            raise Missing(str(e)) from e

    def __enter__(self):
        try:
            self.cluster.start()
            self.database = self.cluster.create_database()
        except BaseException:
            self.cluster.close()
            raise
        self.url = self.database.url
        self.node_pids = [server.pid for server in self.cluster.servers]
        return self

    def __exit__(self, *exception):
        self.cluster.close()

    def distribute(self, program):
        command = [program, "migrate", "--distribute", "--roles", "counts,gateway,dialogs", "--store", self.url]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"quipu migrate --distribute: {done.stderr.strip()}")

    def query(self, *statements):
        for statement in statements:
            rows = self.database.query(statement)
        return rows

    def worker_transactions(self):
        """How many transactions the workers have committed for this database."""
        count = f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{self.database.name}'"
        return sum(rows[0][0] for rows in self.database.on_workers(count))


def processor_us(pid):
    """Microseconds of processor time that a PostgreSQL server and all its sessions have used."""
    children = load_of_tests("process").children(pid)
    ticks = sum(map(int, stat_of(pid)[11:15]))  # its own, and those of sessions that have ended
    for child in children:
        try:
            ticks += sum(map(int, stat_of(child)[11:13]))
        except FileNotFoundError:
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
        self.best, self.problems = {}, []
        bus = bench.shared(Nats).url
        options = ("--roles", "counts,gateway,dialogs", "--gateway-bus", bus, "--unread-bus", bus, "--cache", "none")
        self.quipu = Quipu(bench.root, bench.quipu_program, store.url, options)

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

    def marks(self, load):
        """Everything that grows during a round."""
        batches = self.quipu.metric("quipu_batch_size_count", load.lane)
        nodes = [processor_us(pid) for pid in self.store.node_pids]
        return [int(self.store.query(load.counted)[0][0]), batches, self.store.worker_transactions(), *nodes]

    def measure(self, name):
        load = LOADS[name]
        self.store.query("VACUUM", "CHECKPOINT")
        loads.settle(1)  # statistics of the workers arrive within a second
        before = self.marks(load)
        result = loads.wrk(f"{name} {self.store.name}", self.quipu.port, load.request, load.keys, self.bench.seconds)
        time.sleep(1)
        counted, batches, transactions, coordinator, *workers = (
            after - old for after, old in zip(self.marks(load), before))
        done = result["requests"] - result["status_errors"]
        if result["status_errors"] or not done <= counted <= done + loads.WRK_CONNECTIONS:
            self.problems.append(f"{name}: {done} acknowledged, {result['status_errors']} refused, {counted} counted")
        round_ = {"per_s": result["per_s"], "batch": counted / batches, "transactions": transactions / batches,
                  "coordinator_us": coordinator / counted, "workers_us": sum(workers) / counted}
        self.bench.say(f"{name}, {self.store.name}: {result['per_s']:,.0f}/s")
        if round_["per_s"] > self.best.get(name, {"per_s": 0})["per_s"]:
            self.best[name] = round_


def row_of(name, alone, cluster):
    """A cluster against one server; there is no floor, because all nodes share the same processors."""
    row = Row(f"{name}-{len(cluster.store.node_pids) - 1}", f"{LOADS[name].what}: {cluster.store.name} / PostgreSQL")
    ours, peers = cluster.best[name], alone.best[name]
    row.quipu, row.peer = f"{ours['per_s']:,.0f}/s", f"{peers['per_s']:,.0f}/s"
    row.ratio = f"{ours['per_s'] / peers['per_s']:.2f}x"
    row.values = {"cluster": ours, "alone": peers}
    problems = alone.problems + cluster.problems
    row.ok = not problems
    row.note = "; ".join([
        f"batches of {ours['batch']:.0f} instead of {peers['batch']:.0f}, "
        f"{ours['transactions']:.1f} transactions of workers a batch; processor time a change: "
        f"coordinator {ours['coordinator_us']:.0f} us, workers {ours['workers_us']:.0f} us, "
        f"PostgreSQL alone {peers['coordinator_us']:.0f} us", *problems])
    return row


def citus(bench):
    with ExitStack() as stack:
        stores = [stack.enter_context(store) for store in
                  (OneServer(bench), ClusterOf(bench, 1), ClusterOf(bench, 2))]
        alone, *clusters = (stack.enter_context(Measured(bench, store)) for store in stores)
        for _ in range(bench.rounds):
            for name in LOADS:
                for measured in (alone, *clusters):
                    measured.measure(name)
        return [row_of(name, alone, cluster) for name in LOADS for cluster in clusters]


CASES = {"citus": citus}
