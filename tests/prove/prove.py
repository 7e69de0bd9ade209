#!/usr/bin/python3
"""Proves on this machine that nothing acknowledged is lost and nothing happens twice, whatever breaks.

Starts private engines and several processes of Quipu, plays clients of every role against them, breaks one thing after
another as the seed has it, and then checks every single answer. Prints one line for each invariant, and writes a report
to read in a browser.

Exit status: 0 if everything holds; 1 if something is violated; 2 if the run could not be done as planned.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import platform
import random
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "e2e")]

import previous  # noqa: E402  (its folder is named above)
import report  # noqa: E402
from cluster import ROLES  # noqa: E402
from engines.server import Unavailable  # noqa: E402
from faults import KINDS  # noqa: E402
from part import Part, Settings  # noqa: E402

SQLITE_SHARE = 1 / 6  # of the time, if both stores are proved
UPGRADE_SHARE = 1 / 10  # of a store's time, for the upgrade from the previous release
UPGRADE_FROM_MINUTES = 3  # a shorter run has none, unless --faults asks for it
UPGRADE_FAULTS = ["quipu-upgrade", "quipu-kill", "quipu-stop", "quipu-restart", "quipu-reload"]
LINE_EVERY_S = 10
DEFAULT_MINUTES = 12
OPERATIONS_LEAST, ROLE_LEAST = 1_500_000, 50_000  # of a default run; fewer are noted


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="length of the load in all (%(default)s)")
    parser.add_argument("--seed", type=int, help="decides load and faults; without it, a new one")
    parser.add_argument("--only", type=_list_of(ROLES), help="services, separated by commas: " + ", ".join(ROLES))
    parser.add_argument("--store", choices=["postgres", "sqlite", "both"], default="both")
    parser.add_argument("--faults", type=_list_of([*KINDS, "none"]), help="kinds, separated by commas; or none")
    parser.add_argument("--rate", type=int, default=0, help="the most operations per second")
    parser.add_argument("--previous", help="binary or commit from which a rolling upgrade begins")
    parser.add_argument("--no-recovery", action="store_true", help="do not measure how fast engines come back")
    parser.add_argument("--keep", choices=["violated", "always", "never"], nargs="?", default="violated", const="always",
                        help="whether the logs stay: if something is violated (the default), always, or never. Those of a run "
                             "that is not valid always stay")
    parser.add_argument("--report", type=pathlib.Path, default=ROOT / "prove-report.html")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="folder of the build to prove")
    parser.add_argument("--binary", type=pathlib.Path, help="the program to prove, if it is another")
    parser.add_argument("--list-faults", action="store_true", help="describe every kind of fault, and exit")
    return parser.parse_args()


def again(arguments, seed):
    """What to type for the same load and the same faults."""
    chosen = [f"--seed {seed}", f"--minutes {arguments.minutes:g}"]
    chosen += [f"--{name} {','.join(value)}" for name, value in (("only", arguments.only), ("faults", arguments.faults)) if value]
    chosen += [f"--store {arguments.store}"] if arguments.store != "both" else []
    chosen += [f"--rate {arguments.rate}"] if arguments.rate else []
    chosen += [f"--previous {arguments.previous}"] if arguments.previous else []
    chosen += ["--no-recovery"] if arguments.no_recovery else []
    return f'make prove ARGS="{" ".join(chosen)}"'


def _list_of(known):
    def parse(text):
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return names

    return parse


class Progress:
    """One line that changes, on a terminal; otherwise a line every ten seconds."""

    def __init__(self):
        self._is_terminal = sys.stdout.isatty()
        self._next = 0.0
        self._stage = None

    def show(self, part):
        now = time.monotonic()
        stage = part.doing.partition(" ")[0]
        if now < self._next and (self._is_terminal or stage == self._stage):
            return
        self._next = now + (0.5 if self._is_terminal else LINE_EVERY_S)
        self._stage = stage
        text = self._text(part)
        if self._is_terminal:
            print(f"\r\033[K{text[:os.get_terminal_size().columns - 1]}", end="", flush=True)
        else:
            print(text, flush=True)

    @staticmethod
    def _text(part):
        text = f"{part.result.name} {int(part.elapsed_s) // 60}:{int(part.elapsed_s) % 60:02}  {part.doing}"
        if part.load:
            text += f"  {part.load.acknowledged:,} operations"
        if part.conductor:
            active = ", ".join(f"{fault.kind} on {fault.target}" for fault in part.conductor.active())
            text += f"  {len(part.conductor.happened)} of {len(part.schedule.faults)} faults  {active}"
        return text

    def end(self):
        if self._is_terminal:
            print("\r\033[K", end="", flush=True)


def plan_parts(arguments, settings):
    """[(settings, store, seconds), …]. Each store has a part with everything, and a short one for the upgrade; if --faults
    names the upgrade, that is all there is."""
    stores = ["postgres", "sqlite"] if arguments.store == "both" else [arguments.store]
    shares = {"sqlite": SQLITE_SHARE, "postgres": 1 - SQLITE_SHARE} if len(stores) == 2 else {stores[0]: 1}
    plan = []
    for store in stores:
        seconds = shares[store] * arguments.minutes * 60
        upgrade = upgrade_of(settings, store)
        upgrade_s = 0 if not upgrade else seconds if settings.faults else UPGRADE_SHARE * seconds
        if upgrade_s < seconds:
            plan.append((dataclasses.replace(settings, previous=None), store, seconds - upgrade_s))
        if upgrade_s:
            plan.append((upgrade, store, upgrade_s))
    return plan


def upgrade_of(settings, store):
    """The settings of the part that begins with the previous release; None: there is none."""
    services = [service for service in settings.services if service in previous.SIDE_BY_SIDE[store]]
    if not settings.previous or not services:
        return None
    return dataclasses.replace(settings, services=services, faults=settings.faults or UPGRADE_FAULTS, measures_recovery=False)


def run_parts(arguments, settings):
    results = []
    for part_settings, store, seconds in plan_parts(arguments, settings):
        progress = Progress()
        try:
            results.append(Part(part_settings, store, seconds, progress.show).run())
        finally:
            progress.end()
        print_part(results[-1])
    return results


def print_part(result):
    print(f"\n{result.name}: {result.operations:,} operations acknowledged "
          f"({roles_text(result.roles)}), {len(result.faults)} faults")
    for note in result.notes:
        print(f"  note: {note}")
    for invariant in result.invariants:
        print(("  " if invariant.holds else "! ") + invariant.text().replace("\n", "\n      "))
    for recovery in result.recoveries:
        print(f"  recovery of {recovery.line()}")
    for failure in result.failures:
        print(f"! not as planned: {failure}")
    if result.directory:
        print(f"  logs: {result.directory}")
    sys.stdout.flush()


def roles_text(roles):
    return ", ".join(f"{role} {count:,}" for role, count in roles.items())


def roles_of(results):
    """{role: operations} of the whole run."""
    total = collections.Counter()
    for result in results:
        total.update(result.roles)
    return total


def shortfalls(results):
    """What a default run should have reached, in sentences."""
    operations = sum(result.operations for result in results)
    if operations < OPERATIONS_LEAST:
        yield f"only {operations:,} operations, where a run of this length should have {OPERATIONS_LEAST:,}"
    for role, count in roles_of(results).items():
        if count < ROLE_LEAST:
            yield f"only {count:,} operations of {role}, where a run of this length should have {ROLE_LEAST:,}"


def is_default(arguments):
    return arguments.minutes >= DEFAULT_MINUTES and arguments.store == "both" and not (
        arguments.only or arguments.faults or arguments.rate)


def print_summary(results, settings):
    counted = collections.Counter(fault.kind for result in results for fault in result.faults)
    print("\nfaults survived, by kind:")
    for kind, count in sorted(counted.items()):
        print(f"  {count:4} {kind}")
    checked = [invariant for result in results for invariant in result.invariants]
    broken = sum(not invariant.holds for invariant in checked)
    print(f"\nby role: {roles_text(roles_of(results))}")
    print(f"{sum(result.operations for result in results):,} operations, {sum(counted.values())} faults of "
          f"{len(counted)} kinds, {len(checked)} invariants, {broken} broken; seed {settings.seed}")


def find_previous(arguments, notes):
    try:
        return previous.find(arguments.previous)
    except Unavailable as reason:
        if arguments.previous:
            sys.exit(f"prove: {reason}")
        notes.append(f"no rolling upgrade: {reason}")
        return None


def settings_of(arguments, notes):
    binary = arguments.binary or arguments.build / "quipu"
    load = arguments.build / "tests" / "prove" / "prove-load"
    for program in (binary, load):
        if not os.access(program, os.X_OK):
            sys.exit(f"prove: no program at {program}: make build")
    faults = [] if arguments.faults == ["none"] else arguments.faults
    upgrades = arguments.minutes >= UPGRADE_FROM_MINUTES if faults is None else "quipu-upgrade" in faults
    return Settings(binary=binary, load=load, seed=arguments.seed if arguments.seed is not None else random.randrange(1, 1 << 31),
                    services=arguments.only or list(ROLES), faults=faults, rate=arguments.rate,
                    previous=find_previous(arguments, notes) if upgrades else None,
                    measures_recovery=not arguments.no_recovery, keep=arguments.keep)


def list_faults():
    for kind in KINDS.values():
        print(f"{kind.name:22} {next(word for word in map(lambda c: c.__doc__, kind.__mro__) if word).splitlines()[0]}")


def main():
    arguments = parse_arguments()
    if arguments.list_faults:
        list_faults()
        return 0
    # Being ended must end everything that was started.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    notes = []
    settings = settings_of(arguments, notes)
    print(f"seed {settings.seed}, {arguments.minutes:g} minutes, {', '.join(settings.services)}; "
          f"{os.cpu_count()} cores, {platform.machine()}, load average {os.getloadavg()[0]:.1f}", flush=True)
    for note in notes:
        print(f"note: {note}")
    sys.stdout.flush()
    try:
        results = run_parts(arguments, settings)
    except KeyboardInterrupt:
        print("\nprove: interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    except Unavailable as reason:
        print(f"prove: {reason}", file=sys.stderr)
        return 2
    missed = list(shortfalls(results)) if is_default(arguments) else []
    results[0].notes[:0] = [*notes, *missed]
    print_summary(results, settings)
    for note in missed:
        print(f"note: {note}")
    report.write(arguments.report, results, again(arguments, settings.seed))
    print(f"report: {arguments.report}")
    if any(result.is_violated for result in results):
        print(f"VIOLATED. Again with: {again(arguments, settings.seed)}")
        return 1
    if any(result.failures for result in results):
        print("Nothing is violated, but the run was not as planned, so it proves less than it should.")
        return 2
    print("Everything holds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
