"""The binary of the release before, for the rolling upgrade: built from its commit and kept in build-prove/."""

import os
import pathlib
import shutil
import subprocess

from engines.server import Unavailable

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build-prove"


def find(wanted):
    """`wanted` is a binary, a commit or tag, or None for the newest release before this commit."""
    if wanted and os.access(wanted, os.X_OK) and pathlib.Path(wanted).is_file():
        return pathlib.Path(wanted).resolve()
    return build(commit_of(wanted or newest_release()))


def newest_release():
    """The newest tag v… that does not name this very commit."""
    tags = _git("tag", "--list", "v[0-9]*", "--sort=-version:refname", "--merged", "HEAD").split()
    here = commit_of("HEAD")
    for tag in tags:
        if commit_of(tag) != here:
            return tag
    raise Unavailable("there is no earlier release (a tag v…)")


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
