"""What is measured of dialogs and counters, in the ways of cases.py.

All of it runs on PostgreSQL, RabbitMQ and Redis, as in a real deployment. Every round ends with a check of the tables:
each answer of 200 is a message in the table, and if counters run, each user's count equals the unread messages."""

import bisect
import re
import selectors
import socket
import threading
import time
from contextlib import ExitStack

import loads
from cases import Row, alternate, throughput_row
from gateway_cases import add_note, empty_cache, open_gateway
from servers import Failed, Postgres, Quipu, RabbitMQ

USERS = 1_000
QUEUES = ("counter-service-new-message", "counter-service-message-read")
SEND = ("POST", "/dialogs/send", "", '{"receiverId":"user-', '","text":"Hello!"}', "bench")
COUNTER = ("GET", "/counters/user/user-", "/UnreadMessages")
HEALTH = ("GET", "/healthz?n=", "")

BADGE_RATE, BADGE_USERS, BADGE_CONNECTIONS = 500, 100, 32
EVENT = re.compile(rb'data: [^\n]*"count":(\d+)[^\n]*\n\n')


class Unread:
    """A Quipu with a database and a virtual host of its own; SQL reads the database behind the program's back."""

    def __init__(self, bench, roles, *options):
        self.postgres, self.rabbitmq = bench.shared(Postgres), bench.shared(RabbitMQ)
        self.database = bench.new_database()
        self.roles = roles
        url = self.postgres.create_database(self.database)
        bus = self.rabbitmq.new_host(self.database)
        cache = f"redis://127.0.0.1:{empty_cache(bench).port}"
        options += ("--roles", roles, "--unread-bus", bus, "--cache", cache)
        self.quipu = Quipu(bench.root, bench.quipu_program, url, options)

    def __enter__(self):
        self.quipu.__enter__()
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def run(self, *statements):
        return self.postgres.run(self.database, *statements)

    def messages(self):
        return self.run("SELECT count(*) FROM messages")[0][0]

    def tidy(self):
        """Waits, because what the last round left behind would take processors from this one."""
        self.wait("the outbox is empty", lambda: not self.run(
            "SELECT 1 FROM dialog_outbox_events WHERE stage = 'OPEN' LIMIT 1"))
        if "counters" in self.roles:
            self.wait("everything is counted", lambda: not self.counted_problem())
        else:
            self.rabbitmq.purge(self.database, *QUEUES)
        self.run("TRUNCATE dialog_outbox_events", "VACUUM messages", "CHECKPOINT")
        loads.settle()

    def wait(self, what, condition, limit_s=180):
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"not within {limit_s} s: {what}")
            time.sleep(0.1)

    def counted_problem(self):
        """Returns which user's count is wrong, or nothing."""
        rows = self.run(
            "SELECT receiver_id, m.unread, c.count FROM (SELECT receiver_id, count(*) unread FROM messages "
            "WHERE NOT is_read GROUP BY 1) m LEFT JOIN counters c ON c.user_id = receiver_id "
            "WHERE c.count IS DISTINCT FROM m.unread LIMIT 1")
        return "{} has {} unread messages but a count of {}".format(*rows[0]) if rows else ""


# -- combining -----------------------------------------------------------------------------------


class SendThroughput:
    """Rounds of wrk against one Quipu; `problems` collects everything that makes the figure worthless."""

    def __init__(self, bench, unread, label):
        self.bench, self.unread, self.label = bench, unread, label
        self.problems = []
        self.batch_size = 0.0

    def batches(self):
        metric, labels = self.unread.quipu.metric, 'lane="dialogs-write-'
        return metric("quipu_batch_size_sum", labels), metric("quipu_batch_size_count", labels)

    def measure(self):
        self.unread.tidy()
        before, batches = self.unread.messages(), self.batches()
        result = loads.wrk(self.label, self.unread.quipu.port, SEND, USERS, self.bench.seconds)
        commands, count = (after - old for after, old in zip(self.batches(), batches))
        self.batch_size = commands / count if count else 0.0
        self.check(result, before)
        self.bench.say(f"{self.label}: {result['per_s']:,.0f}/s in batches of {self.batch_size:.0f}")
        return result["per_s"]

    def check(self, result, before):
        """Checks that every answer is a message; requests in flight when wrk stops may or may not be."""
        if result["status_errors"] or result["socket_errors"]:
            self.problems.append(f"{result['status_errors']} refused, {result['socket_errors']} socket errors")
        least = result["requests"] - result["status_errors"]
        deadline = time.monotonic() + 10
        while not least <= self.unread.messages() - before <= least + loads.WRK_CONNECTIONS:
            if time.monotonic() > deadline:
                self.problems.append(f"{least} answers of 200 but {self.unread.messages() - before} messages")
                return
            time.sleep(0.5)


def unread_send(bench):
    row = Row("unread-send", f"messages to {USERS:,} users, PostgreSQL + RabbitMQ: combining on / --batch-max 1")
    with ExitStack() as stack:
        on = open_gateway(stack, row, lambda: Unread(bench, "dialogs"))
        off = open_gateway(stack, row, lambda: Unread(bench, "dialogs", "--batch-max", "1"))
        if not on or not off:
            return [row]
        combined, single = SendThroughput(bench, on, "unread-send on"), SendThroughput(bench, off, "unread-send off")
        best = alternate(bench.rounds, {"--batch-max 1": single.measure}, combined.measure)
        throughput_row(row, *best, 5, combined.problems + single.problems)
        add_note(row, f"batches of {combined.batch_size:.0f} / {single.batch_size:.0f}")
        return [row]


# -- from send to badge --------------------------------------------------------------------------


class BadgeLoad:
    """
    Messages on a schedule to users who all follow their counters, in one thread. The latency of the nth message to a
    user runs from the time it was due until that user's stream says n or more.
    """

    def __init__(self, port, seconds):
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.streams, self.free, self.received = [], [], {}
        self.due = [[] for _ in range(BADGE_USERS)]  # when each message to a user was due
        self.seen = [0] * BADGE_USERS
        self.latencies = []
        self.total = int(BADGE_RATE * seconds)
        self.answered = 0

    def connect(self, kind, user=None):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(client, selectors.EVENT_READ, (kind, user))
        self.received[client] = b""
        return client

    def open(self):
        for user in range(BADGE_USERS):
            client = self.connect("stream", user)
            client.sendall(f"GET /counters/user/user-{user}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while b'"count":' not in self.received[client]:
                self.received[client] += client.recv(4096)
            self.received[client] = b""
        self.free = [self.connect("send") for _ in range(BADGE_CONNECTIONS)]

    def close(self):
        for client in self.received:
            client.close()
        self.selector.close()

    def send(self, number, due):
        user, client = number % BADGE_USERS, self.free.pop()
        body = f'{{"receiverId":"user-{user}","text":"Hello!"}}'
        self.due[user].append(due)
        client.sendall(
            f"POST /dialogs/send HTTP/1.1\r\nHost: localhost\r\nX-User-Id: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def take(self, client, kind, user):
        data = client.recv(65536)
        if not data:
            raise Failed("a connection was closed")
        self.received[client] += data
        if kind == "stream":
            self.take_events(client, user)
        elif b"\r\n\r\n" in self.received[client] and self.received[client].endswith(b"}"):
            if not self.received[client].startswith(b"HTTP/1.1 200"):
                raise Failed(f"an answer: {self.received[client][:200]}")
            self.received[client] = b""
            self.free.append(client)
            self.answered += 1

    def take_events(self, client, user):
        now, end = time.monotonic(), 0
        for event in EVENT.finditer(self.received[client]):
            end, count = event.end(), int(event.group(1))
            for number in range(self.seen[user], min(count, len(self.due[user]))):
                self.latencies.append((now - self.due[user][number]) * 1e3)
            self.seen[user] = max(self.seen[user], count)
        self.received[client] = self.received[client][end:]

    def run(self):
        """Returns the latencies in ms, sorted. Every message was seen."""
        start, number = time.monotonic() + 0.1, 0
        give_up = start + self.total / BADGE_RATE + 20
        while len(self.latencies) < self.total:
            now = time.monotonic()
            if now > give_up:
                raise Failed(f"{self.total} messages were due, {self.answered} answered, {len(self.latencies)} seen")
            while number < self.total and self.free and start + number / BADGE_RATE <= now:
                self.send(number, start + number / BADGE_RATE)
                number += 1
            pause = start + number / BADGE_RATE - now if number < self.total and self.free else 0.05
            for key, _ in self.selector.select(max(0.0, min(pause, 0.05))):
                self.take(key.fileobj, *key.data)
        return sorted(self.latencies)


def unread_badge(bench):
    what = f"send to badge: {BADGE_RATE} messages/s, {BADGE_USERS} streams, PostgreSQL + RabbitMQ + Redis: p99"
    row = Row("unread-badge", what, at_least="<= 250 ms")
    with ExitStack() as stack:
        unread = open_gateway(stack, row, lambda: Unread(bench, "dialogs,counters"))
        if not unread:
            return [row]
        load = BadgeLoad(unread.quipu.port, bench.seconds)
        stack.callback(load.close)
        load.open()
        latencies = load.run()
        problem = unread.counted_problem()
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    loads.record(tool="badge", label="unread-badge", messages=len(latencies), p50_ms=p50, p99_ms=p99)
    row.quipu, row.ok = f"{p99:.0f} ms", p99 <= 250 and not problem
    row.values = {"p50_ms": p50, "p99_ms": p99, "max_ms": latencies[-1]}
    add_note(row, f"p50 {p50:.0f}, max {latencies[-1]:.0f} ms; {len(latencies):,} messages", problem)
    return [row]


# -- how far counters are behind -----------------------------------------------------------------


class Lag:
    """Samples how many messages were committed and how many events were applied, while the `with` block runs."""

    def __init__(self, quipu, every_s=0.05):
        self.quipu, self.every_s = quipu, every_s
        self.times, self.sent, self.taken = [], [], []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def sample(self):
        taken = self.quipu.metric("quipu_inbox_taken_total", QUEUES[0])  # read first, so that it cannot seem to be ahead
        sent = self.quipu.metric("quipu_batch_size_sum", 'lane="dialogs-write-')
        self.times.append(time.monotonic())
        self.taken.append(taken)
        self.sent.append(sent)

    def work(self):
        while not self.stopped.wait(self.every_s):
            self.sample()

    def __enter__(self):
        self.sample()
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.stopped.set()
        self.thread.join()

    def wait_for_all(self, goal, limit_s=60):
        deadline = time.monotonic() + limit_s
        while self.taken[-1] < goal and time.monotonic() < deadline:
            time.sleep(self.every_s)

    def worst_s(self):
        """Returns the longest time from when a number of messages was sent until that number was counted."""
        worst = 0.0
        for at, taken in zip(self.times, self.taken):
            place = bisect.bisect_right(self.sent, taken)  # the first sample with more sent than are taken now
            if place < len(self.times) and self.times[place] < at:
                worst = max(worst, at - self.times[place])
        return worst


def unread_lag(bench):
    row = Row("unread-lag", "counters behind at 70 % of the peak of sends, PostgreSQL + RabbitMQ + Redis")
    row.at_least = "< 1 s"
    with ExitStack() as stack:
        unread = open_gateway(stack, row, lambda: Unread(bench, "dialogs,counters"))
        if not unread:
            return [row]
        throughput = SendThroughput(bench, unread, "unread-lag peak")
        peak = max(throughput.measure() for _ in range(bench.rounds))
        unread.tidy()
        options = {"rate": 0.7 * peak, "poisson": True, "connections": 256, "items": USERS, "prefix": "user-"}
        with Lag(unread.quipu) as lag:
            result = loads.openloop(
                "unread-lag", bench.openloop_program, unread.quipu.port, bench.seconds, {**options, "messages": True},
                loads.run_batch_job)
            lag.sample()
            lag.wait_for_all(lag.sent[-1])
        problems = throughput.problems + [text for text in (unread.counted_problem(),) if text]
    worst = lag.worst_s()
    row.quipu, row.ok = f"{worst:.2f} s", worst < 1 and not problems
    row.values = {"peak_per_s": peak, "lag_s": worst, **result}
    add_note(row, f"peak {peak:,.0f}/s, then {result['goodput_per_s']:,.0f}/s", *problems)
    return [row]


# -- reading -------------------------------------------------------------------------------------


def unread_read(bench):
    row = Row("unread-read", f"cached counters of {USERS:,} users, PostgreSQL + Redis / GET /healthz")
    with ExitStack() as stack:
        unread = open_gateway(stack, row, lambda: Unread(bench, "counters"))
        if not unread:
            return [row]
        unread.run(
            "INSERT INTO counters (user_id, type, count, last_updated, version) "
            f"SELECT 'user-' || n, 'UnreadMessages', n, now(), 1 FROM generate_series(1, {USERS}) n")
        problems = []

        def measure(label, request):
            result = loads.wrk(label, unread.quipu.port, request, USERS, bench.seconds)
            if result["status_errors"] or result["socket_errors"]:
                problems.append(f"{label}: {result['status_errors']} refused, {result['socket_errors']} socket errors")
            bench.say(f"{label}: {result['per_s']:,.0f}/s")
            return result["per_s"]

        measure("unread-read fill", COUNTER)  # the cache gets to know its users
        best = alternate(bench.rounds, {"/healthz": lambda: measure("unread-read healthz", HEALTH)},
                         lambda: measure("unread-read counter", COUNTER))
        throughput_row(row, *best, 0.6, problems)
    return [row]


CASES = {
    "unread-send": unread_send,
    "unread-badge": unread_badge,
    "unread-lag": unread_lag,
    "unread-read": unread_read,
}
