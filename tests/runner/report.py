"""The end of a run: what failed and how to run it again, what was skipped and why, a table, and one line of totals."""

import collections

from .progress import clock
from .results import FAILED, PASSED, SKIPPED


def print_failures(cases):
    for case in cases:
        if case.outcome == FAILED:
            print(f"\n==== FAILED {case.name}\n{case.text.strip()}")
            if case.rerun:
                print(f"\nrun it again: {case.rerun}")


def print_skips(cases, notes):
    by_reason = collections.defaultdict(list)
    for case in cases:
        if case.outcome == SKIPPED:
            by_reason[" ".join(case.text.split())].append(case.name)
    for reason, names in by_reason.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"skipped {names[0]}{more}: {reason}")
    for note in dict.fromkeys(notes):
        print(f"note: {note}")


def print_table(cases):
    rows = collections.defaultdict(collections.Counter)
    for case in cases:
        rows[case.kind, case.engine][case.outcome] += 1
    print(f"\n{'kind':<12}{'engine':<12}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for (kind, engine), counts in rows.items():
        print(f"{kind:<12}{engine:<12}{counts[PASSED]:>8}{counts[FAILED]:>8}{counts[SKIPPED]:>9}")


def print_times(seconds, cases, most):
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:most]
    print("\nslowest jobs:   " + ", ".join(f"{name} {took:.0f} s" for name, took in slowest))
    tests = sorted(cases, key=lambda case: -case.seconds)[:most]
    print("slowest tests:  " + ", ".join(f"{case.name} {case.seconds:.0f} s" for case in tests))


def print_totals(cases, elapsed_s):
    """The last line is the one that other programs read."""
    counts = collections.Counter(case.outcome for case in cases)
    print(f"\ntook {clock(elapsed_s)}")
    skipped = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
    print(f"{counts[PASSED]} passed, {counts[FAILED]} failed{skipped}")
    return 1 if counts[FAILED] or not counts[PASSED] else 0
