"""The binary of the release before, for the rolling upgrade: built from its commit and kept in build-prove/."""

import os
import pathlib
import re
import shutil
import subprocess

from engines.server import Unavailable
from harness.previous import COMMIT, VERSION

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build-prove"
# What both releases can serve at the same time. On PostgreSQL, dialogs of 0.1.0 are stopped before 0.2.0 starts
# (CHANGELOG.md); on SQLite there is only one process, so everything is.
SIDE_BY_SIDE = {"postgres": ["counts", "gateway", "entitlements", "pots"],
                "sqlite": ["counts", "gateway", "entitlements", "pots", "dialogs"]}


def find(wanted):
    """`wanted` is a binary, a commit or tag, or None for the newest release before this commit."""
    if wanted and os.access(wanted, os.X_OK) and pathlib.Path(wanted).is_file():
        return pathlib.Path(wanted).resolve()
    return build(commit_of(wanted or newest_release()))


def newest_release():
    """The newest tag v… that does not name this very commit; without tags, the commit that the tests of upgrades use."""
    tags = _git("tag", "--list", "v[0-9]*", "--sort=-version:refname", "--merged", "HEAD").split()
    here = commit_of("HEAD")
    for tag in tags:
        if commit_of(tag) != here:
            return tag
    if not _has(COMMIT):
        raise Unavailable(f"the history has neither a tag of a release nor the commit of {VERSION}, {COMMIT[:12]}")
    return COMMIT


def _has(commit):
    """A shallow clone does not have old commits."""
    return subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def known_options(binary):
    """The options that a binary lists in its help."""
    text = subprocess.run([str(binary), "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))


def commit_of(name):
    return _git("rev-parse", "--verify", f"{name}^{{commit}}").strip()


def build(commit):
    binary = KEPT / f"quipu-{commit[:12]}"
    if binary.exists():
        return binary
    tree = KEPT / f"tree-{commit[:12]}"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    for command in (["meson", "setup", "build"], ["ninja", "--quiet", "-C", "build"]):
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{commit[:12]} cannot be built: {(done.stdout + done.stderr)[-300:]}")
    shutil.copy(tree / "build" / "quipu", binary)
    shutil.rmtree(tree)
    return binary


def _git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout
