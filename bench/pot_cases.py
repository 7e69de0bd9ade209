"""What is measured of pots: changes combined against one transaction each, and what a draw of many coins costs."""

import http.client
import json
import time
from contextlib import ExitStack

import loads
from cases import Row, alternate, throughput_row
from servers import Failed, Missing, Postgres, Quipu, SlowDiskQuipu

POTS = 1000
CONNECTIONS = 128
MAX_COINS = 2_147_483_647
FILL = 1_000_000_000  # gold coins in every pot at the start: there is room for more, and enough to take out
ROLES = ("--roles", "pots")


class PostgresPots:
    """A Quipu on a database of its own, with POTS pots; SQL creates and reads them behind the program's back."""

    def __init__(self, bench, options=()):
        self.postgres = bench.shared(Postgres)
        self.database = bench.new_database()
        url = self.postgres.create_database(self.database)
        self.quipu = Quipu(bench.root, bench.quipu_program, url, ROLES + tuple(options))

    def __enter__(self):
        self.quipu.__enter__()
        try:
            self.postgres.run(
                self.database,
                f"INSERT INTO pot (pot_name, max_coins) SELECT 'Pot ' || n, {MAX_COINS} FROM generate_series(1, {POTS}) n",
                f"INSERT INTO coin (pot_id, denomination, coin_count) SELECT id, 100, {FILL} FROM pot",
                "VACUUM ANALYZE",
            )
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def tidy(self):
        self.postgres.run(self.database, "VACUUM pot", "VACUUM coin", "CHECKPOINT")
        loads.settle()

    def total(self):
        return int(self.postgres.run(self.database, "SELECT sum(coin_count) FROM coin")[0][0])


class SqlitePots:
    """A Quipu on its default store, with POTS pots, created and read through its own API."""

    program = Quipu

    def __init__(self, bench, options=()):
        self.quipu = self.program(bench.root, bench.quipu_program, None, ROLES + tuple(options))

    def __enter__(self):
        self.quipu.__enter__()
        try:
            for n in range(1, POTS + 1):
                pot = self.call("pot.Pot/CreatePot", {"pot_name": f"Pot {n}", "max_coins": MAX_COINS})
                self.call("coin.Coin/AddCoins", {"pot_id": pot["pot_id"], "coins": [{"kind": "GOLD", "count": FILL}]})
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def call(self, method, message):
        connection = http.client.HTTPConnection("127.0.0.1", self.quipu.port, timeout=30)
        try:
            body = json.dumps(message)
            connection.request("POST", f"/twirp/pyggpot.{method}", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                raise Failed(f"{method}: {response.status} {answer[:200]}")
            return json.loads(answer)
        finally:
            connection.close()

    def tidy(self):
        loads.settle()

    def total(self):
        lists = [self.call("coin.Coin/ListCoins", {"pot_id": n}) for n in range(1, POTS + 1)]
        return sum(entry["count"] for coins in lists for entry in coins["coins"])


class SlowDiskPots(SqlitePots):
    """The same on a disk whose sync takes 1 ms."""

    program = SlowDiskQuipu


class PotThroughput:
    """Rounds of wrk against one Quipu; `problems` collects everything that makes the figure worthless."""

    def __init__(self, bench, store, label, pots, coins=1, how="kind"):
        self.bench, self.store, self.label = bench, store, label
        self.load = (pots, coins, how)
        self.problems = []

    def measure(self):
        self.store.tidy()
        before = self.store.total()
        result = loads.wrk_pots(self.label, self.store.quipu.port, *self.load, self.bench.seconds, CONNECTIONS)
        self.check(result, before)
        self.bench.say(f"{self.label}: quipu {result['per_s']:,.0f}/s")
        return result["per_s"]

    def check(self, result, before):
        """Checks that what went in minus what came out is in the tables, except for requests in flight when wrk
        stopped."""
        coins = self.load[1]
        if result["status_errors"] or result["socket_errors"]:
            self.problems.append(f"{result['status_errors']} refused, {result['socket_errors']} socket errors")
        deadline = time.monotonic() + 10
        while True:
            off = self.store.total() - before - coins * (result["added"] - result["removed"])
            if abs(off) <= coins * CONNECTIONS:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        self.problems.append(f"{off} coins more in the tables than there should be")


def combining_pots(bench, name, what, kind, pots, floor):
    row = Row(name, what)
    with ExitStack() as stack:
        try:
            on = stack.enter_context(kind(bench))
            off = stack.enter_context(kind(bench, ("--batch-max", "1")))
        except Missing as e:
            row.note = f"skipped: {e}"
            return [row]
        combined = PotThroughput(bench, on, f"{name} on", pots)
        single = PotThroughput(bench, off, f"{name} off", pots)
        best = alternate(bench.rounds, {"--batch-max 1": single.measure}, combined.measure)
        return [throughput_row(row, *best, floor, combined.problems + single.problems)]


def pots_one_postgres(bench):
    what = f"pots: add/remove on ONE pot, PostgreSQL, {CONNECTIONS} connections: combining / --batch-max 1"
    return combining_pots(bench, "pots-one-postgres", what, PostgresPots, 1, 5)


def pots_spread_postgres(bench):
    what = f"pots: the same over {POTS:,} pots"
    return combining_pots(bench, "pots-spread-postgres", what, PostgresPots, POTS, 5)


def pots_one_sqlite(bench):
    what = f"pots: add/remove on ONE pot, SQLite, {CONNECTIONS} connections: combining / --batch-max 1"
    return combining_pots(bench, "pots-one-sqlite", what, SqlitePots, 1, 10)


def pots_spread_sqlite(bench):
    what = f"pots: the same over {POTS:,} pots"
    return combining_pots(bench, "pots-spread-sqlite", what, SqlitePots, POTS, 10)


def pots_one_slow_disk(bench):
    what = "pots: ONE pot, SQLite, where a sync takes 1 ms"
    return combining_pots(bench, "pots-one-slow-disk", what, SlowDiskPots, 1, 10)


def pots_spread_slow_disk(bench):
    what = f"pots: {POTS:,} pots, SQLite, where a sync takes 1 ms"
    return combining_pots(bench, "pots-spread-slow-disk", what, SlowDiskPots, POTS, 10)


def pots_draw(bench):
    """Alternates between adding coins and drawing as many, so that the pots last; both sides on one server, in
    turns."""
    few, many = 10, 1_000_000
    row = Row("pots-draw", f"pots: RemoveCoins of {few} / of {many:,} coins at random, SQLite, {POTS:,} pots")
    with ExitStack() as stack:
        try:
            store = stack.enter_context(SqlitePots(bench))
        except Missing as e:
            row.note = f"skipped: {e}"
            return [row]
        small = PotThroughput(bench, store, "pots-draw few", POTS, few, "draw")
        large = PotThroughput(bench, store, "pots-draw many", POTS, many, "draw")
        peer, _, quipu = alternate(bench.rounds, {"few": small.measure}, large.measure)
    problems = small.problems + large.problems
    row.quipu, row.peer, row.ratio = f"{quipu:,.0f}/s", f"{peer:,.0f}/s", f"{peer / quipu:.2f}x"
    row.at_least = "<= 1.5x"
    row.ok = peer / quipu <= 1.5 and not problems
    row.values = {"few_per_s": peer, "many_per_s": quipu, "ratio": peer / quipu}
    row.note = "; ".join(problems)
    return [row]


CASES = {
    "pots-one-postgres": pots_one_postgres,
    "pots-spread-postgres": pots_spread_postgres,
    "pots-one-sqlite": pots_one_sqlite,
    "pots-spread-sqlite": pots_spread_sqlite,
    "pots-one-slow-disk": pots_one_slow_disk,
    "pots-spread-slow-disk": pots_spread_slow_disk,
    "pots-draw": pots_draw,
}
