#!/usr/bin/python3
"""Plants one mistake at a time into a copy of the sources, builds it, and expects the proof to find it.

Usage: tests/prove/planted.py [--minutes M] [--seed N] [--jobs N] [NAME ...]   names of patches in planted/; none: all

A patch begins with the lines What (the mistake), Only, Store and Faults (what prove.py runs: the services and the faults
that matter). First the proof runs without a patch, on each store, with all services and faults that the patches name: it
must find nothing. With --jobs, several proofs run at the same time; the programs are still built one after another. The
copy and the programs lie in build-planted; the checkout is never changed.
"""

import argparse
import concurrent.futures
import dataclasses
import pathlib
import shutil
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent)]

from runner.copied_tree import CopiedTree, DoesNotApply, read_header  # noqa: E402  (its folder is named above)

PATCHES = HERE / "planted"
BUILT = ROOT / "build-planted"
TREE = CopiedTree(BUILT / "tree")
TREE_LOCK = threading.Lock()  # held while the tree has a mistake in it
HANG_S = 900  # beyond the minutes of the load
RATE = 3000  # operations per second: SQLite could do far more, but what a minute shows would take minutes to check
HOLDS, VIOLATED = 0, 1


class Broken(Exception):
    """The run shows nothing: the patch does not build, or the proof could not be done."""


@dataclasses.dataclass
class Planted:
    name: str
    what: str
    only: str
    store: str
    faults: str
    outcome: str = ""


def read_planted(names):
    known = {path.stem: path for path in sorted(PATCHES.glob("*.patch"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no patch has the name {' or '.join(unknown)}; there are: {' '.join(known)}")
    fields = {name: read_header(known[name]) for name in names or known}
    return [Planted(name, f["What"], f["Only"], f["Store"], f["Faults"]) for name, f in fields.items()]


# ---- building --------------------------------------------------------------------------------------------------------


def build(name):
    """Builds the copy as it is and keeps the program under this name."""
    folder = TREE.folder / "build"
    if not (folder / "build.ninja").exists():
        _run(["meson", "setup", str(folder), "-Dbench=true"], cwd=TREE.folder)
    _run(["ninja", "-C", str(folder), "quipu", "tests/prove/prove-load"])
    target = BUILT / "bin" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "quipu", target)
    return target


def _run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise Broken(f"{' '.join(command[:3])}: {(done.stdout + done.stderr)[-3000:]}")


def build_planted(planted):
    """The program with the mistake in it; the copy is as the checkout again afterwards."""
    with TREE_LOCK:
        try:
            TREE.plant(PATCHES / f"{planted.name}.patch")
            return build(planted.name)
        finally:
            TREE.synchronize()


# ---- proving ---------------------------------------------------------------------------------------------------------


def prove(program, planted, minutes, seed):
    """Runs the proof. Returns whether it holds, and the lines that say what does not."""
    command = [str(HERE / "prove.py"), "--build", str(TREE.folder / "build"), "--binary", str(program), "--only",
               planted.only, "--store", planted.store, "--faults", planted.faults, "--minutes", f"{minutes:g}", "--seed",
               str(seed), "--no-recovery", "--keep", "never", "--rate", str(RATE),
               "--report", str(BUILT / f"{planted.name}.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=minutes * 60 + HANG_S, check=False)
    (BUILT / f"{planted.name}.log").write_text(done.stdout + done.stderr)
    if done.returncode not in (HOLDS, VIOLATED):
        raise Broken(f"prove.py ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.returncode == HOLDS, [line[2:] for line in done.stdout.splitlines() if line.startswith("! ")]


def prove_clean(planted, minutes, seed):
    """Without a mistake, nothing may be found. Returns the stores on which something was."""
    program = build("clean")
    wrong = []
    for store in dict.fromkeys(p.store for p in planted):
        faults = {fault for p in planted if p.store == store for fault in p.faults.split(",")} - {"none"}
        only = dict.fromkeys(p.only for p in planted if p.store == store)
        clean = Planted(f"clean-{store}", "", ",".join(only), store, ",".join(sorted(faults)) or "none")
        try:
            holds, found = prove(program, clean, minutes, seed)
        except (Broken, subprocess.TimeoutExpired) as reason:
            holds, found = False, [str(reason)]
        print(f"  without a mistake, {store}: {'holds' if holds else f'VIOLATED: {found}'}", flush=True)
        wrong += [] if holds else [store]
    return wrong


def try_planted(planted, minutes, seed):
    """Returns the mistake with its outcome, what to say about it, and how many seconds it took."""
    began = time.monotonic()
    try:
        holds, found = prove(build_planted(planted), planted, minutes, seed)
        planted.outcome = "MISSED" if holds else "caught"
        said = "MISSED" if holds else f"caught by \"{found[0] if found else 'the end of a process'}\""
    except (Broken, DoesNotApply, subprocess.TimeoutExpired) as reason:
        planted.outcome, said = "BROKEN", f"BROKEN: {reason}"
    return planted, said, time.monotonic() - began


def try_all(planted, minutes, seed, jobs):
    """Tries all of them and prints a line for each as it ends."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        tried = [pool.submit(try_planted, one, minutes, seed) for one in planted]
        for number, future in enumerate(concurrent.futures.as_completed(tried), 1):
            one, said, took_s = future.result()
            print(f"  {number}/{len(planted)} {one.name} ({one.what}): {said} ({took_s:.0f} s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="length of the load for each mistake (1)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=1, help="how many proofs run at the same time (1)")
    parser.add_argument("--no-clean", action="store_true", help="leave out the runs without a mistake")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    planted = read_planted(arguments.names)
    TREE.synchronize()
    wrong = [] if arguments.no_clean else prove_clean(planted, arguments.minutes, arguments.seed)
    try_all(planted, arguments.minutes, arguments.seed, arguments.jobs)
    caught = sum(one.outcome == "caught" for one in planted)
    print(f"{caught} of {len(planted)} caught" + (f"; WITHOUT A MISTAKE, {', '.join(wrong)} IS VIOLATED" if wrong else ""))
    return 0 if caught == len(planted) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
