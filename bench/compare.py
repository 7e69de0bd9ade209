#!/usr/bin/python3
"""Compares two builds of Quipu in alternating runs, so that a busy machine slows both alike.

    bench/compare.py BEFORE AFTER            paths of the two programs
    bench/compare.py BEFORE AFTER --rounds 8 --seconds 5 --loads send

Measures increases of counts, without a key on one item and spread over 10,000, and with keys and bodies spread over
10,000, and messages to 10,000 users (`send`), on PostgreSQL and SQLite; and on PostgreSQL and Kafka sends of the
gateway over 64 and 256 connections (`gateway-64`, `gateway-256`). Prints the median of the pairwise ratios
AFTER / BEFORE and their range. Exit status: 0 if every median is at least --at-least.
"""

import sys
import time
from contextlib import ExitStack

import cases
import gateway_cases
import loads
import paired
import unread_cases
from servers import Failed, Kafka, Quipu, RabbitMQ

LOADS = {"one": 1, "spread": cases.ITEMS, "keyed": cases.ITEMS, "send": cases.ITEMS}
GATEWAY_LOADS = {"gateway-64": 64, "gateway-256": 256}


class PostgresDialogs(unread_cases.Unread):
    def __init__(self, bench):
        super().__init__(bench, "dialogs")


class SqliteDialogs:
    """A Quipu on its default store, and a virtual host of RabbitMQ."""

    def __init__(self, bench):
        self.rabbitmq, self.host = bench.shared(RabbitMQ), bench.new_database()
        options = ("--roles", "dialogs", "--unread-bus", self.rabbitmq.new_host(self.host))
        self.quipu = Quipu(bench.root, bench.quipu_program, None, options)

    def __enter__(self):
        self.quipu.__enter__()
        return self

    def __exit__(self, *exception):
        self.quipu.stop()

    def tidy(self):
        """Waits, because events that wait to be published would take processors from the next run."""
        while self.quipu.metric("quipu_outbox_pending") > 0:
            time.sleep(0.1)
        self.rabbitmq.purge(self.host, *unread_cases.QUEUES)
        loads.settle()


SENDS = {"postgres": PostgresDialogs, "sqlite": SqliteDialogs}


def arguments():
    parser = paired.parser(__doc__.splitlines()[0], at_least=0.97)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--loads", type=paired.words, default=list(LOADS), help=", ".join([*LOADS, *GATEWAY_LOADS]))
    return parser.parse_args()


def rate(counts, load, number, seconds):
    """Returns the rate of the run with this number."""
    counts.tidy()
    if load == "keyed":
        return loads.wrk_keyed("compare", counts.quipu.port, LOADS[load], f"run-{number}-", seconds)["per_s"]
    if load == "send":
        return loads.wrk("compare", counts.quipu.port, unread_cases.SEND, LOADS[load], seconds)["per_s"]
    return loads.wrk("compare", counts.quipu.port, cases.INCREASE, LOADS[load], seconds)["per_s"]


def compare(store, load, benches, options):
    kind = (SENDS if load == "send" else paired.COUNTS)[store]
    name = f"{load}-{store}"
    with kind(benches[0]) as before, kind(benches[1]) as after:
        print(f"{name}: before, after, ratio", flush=True)
        return paired.compare(name, (before, after), lambda side, number: rate(side, load, number, options.seconds),
                              options.rounds)


def compare_gateways(load, benches, options):
    kafka, connections = benches[0].shared(Kafka), GATEWAY_LOADS[load]
    with ExitStack() as stack:
        sides = []
        for bench in benches:
            gateway = stack.enter_context(gateway_cases.PostgresGateway(bench, bus=kafka))
            sides.append(gateway_cases.SendThroughput(bench, gateway, load, connections=connections))
        print(f"{load}: before, after, ratio", flush=True)
        median = paired.compare(load, sides, lambda side, _: side.measure(), options.rounds)
        if problems := sides[0].problems + sides[1].problems:
            raise Failed("; ".join(problems))
        return median


def main():
    options = arguments()
    with paired.benches((options.before, options.after), options) as benches:
        medians = [compare(store, load, benches, options) for load in options.loads if load in LOADS
                   for store in options.stores]
        medians += [compare_gateways(load, benches, options) for load in options.loads if load in GATEWAY_LOADS]
    return 0 if min(medians) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
