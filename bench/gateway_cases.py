"""What is measured of the gateway, in the ways of cases.py.

Every round ends with a check of the tables: each answer of 200 is in `current_count`, and on Kafka there are as many
messages as were counted. wrk leaves at most one request per connection unanswered, which may be counted or not."""

import http.client
import json
import time
from contextlib import ExitStack

import loads
from cases import INCREASE, Row, SqliteCounts, alternate, throughput_row
from servers import CacheRedis, Failed, Kafka, Missing, Postgres, Quipu
from wire import Wire

USERS = 1_000
FEW_CONNECTIONS = 16
NO_LIMIT = 2_147_483_647
WINDOW_MIN = 525_600  # a year: no window ends during a measurement
TOPIC = "sms-outbound"
REDIS_PING = b"*1\r\n$4\r\nPING\r\n"  # a thread of the gateway checks five times a second whether Redis answers
SEND = ("POST", "/api/send", "", '{"userId":"user-', '","message":"Hello!"}')


# -- what a gateway stands on --------------------------------------------------------------------


class PostgresGateway:
    """A Quipu on a database of its own, with USERS users; SQL reads the database behind the program's back. On Kafka
    it is the gateway alone, as in a real deployment; on `local:` the sender must be in the same process."""

    def __init__(self, bench, *options, bus=None, cache="none", limit=NO_LIMIT, store_port=None):
        self.postgres = bench.shared(Postgres)
        self.kafka = bus
        self.limit = limit
        self.database = bench.new_database()
        url = self.postgres.create_database(self.database)
        if store_port:
            url = url.replace(f":{self.postgres.port}/", f":{store_port}/")
        options += ("--cache", cache, "--roles", "gateway" if bus else "gateway,sender")
        options += ("--gateway-bus", bus.url if bus else "local:")
        self.quipu = Quipu(bench.root, bench.quipu_program, url, options)

    def __enter__(self):
        self.quipu.__enter__()
        try:
            self.postgres.run(
                self.database,
                "INSERT INTO rate_limit_store (user_id, rate_limit, time_window, last_refresh_time) "
                f"SELECT 'user-' || n, {self.limit}, {WINDOW_MIN}, now() FROM generate_series(1, {USERS}) n",
                "VACUUM ANALYZE rate_limit_store",
            )
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def tidy(self):
        self.postgres.run(self.database, "VACUUM rate_limit_store", "CHECKPOINT")
        loads.settle()

    def use_up(self):
        """Makes every send be refused from now on."""
        self.postgres.run(
            self.database, "UPDATE rate_limit_store SET current_count = rate_limit, reserved_count = rate_limit")

    def counted(self):
        """Returns how many were admitted and confirmed, from the database."""
        rows = self.postgres.run(self.database, "SELECT sum(current_count), sum(reserved_count) FROM rate_limit_store")
        return tuple(int(value) for value in rows[0])

    def sent(self):
        """Returns how many messages are on the topic, from any gateway; None if the bus is not Kafka."""
        return self.kafka.message_count(TOPIC) if self.kafka else None


class EmbeddedGateway(SqliteCounts):
    """A Quipu with its defaults: counts, gateway and sender in one process, on SQLite, memory and the local queue."""

    def __enter__(self):
        super().__enter__()
        try:
            self.ask_users(self.configure)
        except BaseException:
            self.quipu.stop()
            raise
        return self

    def tidy(self):
        """Waits: the sender goes on after the load has ended, and would take processors from the next measurement."""
        self.sent_problem()
        super().tidy()

    def sent_problem(self, limit_s=120):
        """Waits until the sender has sent everything that was counted. Returns what is wrong, or nothing."""
        deadline = time.monotonic() + limit_s
        while True:
            sent, (counted, _) = int(self.quipu.metric("quipu_sender_sent_total")), self.counted()
            if sent >= counted or time.monotonic() > deadline:
                return "" if sent == counted else f"{counted} counted but {sent} sent"
            time.sleep(0.2)

    def ask_users(self, ask):
        """Returns what `ask` (a connection, a user's number) returns for each user."""
        connection = http.client.HTTPConnection("127.0.0.1", self.quipu.port, timeout=30)
        try:
            return [ask(connection, n) for n in range(1, USERS + 1)]
        finally:
            connection.close()

    @staticmethod
    def read(connection):
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Failed(f"{response.status} {body[:200]}")
        return json.loads(body)

    def configure(self, connection, n):
        body = json.dumps({"userId": f"user-{n}", "rateLimit": NO_LIMIT, "timeWindow": WINDOW_MIN})
        connection.request("POST", "/api/config", body, {"Content-Type": "application/json"})
        return self.read(connection)

    def look(self, connection, n):
        connection.request("GET", f"/api/config/user-{n}")
        return self.read(connection)["currentCount"]

    def counted(self):
        """The API does not show what is reserved."""
        total = sum(self.ask_users(self.look))
        return total, total

    def sent(self):
        return None


def empty_cache(bench):
    """Empties the Redis of the run, which may have entries of earlier cases."""
    redis = bench.shared(CacheRedis)
    redis.empty()
    return redis


def open_gateway(stack, row, make):
    """Returns what `make` creates, or None with the reason in the row."""
    try:
        return stack.enter_context(make())
    except Missing as e:
        row.note = f"skipped: {e}"
        return None


# -- throughput ----------------------------------------------------------------------------------


class SendThroughput:
    """Rounds of wrk against one gateway; `problems` collects everything that makes the figure worthless."""

    def __init__(self, bench, gateway, label, users=USERS, connections=loads.WRK_CONNECTIONS):
        self.bench, self.gateway, self.label = bench, gateway, label
        self.users, self.connections = users, connections
        self.problems = []
        self.batch_size = 0.0

    def run(self):
        port, seconds = self.gateway.quipu.port, self.bench.seconds
        return loads.wrk(self.label, port, SEND, self.users, seconds, self.connections)

    def batches(self):
        metric, labels = self.gateway.quipu.metric, 'lane="gateway-write-'
        return metric("quipu_batch_size_sum", labels), metric("quipu_batch_size_count", labels)

    def measure(self):
        self.gateway.tidy()
        before, on_topic, batches = self.gateway.counted(), self.gateway.sent(), self.batches()
        result = self.run()
        commands, count = (after - old for after, old in zip(self.batches(), batches))
        self.batch_size = commands / count if count else 0.0
        self.check(result, before, on_topic)
        self.bench.say(f"{self.label}: {result['per_s']:,.0f}/s in batches of {self.batch_size:.0f}")
        return result["per_s"]

    def check(self, result, before, on_topic):
        """Checks that every answer is a message that was counted; requests in flight when wrk stops may or may not
        be."""
        if result["status_errors"] or result["socket_errors"]:
            self.problems.append(f"{result['status_errors']} refused, {result['socket_errors']} socket errors")
        least = result["requests"] - result["status_errors"]
        deadline = time.monotonic() + 10
        while True:
            problem = self.books_problem(least, before, on_topic)
            if not problem or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if problem:
            self.problems.append(problem)

    def books_problem(self, least, before, on_topic):
        confirmed, reserved = (now - old for now, old in zip(self.gateway.counted(), before))
        if not least <= confirmed <= least + self.connections:
            return f"{least} answers of 200 but {confirmed} counted"
        if reserved != confirmed:
            return f"{confirmed} counted but {reserved} reserved"
        if on_topic is not None and self.gateway.sent() - on_topic != confirmed:
            return f"{confirmed} counted but {self.gateway.sent() - on_topic} on the topic"
        return ""


class RefusalThroughput(SendThroughput):
    """The same where every send must be refused: answers of 429 a second."""

    def refusals(self):
        return self.gateway.quipu.metric("quipu_http_requests_total", 'route="/api/send",method="POST",code="429"')

    def run(self):
        before = self.refusals()
        result = super().run()
        result["refused"] = self.refusals() - before
        result["per_s"] = result["requests"] / result["seconds"]
        return result

    def check(self, result, before, on_topic):
        others = result["requests"] - result["status_errors"]
        if result["socket_errors"] or others or result["refused"] < result["requests"]:
            self.problems.append(
                f"{result['requests']} answers, {result['refused']:.0f} of them 429, "
                f"{result['socket_errors']} socket errors")
        if self.gateway.counted() != before:
            self.problems.append("something was counted")


def add_note(row, *texts):
    row.note = "; ".join(text for text in (row.note, *texts) if text)


def compare(bench, row, peer, variant, quipu, floor):
    """Alternates between two SendThroughputs and fills the row, including the problems that there were."""
    best = alternate(bench.rounds, {variant: peer.measure}, quipu.measure)
    throughput_row(row, *best, floor, quipu.problems + peer.problems)
    add_note(row, f"batches of {quipu.batch_size:.0f} / {peer.batch_size:.0f}" if quipu.batch_size else "")
    return quipu.problems + peer.problems


def compare_on(kafka, bench, row, *sides):
    """The same. The mock is slower than what is measured on it, so its figures are only shown; only problems fail the
    row."""
    problems = compare(bench, row, *sides)
    if not kafka.is_real:
        row.ok = False if problems else None
        add_note(row, "not judged: no Kafka can be had here, this is librdkafka's mock cluster")
    return [row]


def combining_row(bench, name, what, users):
    row = Row(name, what)
    with ExitStack() as stack:
        kafka = bench.shared(Kafka)
        on = open_gateway(stack, row, lambda: PostgresGateway(bench, bus=kafka))
        off = open_gateway(stack, row, lambda: PostgresGateway(bench, "--batch-max", "1", bus=kafka))
        if not on or not off:
            return [row]
        combined = SendThroughput(bench, on, f"{name} on", users)
        single = SendThroughput(bench, off, f"{name} off", users)
        return compare_on(kafka, bench, row, single, "--batch-max 1", combined, 8)


def gateway_spread(bench):
    what = f"sends over {USERS:,} users, PostgreSQL + Kafka, no cache: combining on / --batch-max 1"
    return combining_row(bench, "gateway-spread", what, USERS)


def gateway_one(bench):
    what = "sends on ONE user, PostgreSQL + Kafka, no cache: combining on / --batch-max 1"
    return combining_row(bench, "gateway-one", what, 1)


def gateway_refused(bench):
    """
    Two rows. Over 256 connections the processors are the limit, with and without the cache, as long as wrk and all
    servers share them: a batch of refusals costs PostgreSQL one transaction, however many they are. Over 16 what counts
    is how long a refusal takes. Refusals never reach the bus, so the local one will do; its sender has nothing to do.
    """
    what = f"refused sends (429) over {USERS:,} users, PostgreSQL, %d connections: Redis / no cache"
    rows = [Row("gateway-refused", what % loads.WRK_CONNECTIONS), Row("gateway-refused-few", what % FEW_CONNECTIONS)]
    with ExitStack() as stack:
        url = f"redis://127.0.0.1:{empty_cache(bench).port}"
        cached = open_gateway(stack, rows[0], lambda: PostgresGateway(bench, cache=url, limit=1))
        plain = open_gateway(stack, rows[0], lambda: PostgresGateway(bench, limit=1))
        if not cached or not plain:
            rows[1].note = rows[0].note
            return rows
        cached.use_up()
        plain.use_up()
        for row, connections in zip(rows, (loads.WRK_CONNECTIONS, FEW_CONNECTIONS)):
            with_cache = RefusalThroughput(bench, cached, f"{row.name} redis", connections=connections)
            without = RefusalThroughput(bench, plain, f"{row.name} none", connections=connections)
            compare(bench, row, without, "no cache", with_cache, 2)
    return rows


def gateway_cache(bench):
    row = Row("gateway-cache", f"admitted sends over {USERS:,} users, PostgreSQL + Kafka: Redis / no cache")
    with ExitStack() as stack:
        url, kafka = f"redis://127.0.0.1:{empty_cache(bench).port}", bench.shared(Kafka)
        cached = open_gateway(stack, row, lambda: PostgresGateway(bench, bus=kafka, cache=url))
        plain = open_gateway(stack, row, lambda: PostgresGateway(bench, bus=kafka))
        if not cached or not plain:
            return [row]
        with_cache = SendThroughput(bench, cached, "gateway-cache redis")
        without = SendThroughput(bench, plain, "gateway-cache none")
        return compare_on(kafka, bench, row, without, "no cache", with_cache, 0.7)


# -- the default engines -------------------------------------------------------------------------


class CountThroughput:
    """Increases on the same process, over as many items as there are users."""

    def __init__(self, bench, embedded):
        self.bench, self.embedded = bench, embedded
        self.problems = []

    def measure(self):
        self.embedded.tidy()
        before = sum(self.embedded.values().values())
        result = loads.wrk("gateway-embedded counts", self.embedded.quipu.port, INCREASE, USERS, self.bench.seconds)
        time.sleep(0.5)  # requests were in flight when wrk stopped
        added = sum(self.embedded.values().values()) - before
        if not result["requests"] <= added <= result["requests"] + loads.WRK_CONNECTIONS or result["status_errors"]:
            self.problems.append(f"{result['requests']} increases acknowledged but {added} in the database")
        self.bench.say(f"gateway-embedded: increases {result['per_s']:,.0f}/s")
        return result["per_s"]


def gateway_embedded(bench):
    """Measures one `quipu serve` with its defaults. The sender runs beside the gateway and uses processors, too."""
    row = Row("gateway-embedded", f"admitted sends over {USERS:,} users, SQLite + memory + local / increases")
    with ExitStack() as stack:
        embedded = open_gateway(stack, row, lambda: EmbeddedGateway(bench))
        if not embedded:
            return [row]
        sends = SendThroughput(bench, embedded, "gateway-embedded sends")
        counts = CountThroughput(bench, embedded)
        best = alternate(bench.rounds, {"increases": counts.measure}, sends.measure)
        problem = embedded.sent_problem()
        throughput_row(row, *best, 0.3, sends.problems + counts.problems + ([problem] if problem else []))
        add_note(row, f"batches of {sends.batch_size:.0f}")
        return [row]


# -- round trips ---------------------------------------------------------------------------------


def gateway_trips(bench):
    """Measures what a batch of admitted sends costs on the wire once the cache knows its users: round trips to Redis,
    committed transactions and round trips of PostgreSQL. Proxies between the programs count them and are slow, so the
    figures are not those of a run at full speed."""
    trips = Row("gateway-trips", "admitted sends: round trips to Redis a batch", at_least="<= 1.01")
    commits = Row("gateway-commits", "admitted sends: transactions of PostgreSQL a batch (reserve, settle)")
    commits.at_least = "<= 2.02"
    with ExitStack() as stack:
        redis = stack.enter_context(Wire(empty_cache(bench).port, but=REDIS_PING))
        store = stack.enter_context(Wire(bench.shared(Postgres).port, b"COMMIT\0"))
        gateway = open_gateway(stack, trips, lambda: PostgresGateway(
            bench, bus=bench.shared(Kafka), cache=f"redis://127.0.0.1:{redis.port}", store_port=store.port))
        if not gateway:
            commits.note = trips.note
            return [trips, commits]
        fill_trip_rows(bench, gateway, redis, store, trips, commits)
    return [trips, commits]


def fill_trip_rows(bench, gateway, redis, store, trips, commits):
    sends = SendThroughput(bench, gateway, "gateway-trips")
    for _ in range(10):  # until the cache knows its users
        sends.measure()
        if bench.shared(CacheRedis).key_count() == USERS:
            break
    marks = {"redis": redis.turns, "commits": store.marks, "store": store.turns, "batches": sends.batches()[1]}
    sends.measure()
    batches = sends.batches()[1] - marks["batches"]
    if not batches:
        raise Failed("nothing was admitted")
    each = {
        "redis": (redis.turns - marks["redis"]) / batches,
        "commits": (store.marks - marks["commits"]) / batches,
        "store": (store.turns - marks["store"]) / batches,
    }
    for row, value, most in ((trips, each["redis"], 1.01), (commits, each["commits"], 2.02)):
        row.quipu, row.ok = f"{value:.3f}", value <= most and not sends.problems
        row.values = {**each, "batches": batches, "batch_size": sends.batch_size}
    add_note(trips, f"{batches:,.0f} batches of {sends.batch_size:.0f}", *sends.problems)
    add_note(commits, f"{each['store']:.2f} round trips to PostgreSQL a batch")


CASES = {
    "gateway-spread": gateway_spread,
    "gateway-one": gateway_one,
    "gateway-refused": gateway_refused,
    "gateway-cache": gateway_cache,
    "gateway-embedded": gateway_embedded,
    "gateway-trips": gateway_trips,
}
