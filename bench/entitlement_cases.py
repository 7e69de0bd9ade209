"""What is measured of entitlements and notifications, in the ways of cases.py.

Every grant is a new entitlement with a new Idempotency-Key. Each round ends with a check of the tables: as many audit
lines and events as answers of 200. wrk leaves at most one request per connection unanswered, which may be in the
tables or not."""

import itertools
import threading
import time
from contextlib import ExitStack

import loads
from cases import Row, throughput_row, alternate
from servers import Failed, Missing, Nats, Postgres, Quipu

KEPT_ROWS = 300_000
KEPT_RATIOS = (0.8, 1.25)  # 20 % either way
DRAIN_ROWS = 30_000
DRAIN_LIMIT_S = 10
AGE_LIMIT_S = 1.0
SENT_RATE = 500
SENT_LIMIT_MS = 250
SAMPLE_S = 0.25

_prefixes = (f"b{number}-" for number in itertools.count(1))


class PostgresEntitlements:
    """A Quipu with a database and a NATS of its own; SQL reads the database behind the program's back."""

    def __init__(self, bench, *options, roles="entitlements"):
        self.bench = bench
        self.postgres = bench.shared(Postgres)
        self.database = bench.new_database()
        self.nats = Nats(bench.root)
        url = self.postgres.create_database(self.database)
        options += ("--roles", roles, "--entitlements-bus", self.nats.url, "--log-level", "warn")
        self.quipu = Quipu(bench.root, bench.quipu_program, url, options)

    def __enter__(self):
        self.nats.__enter__()
        try:
            self.quipu.__enter__()
        except BaseException:
            self.nats.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.quipu.stop()
        self.nats.stop()

    def run(self, *statements):
        return self.postgres.run(self.database, *statements)

    def value(self, query):
        return self.run(query)[0][0]

    def tidy(self):
        self.wait_drained()
        self.run("VACUUM ANALYZE entitlements", "VACUUM ANALYZE entitlement_sources", "VACUUM ANALYZE outbox_events",
                 "CHECKPOINT")
        loads.settle()

    def granted(self):
        return self.value("SELECT count(*) FROM entitlement_audit")

    def open_events(self):
        return self.value("SELECT count(*) FROM outbox_events WHERE stage = 'OPEN'")

    def oldest_s(self):
        """Returns the age of the oldest event that is not published."""
        return float(self.value("SELECT coalesce(extract(epoch FROM quipu_now() - min(created_at)), 0) "
                                "FROM outbox_events WHERE stage = 'OPEN'"))

    def wait_drained(self, limit_s=120):
        """Returns the seconds until the outbox is empty."""
        start = time.monotonic()
        while self.open_events():
            if time.monotonic() - start > limit_s:
                raise Failed(f"{self.open_events()} events are not published after {limit_s} s")
            time.sleep(0.05)
        return time.monotonic() - start

    def books_problem(self, before, least, unknown):
        """Returns what is wrong with the tables, or nothing."""
        deadline = time.monotonic() + 10
        while True:
            added = self.granted() - before
            if least <= added <= least + unknown:
                events = self.value("SELECT count(*) FROM outbox_events WHERE aggregate_key LIKE 'b%'")
                return "" if events >= added else f"{added} grants but {events} events"
            if time.monotonic() > deadline:
                return f"{least} answers of 200 but {added} audit lines"
            time.sleep(0.2)


def open_entitlements(stack, row, make):
    """Returns what `make` creates, or None with the reason in the row."""
    try:
        return stack.enter_context(make())
    except Missing as e:
        row.note = f"skipped: {e}"
        return None


# -- grants --------------------------------------------------------------------------------------


class GrantThroughput:
    """Rounds of wrk; `problems` collects everything that makes the figure worthless."""

    def __init__(self, bench, service, label):
        self.bench, self.service, self.label = bench, service, label
        self.problems = []
        self.drain_s = 0.0

    def measure(self):
        self.service.tidy()
        before = self.service.granted()
        prefix = next(_prefixes)
        request = ("POST", "/v1/entitlements/grants", "", f'{{"user_id":"{prefix}',
                   '","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_456"}', prefix)
        result = loads.wrk(self.label, self.service.quipu.port, request, 0, self.bench.seconds)
        self.drain_s = max(self.drain_s, self.service.wait_drained())
        if result["status_errors"] or result["socket_errors"]:
            self.problems.append(f"{result['status_errors']} refused, {result['socket_errors']} socket errors")
        problem = self.service.books_problem(before, result["requests"] - result["status_errors"], loads.WRK_CONNECTIONS)
        if problem:
            self.problems.append(problem)
        self.bench.say(f"{self.label}: {result['per_s']:,.0f}/s, drained {self.drain_s:.1f} s later")
        return result["per_s"]


def entitlement_grants(bench):
    row = Row("entitlement-grants", "grants, each with a key, PostgreSQL + NATS: combining on / --batch-max 1")
    with ExitStack() as stack:
        on = open_entitlements(stack, row, lambda: PostgresEntitlements(bench))
        off = open_entitlements(stack, row, lambda: PostgresEntitlements(bench, "--batch-max", "1"))
        if not on or not off:
            return [row]
        combined, single = GrantThroughput(bench, on, "grants on"), GrantThroughput(bench, off, "grants off")
        best = alternate(bench.rounds, {"--batch-max 1": single.measure}, combined.measure)
        return [throughput_row(row, *best, 5, combined.problems + single.problems)]


# -- the relay -----------------------------------------------------------------------------------


class OldestEvent:
    """Samples the age of the oldest unpublished event while the `with` block runs; `max_s` is the worst seen."""

    def __init__(self, service):
        self.service = service
        self.samples = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    @property
    def max_s(self):
        return max(self.samples, default=0.0)

    def sample(self):
        while not self.stopped.wait(SAMPLE_S):
            self.samples.append(self.service.oldest_s())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.stopped.set()
        self.thread.join()


def offer_grants(bench, service, label, rate, seconds):
    prefix = next(_prefixes)
    options = {"rate": f"{rate:.0f}", "grants": True, "prefix": prefix}
    return loads.openloop(label, bench.openloop_program, service.quipu.port, seconds, options)


def open_loop_problem(result):
    bad = {name: result[name] for name in ("overloaded", "outcome_unknown", "lost", "other", "unsent") if result[name]}
    return f"not all were granted: {bad}" if bad else ""


def entitlement_relay(bench):
    """The peak, with the outbox drained after it; then 70 % of the peak, with the age of the oldest event sampled."""
    age = Row("entitlement-relay", "oldest unpublished event at 70 % of the peak of grants, open loop, PostgreSQL + NATS")
    drain = Row("entitlement-drain", "outbox drained after the peak of grants")
    age.at_least, drain.at_least = f"< {AGE_LIMIT_S:g} s", f"<= {DRAIN_LIMIT_S} s"
    with ExitStack() as stack:
        service = open_entitlements(stack, age, lambda: PostgresEntitlements(bench))
        if not service:
            drain.note = age.note
            return [age, drain]
        peak = GrantThroughput(bench, service, "relay peak")
        per_s = max(peak.measure() for _ in range(bench.rounds))
        service.tidy()
        before = service.granted()
        with OldestEvent(service) as oldest:
            result = offer_grants(bench, service, "relay 70 %", 0.7 * per_s, bench.latency_seconds)
        problems = [text for text in (open_loop_problem(result), service.books_problem(before, result["ok"], 0)) if text]
        age.quipu, age.peer = f"{oldest.max_s:.2f} s", f"{result['goodput_per_s']:,.0f}/s of {per_s:,.0f}/s"
        age.values = {"peak_per_s": per_s, "samples": oldest.samples, "max_s": oldest.max_s}
        age.ok, age.note = oldest.max_s < AGE_LIMIT_S and not problems, "; ".join(problems)
        drain.quipu, drain.values = f"{peak.drain_s:.1f} s", {"drain_s": peak.drain_s, "peak_per_s": per_s}
        drain.ok, drain.note = peak.drain_s <= DRAIN_LIMIT_S and not peak.problems, "; ".join(peak.problems)
    return [age, drain]


class RelayThroughput:
    """Creates many events at once and measures how many per second are published, by the database's own times."""

    def __init__(self, bench, service, label):
        self.bench, self.service, self.label = bench, service, label

    def keep(self, count):
        """Creates that many events that are published and not swept yet."""
        self.service.run(
            "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, status, created_at, "
            "published_at, claim_epoch, locked_by) SELECT gen_random_uuid(), event_type, aggregate_key, trace_id, payload, "
            "'PUBLISHED', quipu_now() - n * interval '1 ms', quipu_now() - n * interval '1 ms', 1, 'bench' "
            f"FROM (SELECT * FROM outbox_events LIMIT 1) e, generate_series(1, {count}) n")

    def measure(self):
        self.service.tidy()
        mark = self.service.value("SELECT quipu_now()::text")
        self.service.run(
            "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, created_at) "
            "SELECT gen_random_uuid(), event_type, aggregate_key, trace_id, payload, quipu_now() "
            f"FROM (SELECT * FROM outbox_events LIMIT 1) e, generate_series(1, {DRAIN_ROWS})")
        self.service.wait_drained()
        count, seconds = self.service.run(
            "SELECT count(*), extract(epoch FROM max(published_at) - min(published_at)) FROM outbox_events "
            f"WHERE stage = 'PUBLISHED' AND published_at > '{mark}'")[0]
        per_s = count / float(seconds)
        self.bench.say(f"{self.label}: {per_s:,.0f} events/s")
        return per_s


def entitlement_kept(bench):
    row = Row("entitlement-kept", f"relay of {DRAIN_ROWS:,} events: {KEPT_ROWS:,} published rows kept / none")
    with ExitStack() as stack:
        full = open_entitlements(stack, row, lambda: PostgresEntitlements(bench))
        empty = open_entitlements(stack, row, lambda: PostgresEntitlements(bench))
        if not full or not empty:
            return [row]
        for service in (full, empty):
            offer_grants(bench, service, "one event to copy", 1, 1)
        relays = RelayThroughput(bench, full, "relay, many kept"), RelayThroughput(bench, empty, "relay, none kept")
        relays[0].keep(KEPT_ROWS)
        best = alternate(bench.rounds, {"none kept": relays[1].measure}, relays[0].measure)
        throughput_row(row, *best, KEPT_RATIOS[0], [])
        # it would be just as wrong if the empty outbox were the slower one
        row.at_least = "{:g}x to {:g}x".format(*KEPT_RATIOS)
        row.ok = KEPT_RATIOS[0] <= row.values["ratio"] <= KEPT_RATIOS[1]
        return [row]


# -- from the change to the sent notification ----------------------------------------------------


def entitlement_sent(bench):
    """By the database's own clock, and from the time of the change, which is before its answer."""
    row = Row("entitlement-sent", f"from the grant to its SENT notification at {SENT_RATE} grants/s, PostgreSQL + NATS: p99")
    row.at_least = f"<= {SENT_LIMIT_MS} ms"
    with ExitStack() as stack:
        service = open_entitlements(
            stack, row, lambda: PostgresEntitlements(bench, roles="entitlements,notifications"))
        if not service:
            return [row]
        before = service.granted()
        result = offer_grants(bench, service, "sent", SENT_RATE, bench.latency_seconds)
        problems = [text for text in (open_loop_problem(result), service.books_problem(before, result["ok"], 0)) if text]
        deadline = time.monotonic() + 30
        while service.value("SELECT count(*) FROM notifications WHERE status = 'SENT'") < result["ok"]:
            if time.monotonic() > deadline:
                problems.append("not all notifications were sent")
                break
            time.sleep(0.1)
        p50, p99, most = (1e3 * float(value) for value in service.run(
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s), percentile_cont(0.99) WITHIN GROUP (ORDER BY s), "
            "max(s) FROM (SELECT extract(epoch FROM sent_at - occurred_at) AS s FROM notifications "
            "WHERE status = 'SENT') n")[0])
        row.quipu, row.values = f"{p99:.0f} ms", {"p50_ms": p50, "p99_ms": p99, "max_ms": most}
        row.ok = p99 <= SENT_LIMIT_MS and not problems
        row.note = "; ".join([f"p50 {p50:.0f} ms, max {most:.0f} ms", *problems])
    return [row]


CASES = {
    "entitlement-grants": entitlement_grants,
    "entitlement-relay": entitlement_relay,
    "entitlement-kept": entitlement_kept,
    "entitlement-sent": entitlement_sent,
}
