"""What is measured: one function for each group of rows in the table; `CASES` names them.

A case starts the servers it needs, alternates between Quipu and its peer (the machine is never quite quiet, so neither
gets all the good moments), keeps the best round of each, and checks that everything acknowledged is in the
database."""

import http.client
import json
import os
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Optional

import loads
from servers import Failed, Missing, Postgres, Quipu, Redis, SlowDiskPostgres, Webdis

ITEMS = 10_000
INCREASE = ("POST", "/api/v1/counts/item-", "/increase")
REDIS_INCREASE = ("GET", "/INCR/item-", "")

# The seed's statement unchanged; the peer's items are named 1 to 10000 so that pgbench can fill in :id.
SEED_UPDATE = (
    "UPDATE count_values SET current_value = current_value + 1, last_updated_at = NOW() "
    "WHERE item_id = :id RETURNING current_value;\n"
)


@dataclass
class Row:
    """One line of the table. `ok` is None for a row that was skipped; `note` then says why."""

    name: str
    what: str
    quipu: str = "-"
    peer: str = "-"
    ratio: str = "-"
    at_least: str = "-"
    ok: Optional[bool] = None
    note: str = ""
    values: dict = field(default_factory=dict)

    def as_dict(self):
        return asdict(self)


@dataclass
class Bench:
    """What all cases share: the settings, the temporary folder, and servers that are started when they are first
    needed."""

    root: str
    quipu_program: str
    openloop_program: str
    seconds: int
    rounds: int
    latency_seconds: int
    overload_connections: int
    servers: ExitStack
    say: object
    started: dict = field(default_factory=dict)
    databases: int = 0

    def shared(self, kind):
        if kind not in self.started:
            self.started[kind] = self.servers.enter_context(kind(self.root))
        return self.started[kind]

    def new_database(self):
        self.databases += 1
        return f"quipu_{self.databases}"


class PostgresCounts:
    """A Quipu on a database of its own, with ITEMS items; SQL reads the database behind the program's back."""

    def __init__(self, bench, options=(), server=Postgres, items=ITEMS):
        self.postgres = bench.shared(server)
        self.items = items
        self.database = bench.new_database()
        url = self.postgres.create_database(self.database)
        self.quipu = Quipu(bench.root, bench.quipu_program, url, options)

    def __enter__(self):
        self.quipu.__enter__()
        try:
            self.postgres.run(
                self.database,
                f"INSERT INTO count_values (item_id) SELECT 'item-' || n FROM generate_series(1, {self.items}) n",
                "VACUUM ANALYZE count_values",
            )
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def tidy(self):
        self.postgres.run(self.database, "VACUUM count_values", "CHECKPOINT")
        loads.settle()

    def values(self):
        return dict(self.postgres.run(self.database, "SELECT item_id, current_value FROM count_values"))

    def storage(self):
        """Returns storage options such as the fill factor, which the peer's table should have, too."""
        rows = self.postgres.run(
            self.database, "SELECT array_to_string(reloptions, ',') FROM pg_class WHERE oid = 'count_values'::regclass"
        )
        return rows[0][0] or ""


class SlowDiskCounts(PostgresCounts):
    """The same on a disk whose sync takes 1 ms."""

    def __init__(self, bench, options=()):
        super().__init__(bench, options, SlowDiskPostgres)


class SqliteCounts:
    """A Quipu on its default store, with ITEMS items, created and read through its own API."""

    def __init__(self, bench, options=()):
        self.quipu = Quipu(bench.root, bench.quipu_program, None, options)

    def __enter__(self):
        self.quipu.__enter__()
        try:
            create_items(self.quipu.port)
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def tidy(self):
        loads.settle()

    def values(self):
        result = {}
        connection = http.client.HTTPConnection("127.0.0.1", self.quipu.port, timeout=30)
        for first in range(1, ITEMS + 1, 1000):
            asked = "&".join(f"itemIds=item-{n}" for n in range(first, first + 1000))
            connection.request("GET", f"/api/v1/internal/counts?{asked}")
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise Failed(f"reading counts: {response.status} {body[:200]}")
            result.update((row["itemId"], row["currentValue"]) for row in json.loads(body))
        connection.close()
        return result


def create_items(port, threads=32):
    errors = []

    def create(numbers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for n in numbers:
            body = json.dumps({"itemId": f"item-{n}"})
            connection.request("POST", "/api/v1/internal/counts", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status != 201:
                raise Failed(f"creating item-{n}: {response.status}")
        connection.close()

    def worker(numbers):
        try:
            create(numbers)
        except (OSError, http.client.HTTPException, Failed) as e:
            errors.append(e)

    workers = [threading.Thread(target=worker, args=(range(1 + i, ITEMS + 1, threads),)) for i in range(threads)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    if errors:
        raise Failed(f"items could not be made: {errors[0]}")


# -- throughput against a peer -------------------------------------------------------------------


def alternate(rounds, peers, quipu):
    """Returns (the peer's best figure, its variant, Quipu's best figure). `peers` maps a variant's name to the
    function that measures it: the first round tries them all, later rounds only the best so far. Either side may be
    missing (None)."""
    best = {}
    quipu_best = None
    for number in range(rounds):
        variants = list(peers) if number == 0 else [max(best, key=best.get)] if best else []
        for variant in variants:
            best[variant] = max(best.get(variant, 0.0), peers[variant]())
        if quipu:
            quipu_best = max(quipu_best or 0.0, quipu())
    variant = max(best, key=best.get) if best else ""
    return best.get(variant), variant, quipu_best


class QuipuThroughput:
    """Rounds of wrk against one Quipu; `problems` collects everything that makes the figure worthless."""

    in_flight_max = loads.WRK_CONNECTIONS  # requests without an answer when the load ends
    changes = 1  # in one request

    def __init__(self, bench, counts, label, items):
        self.bench, self.counts, self.label, self.items = bench, counts, label, items
        self.problems = []
        self.resident_kib = 0

    def ask(self):
        return loads.wrk(self.label, self.counts.quipu.port, INCREASE, self.items, self.bench.seconds)

    def measure(self):
        """Returns changes per second."""
        self.counts.tidy()
        before = sum(self.counts.values().values())
        with loads.ResidentMemory(self.counts.quipu) as memory:
            result = self.ask()
        self.resident_kib = max(self.resident_kib, memory.max_kib)
        self.check(result, before)
        per_s = result["per_s"] * self.changes
        self.bench.say(f"{self.label}: quipu {per_s:,.0f}/s")
        return per_s

    def check(self, result, before):
        """Checks that every answer is an increase; requests in flight when wrk stops may or may not be."""
        if result["status_errors"] or result["socket_errors"]:
            self.problems.append(f"{result['status_errors']} refused, {result['socket_errors']} socket errors")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            added = sum(self.counts.values().values()) - before
            least = (result["requests"] - result["status_errors"]) * self.changes
            if least <= added <= least + self.in_flight_max * self.changes:
                return
            time.sleep(0.5)
        self.problems.append(f"{least} acknowledged but {added} in the database")


def throughput_row(row, peer, variant, quipu, floor, problems):
    row.at_least = f"{floor:g}x"
    row.values = {"quipu_per_s": quipu, "peer_per_s": peer, "peer_variant": variant, "floor": floor}
    notes = [row.note] if row.note else []
    if peer:
        row.peer = f"{peer:,.0f}/s ({variant})"
    if quipu:
        row.quipu = f"{quipu:,.0f}/s"
    if peer and quipu:
        row.ratio = f"{quipu / peer:.2f}x"
        row.values["ratio"] = quipu / peer
        row.ok = quipu / peer >= floor and not problems
    row.note = "; ".join(notes + problems)
    return row


def open_counts(stack, kind, bench, row, options=()):
    """Returns the counts, or None with the reason in the row: the peer is still worth measuring."""
    try:
        return stack.enter_context(kind(bench, options))
    except Missing as e:
        row.note = f"skipped: {e}"
        return None


def make_peer_table(postgres, storage, items=ITEMS, database="peer"):
    """The same table as Quipu's, in a database of its own on the same server."""
    if not postgres.run("postgres", f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
        postgres.create_database(database)
    postgres.run(
        database,
        "DROP TABLE IF EXISTS count_values",
        'CREATE TABLE count_values (item_id text COLLATE "C" PRIMARY KEY, current_value bigint NOT NULL DEFAULT 0, '
        "last_updated_at timestamptz NOT NULL DEFAULT now())" + (f" WITH ({storage})" if storage else ""),
        f"INSERT INTO count_values (item_id) SELECT n::text FROM generate_series(1, {items}) n",
        "VACUUM ANALYZE count_values",
    )


def pgbench_variants(bench, postgres, label, items, clients, storage):
    make_peer_table(postgres, storage)
    script = os.path.join(bench.root, f"increase-{items}.pgbench")
    with open(script, "w") as f:
        f.write(f"\\set id random(1, {items})\n" + SEED_UPDATE)

    def measure(count):
        postgres.run("peer", "VACUUM count_values", "CHECKPOINT")
        loads.settle()
        result = loads.pgbench(label, postgres, "peer", script, count, bench.seconds)
        bench.say(f"{label}: pgbench, {count} client{'s' * (count > 1)} {result['per_s']:,.0f}/s")
        return result["per_s"]

    return {f"{count} client{'s' * (count > 1)}": lambda count=count: measure(count) for count in clients}


def against_pgbench(bench, name, what, items, clients, floor, kind=PostgresCounts, server=Postgres,
                    throughput=QuipuThroughput):
    row = Row(name, what)
    with ExitStack() as stack:
        counts = open_counts(stack, kind, bench, row)
        quipu = throughput(bench, counts, name, items) if counts else None
        storage = counts.storage() if counts else ""
        peers = pgbench_variants(bench, bench.shared(server), name, items, clients, storage)
        best = alternate(bench.rounds, peers, quipu and quipu.measure)
        return [throughput_row(row, *best, floor, quipu.problems if quipu else [])]


def spread_postgres(bench):
    what = f"increases over {ITEMS:,} items, PostgreSQL, 256 connections / pgbench, the seed's UPDATE"
    return against_pgbench(bench, "spread-postgres", what, ITEMS, (8, 32, 100), 4)


def one_postgres(bench):
    what = "increases on ONE item, PostgreSQL, 256 connections / pgbench on one row"
    return against_pgbench(bench, "one-postgres", what, 1, (1, 8, 32, 100), 40)


def spread_slow_disk(bench):
    what = f"the same over {ITEMS:,} items where a sync takes 1 ms"
    return against_pgbench(
        bench, "spread-slow-disk", what, ITEMS, (8, 32, 100), 4, SlowDiskCounts, SlowDiskPostgres)


def one_slow_disk(bench):
    what = "the same on ONE item where a sync takes 1 ms"
    return against_pgbench(
        bench, "one-slow-disk", what, 1, (1, 8, 32, 100), 40, SlowDiskCounts, SlowDiskPostgres)


def webdis_variants(bench, stack, label, items):
    redis = bench.shared(Redis)

    def measure(webdis):
        loads.settle()
        result = loads.wrk(f"{label} webdis", webdis.port, REDIS_INCREASE, items, bench.seconds)
        bench.say(f"{label}: webdis, {webdis.threads} threads {result['per_s']:,.0f}/s")
        return result["per_s"]

    servers = [stack.enter_context(Webdis(bench.root, redis, threads)) for threads in (2, 4)]
    return {f"{webdis.threads} threads": lambda webdis=webdis: measure(webdis) for webdis in servers}


def against_webdis(bench, name, what, items, floor=1, throughput=QuipuThroughput):
    row = Row(name, what)
    with ExitStack() as stack:
        counts = open_counts(stack, SqliteCounts, bench, row)
        quipu = throughput(bench, counts, name, items) if counts else None
        try:
            peers = webdis_variants(bench, stack, name, items)
        except Missing as e:
            peers, row.note = {}, f"skipped: {e}"
        best = alternate(bench.rounds, peers, quipu and quipu.measure)
        return [throughput_row(row, *best, floor, quipu.problems if quipu else [])]


def spread_sqlite(bench):
    what = f"increases over {ITEMS:,} items, SQLite / webdis + Redis appendfsync always, INCR"
    return against_webdis(bench, "spread-sqlite", what, ITEMS)


def one_sqlite(bench):
    what = "increases on ONE item, SQLite / webdis + Redis appendfsync always, INCR"
    return against_webdis(bench, "one-sqlite", what, 1)


def combining(bench):
    return combined_against_single(
        bench, "combining", "combining on / --batch-max 1, PostgreSQL, one item", PostgresCounts)


def combining_slow_disk(bench):
    return combined_against_single(
        bench, "combining-slow-disk", "the same where a sync takes 1 ms", SlowDiskCounts)


def combined_against_single(bench, name, what, kind):
    row = Row(name, what)
    with ExitStack() as stack:
        on = open_counts(stack, kind, bench, row)
        off = open_counts(stack, kind, bench, row, ("--batch-max", "1"))
        if not on or not off:
            return [row]
        combined = QuipuThroughput(bench, on, "combining on", 1)
        single = QuipuThroughput(bench, off, "combining off", 1)
        best = alternate(bench.rounds, {"--batch-max 1": single.measure}, combined.measure)
        return [throughput_row(row, *best, 30, combined.problems + single.problems)]


# -- open loop -----------------------------------------------------------------------------------


def books_problem(before, after, acks_path):
    """Returns what is wrong, or nothing. Per item: acknowledged <= added in the database <= acknowledged + unknown."""
    wrong = []
    with open(acks_path) as f:
        for line in f:
            item, acked, unknown = line.split()
            added = after[item] - before[item]
            if not int(acked) <= added <= int(acked) + int(unknown):
                wrong.append(f"{item}: {acked} acknowledged, {unknown} unknown, {added} in the database")
    return f"{len(wrong)} items are wrong, first {wrong[0]}" if wrong else ""


def checked_openloop(bench, counts, label, seconds, options):
    """Runs the generator over all items and checks its ledger. Returns (result, largest memory in KiB, problem)."""
    acks_path = os.path.join(bench.root, "acks")
    counts.tidy()
    before = counts.values()
    with loads.ResidentMemory(counts.quipu) as memory:
        options = {"items": ITEMS, "acks": acks_path, **options}
        result = loads.openloop(label, bench.openloop_program, counts.quipu.port, seconds, options)
    time.sleep(1)  # requests that were given up as unknown may still be on their way into the database
    return result, memory.max_kib, books_problem(before, counts.values(), acks_path)


def errors_of(result):
    """Returns everything that is neither an acknowledgement nor a refusal for overload."""
    kinds = ("unsent", "send_failed", "outcome_unknown", "lost", "other")
    return ", ".join(f"{result[kind]} {kind}" for kind in kinds if result[kind])


def latency(bench):
    """
    10,000 requests a second with Poisson arrivals over all items. Latency from the time a request was due. No warm-up:
    the first request counts like the last. Any refusal or error fails the row, whatever the p99.
    """
    seconds, rate = bench.latency_seconds, 10_000
    row = Row("latency", f"{rate:,} requests/s open loop, {seconds} s, PostgreSQL, {ITEMS:,} items: p99")
    row.peer, row.at_least = "seed: < 200 ms", "<= 25 ms, no error, sums exact"
    with ExitStack() as stack:
        counts = open_counts(stack, PostgresCounts, bench, row)
        if not counts:
            return [row]
        options = {"rate": rate, "poisson": True, "connections": 512}
        result, memory_kib, problem = checked_openloop(bench, counts, "latency", seconds, options)
    accepted = result["accepted"]
    refused = f"{result['overloaded']} refused" if result["overloaded"] else ""
    problems = [text for text in (refused, errors_of(result), problem) if text]
    row.quipu = f"{accepted['p99_ms']:.1f} ms"
    row.ok = accepted["p99_ms"] <= 25 and not problems
    summary = f"p50 {accepted['p50_ms']:.1f}, p99.9 {accepted['p999_ms']:.1f}, max {accepted['max_ms']:.0f} ms"
    sums = f"{result['ok']:,} acknowledged" + ("" if problem else " and found in the database")
    row.note = "; ".join([summary, sums, f"{memory_kib / 1024:.0f} MB resident"] + problems)
    row.values = {"p99_ms": accepted["p99_ms"], "resident_kib": memory_kib, **result}
    return [row]


def measure_peak(bench, counts, name, connections):
    closed = {"closed": True, "connections": connections, "warmup": 1}
    result, _, problem = checked_openloop(bench, counts, f"{name} peak", bench.seconds, closed)
    if problem:
        raise Failed(problem)
    bench.say(f"{name}: {result['goodput_per_s']:,.0f}/s in closed loop, {connections} connections")
    return result["goodput_per_s"]


def measure_overload(bench, counts, name):
    """Measures the peak in closed loop, then three times as much in open loop; `overload` explains what it means."""
    peaks = {str(n): lambda n=n: measure_peak(bench, counts, name, n) for n in (256, 1024)}
    peak, _, _ = alternate(bench.rounds, peaks, None)
    options = {"rate": 3 * peak, "poisson": True, "connections": bench.overload_connections, "warmup": 2}
    options["give-up-ms"] = 1000
    return peak, *checked_openloop(bench, counts, name, bench.seconds, options)


def fill_goodput_row(row, peak, result, memory_kib, problem):
    ratio = result["goodput_per_s"] / peak
    row.quipu, row.peer, row.ratio = f"{result['goodput_per_s']:,.0f}/s", f"{peak:,.0f}/s (peak)", f"{ratio:.2f}x"
    row.ok = ratio >= 0.9 and not problem
    reached = f"{result['sent_per_s'] / peak:.2f}x of the peak reached the server"
    shape = f"accepted p99 {result['accepted']['p99_ms']:.0f} ms, {memory_kib / 1024:.0f} MB resident"
    row.note = "; ".join(text for text in (reached, shape, errors_of(result), problem) if text)
    row.values = {"peak_per_s": peak, "ratio": ratio, "resident_kib": memory_kib, **result}


def fill_refusal_row(row, result, judged):
    """Shows both latencies; `judged` is the one that must hold."""
    count, p99_ms = result["refused"]["count"], result[judged]["p99_ms"]
    row.values = {"p99_ms": result["refused"]["p99_ms"], "service_p99_ms": result["refused_service"]["p99_ms"]}
    row.ok = count > 0 and p99_ms <= 50
    if not count:
        row.note = f"nothing was refused, {result['in_flight_max']:,} in flight at most: the lanes never filled"
        return
    row.quipu = f"{p99_ms:.1f} ms"
    notes = [f"{count:,} refused"]
    for since, key in (("due", "refused"), ("sent", "refused_service")):
        notes.append(f"from {since} p99 {result[key]['p99_ms']:.1f}, max {result[key]['max_ms']:.0f} ms")
    row.note = "; ".join(notes + [f"{result['in_flight_max']:,} in flight at most"])


def overload_rows(bench, name, what, server_options, judged):
    since = {"refused": "due", "refused_service": "sent"}[judged]
    goodput = Row(name, f"3x overload, {what}: goodput / its own peak", at_least="0.9x")
    refusal = Row(f"{name}-refusals", f"3x overload, {what}: refusal, p99 from when {since}", at_least="<= 50 ms")
    with ExitStack() as stack:
        counts = open_counts(stack, PostgresCounts, bench, goodput, server_options)
        if not counts:
            refusal.note = goodput.note
            return [goodput, refusal]
        peak, result, memory_kib, problem = measure_overload(bench, counts, name)
    fill_goodput_row(goodput, peak, result, memory_kib, problem)
    fill_refusal_row(refusal, result, judged)
    return [goodput, refusal]


def overload(bench):
    """
    Three times the peak where the processors are the limit (default settings).

    Peak: the same generator in closed loop, all items, a second of warm-up, the best of 256 and 1024 connections and of
    the rounds; acknowledged increases a second. Overload: Poisson arrivals at three times that rate, after 2 s of
    warm-up, over 16,000 connections, more than what two lanes hold (4096 each) and two batches (1024 each), since with
    one request on each connection nothing would ever be refused otherwise; a request that waits a second for a free
    connection is given up and counted as unsent. Goodput: acknowledgements that arrived during the
    window, a second. Refusal: 503 OVERLOADED.

    Generator, Quipu and PostgreSQL share the processors here, and the peak uses them up: every request that is refused
    takes time from one that could be accepted, and three times the peak cannot even be sent. The note says how much
    was. For the same reason the refusal's latency is judged from when the request was sent: from when it was due it
    mostly tells how late the generator was, for want of a processor. `overload_store` has neither excuse.
    """
    return overload_rows(bench, "overload", "default settings", (), "refused_service")


def overload_store(bench):
    """
    The same where the store is the limit and not the processors: `--lanes 1 --batch-max 3`, at most three increases a
    commit, as if the store were that slow. Then three times the peak is really sent from the same machine, what is
    measured is the program's handling of its queue, and a refusal counts from when its request was due.
    """
    options = ("--lanes", "1", "--batch-max", "3")
    return overload_rows(bench, "overload-store", "limited by the store", options, "refused")


# -- memory --------------------------------------------------------------------------------------


IDLE_CONNECTIONS = 10_000


def idle_memory(bench, idle, per_connection):
    """A fresh process on the default store: after 2 s, and with idle connections that had one answer each."""
    with Quipu(bench.root, bench.quipu_program) as quipu:
        time.sleep(2)
        before = quipu.resident_kib()
        idle.quipu, idle.ok, idle.values = f"{before / 1024:.1f} MB", before <= 16 * 1024, {"kib": before}
        with loads.IdleConnections(bench.openloop_program, quipu.port, IDLE_CONNECTIONS):
            time.sleep(1)
            after = quipu.resident_kib()
    each = (after - before) / IDLE_CONNECTIONS
    per_connection.quipu, per_connection.ok = f"{each:.1f} KiB", each <= 32
    per_connection.values = {"kib_each": each, "kib_all": after}


def load_memory(bench, row):
    """The largest of both stores while wrk asks for as much as it can over 256 connections."""
    seen = {}
    for kind, label in ((SqliteCounts, "SQLite"), (PostgresCounts, "PostgreSQL")):
        with ExitStack() as stack:
            counts = open_counts(stack, kind, bench, row)
            if counts:
                load = QuipuThroughput(bench, counts, f"memory {label}", ITEMS)
                load.measure()
                seen[label] = load.resident_kib
    if not seen:
        return
    most = max(seen.values())
    row.quipu, row.ok, row.values = f"{most / 1024:.1f} MB", most <= 96 * 1024, {"kib": seen}
    figures = ", ".join(f"{label} {kib / 1024:.1f} MB" for label, kib in seen.items())
    row.note = "; ".join(text for text in (figures, row.note) if text)


def memory(bench):
    idle = Row("memory-idle", "resident memory, idle", at_least="<= 16 MB")
    load = Row("memory-load", "resident memory under load, 256 connections", at_least="<= 96 MB")
    per_connection = Row("memory-connection", f"resident memory per idle connection at {IDLE_CONNECTIONS:,}")
    per_connection.at_least = "<= 32 KiB"
    try:
        idle_memory(bench, idle, per_connection)
    except Missing as e:
        per_connection.note = f"skipped: {e}"
        idle.note = "" if idle.ok is not None else per_connection.note
    load_memory(bench, load)
    return [idle, load, per_connection]


CASES = {
    "spread-postgres": spread_postgres,
    "one-postgres": one_postgres,
    "spread-slow-disk": spread_slow_disk,
    "one-slow-disk": one_slow_disk,
    "spread-sqlite": spread_sqlite,
    "one-sqlite": one_sqlite,
    "combining": combining,
    "combining-slow-disk": combining_slow_disk,
    "latency": latency,
    "overload": overload,
    "overload-store": overload_store,
    "memory": memory,
}
