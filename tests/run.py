#!/usr/bin/python3
"""Builds the program for testing, runs tests, and ends with one line of totals.

tests/run.py [SET | JOB…] [--list] [--tree TREE] [--build TARGET] [--jobs N]

    quick (the default)          make test: every promise once
    rest                         what make test-full adds: TSan, faults, attacks, images
    full                         both
    citus, ha                    make test-citus, make test-ha
    unit, contract/claim, …      the jobs whose names begin so; --list shows them
    contract/claim/postgres:TEST one test of a cmocka program; TEST may end with *
    tests/e2e/test_x.py::test_y  one test, as pytest names it

With --tree build-coverage, quick and full end with the lines of src/ that they ran, and fail below the minimums.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from runner import coverage, plan, report  # noqa: E402  (their folder is named above)
from runner.execute import Execution  # noqa: E402
from runner.progress import Progress  # noqa: E402
from runner.servers import Servers, use_scratch  # noqa: E402

TIMES = "build-times.json"  # how long each job took last time, in order to run the longest first
INTERRUPTED = 130
# How long whole sets take on two cores, until this machine has run them once.
USUAL_S = {"quick": 350, "rest": 960, "full": 1300, "citus": 360}
SLOTS = 6  # how many jobs run at once; most of them wait most of the time


def arguments_of(words):
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], description=__doc__.split("\n\n", 2)[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", default=["quick"], help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="print the names of the jobs, run nothing")
    parser.add_argument("--tree", choices=plan.TREES, help="the build for all tests but those under TSan; without it, "
                        f"{plan.PLAIN} for end-to-end tests and {plan.ASAN} for the others")
    parser.add_argument("--build", default="", metavar="TARGET", help="build only this for tests named by tests/…")
    parser.add_argument("--jobs", type=int, default=SLOTS, help="how many at once")
    return parser.parse_args(words)


def jobs_of(word, arguments):
    """Returns the jobs that one word of the command line stands for."""
    if word in plan.SETS:
        return plan.SETS[word](arguments.tree)
    if word.startswith("tests/"):
        job = plan.pytest(word, "e2e", [word], arguments.tree or plan.PLAIN)
        job.targets = (arguments.build,) if arguments.build else job.targets
        return [job]
    name, _, test = word.partition(":")
    known = [job for name in ("full", "citus", "ha") for job in plan.SETS[name](arguments.tree)]
    jobs = [job for job in known if job.name == name or job.name.startswith(name + "/")]
    if not jobs:
        sys.exit(f"tests/run.py: there is no job {name}; --list shows all")
    for job in jobs:
        if test:
            job.env["QUIPU_TEST_FILTER"] = test
    return jobs


def times_of_last_run():
    file = plan.ROOT / TIMES
    return json.loads(file.read_text()) if file.exists() else {}


def remember_times(times, seconds):
    (plan.ROOT / TIMES).write_text(json.dumps({**times, **{name: round(took, 2) for name, took in seconds.items()}}))


def main(words):
    arguments = arguments_of(words)
    jobs = [job for word in arguments.chosen for job in jobs_of(word, arguments)]
    if arguments.list:
        print("\n".join(job.name for job in jobs))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    is_measured = arguments.tree == plan.COVERAGE and bool({"quick", "full"} & set(arguments.chosen))
    return run(jobs, " ".join(arguments.chosen), arguments.jobs, is_measured)


def run(jobs, chosen, slots, is_measured):
    times = times_of_last_run()
    jobs.sort(key=lambda job: -times.get(job.name, job.seconds))
    scratch = use_scratch()
    progress = Progress(jobs, times, times.get(chosen, USUAL_S.get(chosen)))
    servers = Servers(sorted({name for job in jobs for name in job.needs}))
    execution = Execution(jobs, slots, servers, progress)
    if is_measured:
        coverage.forget()
    interrupted = False
    try:
        execution.run()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        servers.close()
        shutil.rmtree(scratch, ignore_errors=True)
        progress.end()
    remember_times(times, execution.seconds if interrupted else {**execution.seconds, chosen: progress.elapsed_s})
    cases = execution.cases + (coverage.report() if is_measured and not interrupted else [])
    report.print_failures(cases)
    report.print_table(cases)
    report.print_times(execution.seconds, cases, 8)
    report.print_skips(cases, execution.notes + servers.notes)
    if interrupted:
        print("interrupted: this is what had run")
    status = report.print_totals(cases, progress.elapsed_s)
    return INTERRUPTED if interrupted else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
