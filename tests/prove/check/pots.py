"""No coin appears or disappears: what lies in a pot is what was added and not removed, kind by kind, and at any time a
list shows no more and no less than the changes around it allow."""

import bisect
import itertools

from .result import Finding, Invariant

KINDS = ("BRONZE", "SILVER", "GOLD")
NUMBERS = {1: "BRONZE", 10: "SILVER", 100: "GOLD"}


def coins_of(operation):
    """What an answer lists, by kind."""
    listed = {coin["kind"]: coin["count"] for coin in operation.json()["coins"]}
    return tuple(listed.get(kind, 0) for kind in KINDS)


class Pot:
    def __init__(self, maximum):
        self.maximum = maximum
        self.added, self.removed = [], []  # (operation, coins)
        self.unknown = []
        self.lists = []


def read_pots(log):
    pots = {}
    for operation in log.of("create"):
        if operation.succeeded:
            pots[operation.json()["pot_id"]] = Pot(int(operation.arguments[1]))
    for operation in log.of("add", "remove", "draw", "list"):
        pot = pots.get(int(operation.arguments[0]))
        if pot is None or operation.kind == "list" and not operation.succeeded:
            continue
        if operation.unknown:
            pot.unknown.append(operation)
        elif operation.succeeded:
            {"add": pot.added, "list": pot.lists}.get(operation.kind, pot.removed).append((operation, coins_of(operation)))
    return pots


def check(log, tables, cluster):
    pots = read_pots(log)
    held = {}
    for pot_id, denomination, count in tables.rows("pots", "SELECT pot_id, denomination, coin_count FROM coin"):
        held.setdefault(pot_id, dict.fromkeys(KINDS, 0))[NUMBERS[denomination]] = count
    return [_check_sums(log, pots, held), _check_answers(log), _check_lists(log, pots)]


def _check_sums(log, pots, held):
    invariant = Invariant("pots: what a pot holds is what was added and not removed")
    unknown = 0
    for pot_id, pot in pots.items():
        invariant.covered += len(pot.added) + len(pot.removed)
        if pot.unknown:
            unknown += 1
            continue
        now = held.get(pot_id, dict.fromkeys(KINDS, 0))
        for kind, name in enumerate(KINDS):
            expected = sum(c[kind] for _, c in pot.added) - sum(c[kind] for _, c in pot.removed)
            if now[name] != expected:
                last = sorted(pot.added + pot.removed, key=lambda change: change[0].answered)[-2:]
                invariant.findings.append(Finding(f"pot {pot_id} holds {now[name]} {name}, and {expected} were acknowledged",
                                                  log.lines_of(*(operation for operation, _ in last))))
        if sum(now.values()) > pot.maximum:
            invariant.findings.append(Finding(f"pot {pot_id} holds {sum(now.values())} coins of at most {pot.maximum}"))
    invariant.note = f"{unknown} pots not judged: a change stayed unknown" if unknown else ""
    return invariant


def _check_answers(log):
    """An addition adds what was asked; a removal takes at most that."""
    invariant = Invariant("pots: nothing else comes out than was asked for")
    for operation in log.of("add", "remove", "draw"):
        if not operation.succeeded:
            continue
        invariant.covered += 1
        coins = coins_of(operation)
        if operation.kind == "draw":
            fits = sum(coins) <= int(operation.arguments[1])
        else:
            asked = tuple(map(int, operation.arguments[1].split(",")))
            fits = coins == asked if operation.kind == "add" else all(c <= a for c, a in zip(coins, asked))
        if not fits:
            invariant.findings.append(Finding(f"{operation} moved {coins}", log.lines_of(operation)))
    return invariant


class Running:
    """Sums of changes by time: all that began, or had ended, before a moment."""

    def __init__(self, changes, kind):
        self._begun, self._begun_sums = self._sums(changes, kind, "invoked")
        self._ended, self._ended_sums = self._sums(changes, kind, "answered")

    @staticmethod
    def _sums(changes, kind, when):
        ordered = sorted((getattr(operation, when), coins[kind]) for operation, coins in changes)
        return [at for at, _ in ordered], [0, *itertools.accumulate(count for _, count in ordered)]

    def begun_by(self, at):
        return self._begun_sums[bisect.bisect_right(self._begun, at)]

    def ended_before(self, at):
        return self._ended_sums[bisect.bisect_left(self._ended, at)]


def _check_lists(log, pots):
    invariant = Invariant("pots: a list shows what was in the pot at that time")
    for pot_id, pot in pots.items():
        if pot.unknown:
            continue
        for kind, name in enumerate(KINDS):
            added, removed = Running(pot.added, kind), Running(pot.removed, kind)
            for operation, coins in pot.lists:
                least = added.ended_before(operation.invoked) - removed.begun_by(operation.answered)
                most = added.begun_by(operation.answered) - removed.ended_before(operation.invoked)
                if not least <= coins[kind] <= most:
                    invariant.findings.append(Finding(f"pot {pot_id} listed {coins[kind]} {name}, but held {least} to {most}",
                                                      log.lines_of(operation)))
        invariant.covered += len(pot.lists)
    return invariant
