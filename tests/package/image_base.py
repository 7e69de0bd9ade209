"""What the tests build images with: buildah, and a Debian to build on.

The Debian comes from a registry where one can be reached, else from debootstrap. Images and layers are kept in
build-image/, so that a second run is quick; nothing else of the machine is touched. No container engine may run here, so
programs are started with buildah's isolation by chroot, on the network of the machine.
"""

import contextlib
import fcntl
import pathlib
import re
import subprocess

from package.clean_root import ROOT, base_archive, must, run, what_is_missing

KEPT = ROOT / "build-image"
ISOLATION = ["--isolation", "chroot", "--network", "host"]
BUILDAH = ["buildah", "--root", str(KEPT / "storage"), "--runroot", str(KEPT / "run")]
CONTAINERFILE = pathlib.Path("deploy/Containerfile")
_BASE = "localhost/quipu-test-base"
_BUILD_BASE = "localhost/quipu-test-build-base"


def why_there_is_no_image():
    """Why no image can be built here; empty if one can."""
    return what_is_missing("buildah", "debootstrap")


def buildah(*arguments, **more):
    return must(*BUILDAH, *arguments, **more)


def _is_there(image):
    return run(*BUILDAH, "inspect", "--type", "image", image).returncode == 0


def _import_debootstrap():
    container = buildah("from", "scratch")
    buildah("add", "-q", container, base_archive(), "/")
    buildah("commit", "-q", "--rm", container, _BASE)


def base():
    """Debian: that of the Containerfile, or the like of it. The image's name."""
    named = re.search(r"^ARG BASE=(\S+)$", (ROOT / CONTAINERFILE).read_text(), re.MULTILINE).group(1)
    with _alone():
        if _is_there(_BASE):
            return _BASE
        with contextlib.suppress(subprocess.TimeoutExpired):
            if run(*BUILDAH, "pull", "-q", named, timeout=120).returncode == 0:
                return named
        _import_debootstrap()
    return _BASE


def build_base():
    """The same with the packages that a build needs, so that every further build begins with the compiler."""
    on = base()
    with _alone():
        buildah("build", "-q", "--layers", *ISOLATION, "--build-arg", f"BASE={on}", "--target", "packages",
                "-f", CONTAINERFILE, "-t", _BUILD_BASE, ".", cwd=ROOT)
    return _BUILD_BASE


def run_in(container, *words, env=None):
    """Runs a program in a working container; its exit status and what it printed.

    The output goes through a file. buildah forwards it by a process of its own, which on a busy machine loses what a program
    prints just before it ends: in 5 of 171 runs.
    """
    done = run(*command_in(container, "sh", "-c", 'exec "$@" >/tmp/printed 2>&1', "sh", *words, env=env))
    file = pathlib.Path(buildah("mount", container)) / "tmp/printed"
    assert file.exists(), done
    printed = file.read_text()
    file.unlink()
    return done.returncode, printed


def command_in(container, *words, env=None):
    options = [option for name, value in (env or {}).items() for option in ("--env", f"{name}={value}")]
    return [*BUILDAH, "run", *ISOLATION, *options, container, "--", *map(str, words)]


@contextlib.contextmanager
def _alone():
    """The tests of images and those of releases run at the same time."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment(on, *options):
    """What scripts/image.sh and scripts/oci_archive.sh read."""
    return {"ENGINE": " ".join(BUILDAH), "OPTIONS": " ".join([*ISOLATION, "--build-arg", f"BASE={on}", *options])}
