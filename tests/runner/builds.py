"""Builds the trees of a run, one after another, and says which are ready."""

import os
import re
import shutil
import subprocess
import threading

from engines.process import with_us

from .plan import ROOT, TREES

COMMON = ["-Dtests=true", "-Dtest_build=true", "-Dwerror=true", "-Db_lundef=false"]
# A hundred programs are linked, which gold does four times as fast.
LINKER = {"CC_LD": "gold"} if shutil.which("ld.gold") else {}
STEP = re.compile(r"^\[(\d+)/(\d+)\] ")


class Failed(Exception):
    """A tree cannot be built; the text is the compiler's output."""


class Builds:
    """A thread that builds trees in order. `is_ready` may be called from any thread."""

    def __init__(self, trees, progress, changed):
        """`trees` has the targets of each tree; none means all. `changed` is called, in the builder's thread, whenever
        a tree is ready or has failed."""
        self._trees = trees
        self._progress = progress
        self._changed = changed
        self._ready = set()
        self.failure = None
        self._process = None
        self._thread = threading.Thread(target=self._build_all, daemon=True)

    def start(self):
        self._thread.start()

    def is_ready(self, tree):
        return tree is None or tree in self._ready

    def _build_all(self):
        for tree, targets in self._trees.items():
            try:
                self._build(tree, targets)
            except (Failed, OSError) as problem:
                self.failure = str(problem)
                self._changed()
                return
            self._ready.add(tree)
            self._changed()
        self._progress.building("")

    def _build(self, tree, targets):
        self._progress.building(f"setting up {tree}")
        if not (ROOT / tree / "build.ninja").exists():
            self._run(["meson", "setup", tree, *COMMON, *TREES[tree]], tree, LINKER)
        self._run(["ninja", "-C", tree, *targets], tree)

    def _run(self, command, tree, more=None):
        env = {**os.environ, "NINJA_STATUS": "[%f/%t] ", **(more or {})}
        lines = []
        with subprocess.Popen(with_us(command), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace") as self._process:
            for line in self._process.stdout:
                lines.append(line)
                step = STEP.match(line)
                if step:
                    self._progress.building(f"building {tree} {step.group(1)}/{step.group(2)}")
        if self._process.returncode != 0:
            raise Failed(f"{' '.join(command)}:\n{''.join(lines[-60:])}")

    def stop(self):
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self._thread.join()
