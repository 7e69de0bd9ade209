"""How long answers of the gateway take: of sends at half their peak, and of what needs no bus while Kafka hangs."""

import http.client
import json
import threading
import time
from contextlib import ExitStack

import loads
from cases import Row, errors_of
from gateway_cases import NO_LIMIT, USERS, WINDOW_MIN, PostgresGateway, SendThroughput, add_note, open_gateway
from servers import Failed, Kafka

CONNECTIONS = (64, 256)
SEND_MAX_MS = 20
HANG_MAX_MS = 50
HANG_S = 2.5  # a send is given up after 3 s, and from then on the bus is known to be down
STARTED_S = 5.0


def gateway_latency(bench):
    """Sends at half the peak of the same connections, with Poisson arrivals; latency from the time a send was due."""
    rows = []
    with ExitStack() as stack:
        for connections in CONNECTIONS:
            what = f"sends over {USERS:,} users at half the peak of {connections} connections, PostgreSQL + Kafka: p99"
            rows.append(Row(f"gateway-latency-{connections}", what, at_least=f"<= {SEND_MAX_MS} ms, no error"))
        gateway = open_gateway(stack, rows[0], lambda: PostgresGateway(bench, bus=bench.shared(Kafka)))
        for row, connections in zip(rows, CONNECTIONS) if gateway else ():
            fill_latency_row(bench, gateway, row, connections)
    return rows


def fill_latency_row(bench, gateway, row, connections):
    throughput = SendThroughput(bench, gateway, f"{row.name} peak", connections=connections)
    peak = max(throughput.measure() for _ in range(bench.rounds))
    gateway.tidy()
    options = {"rate": peak / 2, "poisson": True, "connections": 512, "items": USERS, "prefix": "user-", "warmup": 1}
    result = loads.openloop(row.name, bench.openloop_program, gateway.quipu.port, bench.seconds, {**options, "sends": True})
    accepted = result["accepted"]
    problems = throughput.problems + [text for text in (errors_of(result),) if text]
    row.quipu, row.ok = f"{accepted['p99_ms']:.1f} ms", accepted["p99_ms"] <= SEND_MAX_MS and not problems
    row.values = {"peak_per_s": peak, "p99_ms": accepted["p99_ms"], **result}
    add_note(row, f"peak {peak:,.0f}/s, p50 {accepted['p50_ms']:.1f}, p99.9 {accepted['p999_ms']:.1f} ms", *problems)


# -- while Kafka hangs -----------------------------------------------------------------------------


class Client:
    """One connection, and how long each answer on it took."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.times_ms = []

    def ask(self, path, body):
        began = time.monotonic()
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        answer.read()
        self.times_ms.append((time.monotonic() - began) * 1000)
        return answer.status


def configuration(user, limit):
    return {"userId": user, "rateLimit": limit, "timeWindow": WINDOW_MIN}


def send_on(port, user):
    """A thread with a send of its own."""
    thread = threading.Thread(target=lambda: Client(port).ask("/api/send", {"userId": user, "message": "Hello!"}))
    thread.start()
    return thread


def wait_under_way(quipu, count):
    """Until that many sends have reserved their slots and wait for the bus."""
    deadline = time.monotonic() + STARTED_S
    while quipu.metric("quipu_effects_under_way") < count:
        if time.monotonic() > deadline:
            raise Failed("no send waits for the bus")
        time.sleep(0.005)


def gateway_hang(bench):
    """One lane, so that everything goes through the lane whose sends wait."""
    row = Row("gateway-hang", "configurations and refusals while Kafka hangs, one lane: p99",
              at_least=f"<= {HANG_MAX_MS} ms")
    with ExitStack() as stack:
        kafka = bench.shared(Kafka)
        gateway = open_gateway(stack, row, lambda: PostgresGateway(bench, "--lanes", "1", bus=kafka))
        if not gateway:
            return [row]
        if not kafka.is_real:
            row.note = "skipped: no Kafka can be had here, and librdkafka's mock cluster cannot hang"
            return [row]
        fill_hang_row(gateway, kafka, row)
    return [row]


def fill_hang_row(gateway, kafka, row):
    port, client = gateway.quipu.port, Client(gateway.quipu.port)
    client.ask("/api/config", configuration("refused", 1))
    if client.ask("/api/send", {"userId": "refused", "message": "Hello!"}) != 200:
        raise Failed("the first send was not accepted")
    client.times_ms.clear()
    with kafka.server.frozen():
        sends = [send_on(port, f"user-{n}") for n in range(1, 33)]
        wait_under_way(gateway.quipu, 1)
        until = time.monotonic() + HANG_S
        statuses = {}
        while time.monotonic() < until:
            for status in (client.ask("/api/config", configuration("other", NO_LIMIT)),
                           client.ask("/api/send", {"userId": "refused", "message": "Hello!"})):
                statuses[status] = statuses.get(status, 0) + 1
        waiting = sum(send.is_alive() for send in sends)
    for send in sends:
        send.join()
    times = sorted(client.times_ms)
    p99 = times[int(len(times) * 0.99)]
    row.quipu, row.ok = f"{p99:.1f} ms", p99 <= HANG_MAX_MS and set(statuses) == {200, 429} and waiting > 0
    row.values = {"p99_ms": p99, "p50_ms": times[len(times) // 2], "max_ms": times[-1], "answers": len(times)}
    add_note(row, f"{len(times)} answers, p50 {times[len(times) // 2]:.1f}, max {times[-1]:.1f} ms; "
             f"{waiting} of {len(sends)} sends still waited at the end; answers {statuses}")


CASES = {"gateway-latency": gateway_latency, "gateway-hang": gateway_hang}
