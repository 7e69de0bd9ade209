"""A clean Debian in a folder: made once by debootstrap, unpacked for every test that needs one, entered with chroot.

Nothing of the machine is touched: mounts are private to each command and end with it.
"""

import fcntl
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build-package"
SUITE = "bookworm"


def run(*command, timeout=1800, **more):
    return subprocess.run([*map(str, command)], stdin=more.pop("stdin", subprocess.DEVNULL), capture_output=True,
                          text=True, timeout=timeout, check=False, **more)


def must(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout.strip()


def mirror():
    """Where apt of this machine gets its packages from."""
    uris = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {SUITE}")
    return (uris.stdout.split() or ["http://deb.debian.org/debian"])[0]


def _debootstrap(archive):
    folder = archive.with_suffix(".folder")
    shutil.rmtree(folder, ignore_errors=True)
    must("debootstrap", "--variant=minbase", SUITE, folder, mirror())
    must("tar", "-C", folder, "-cf", archive.with_suffix(".new"), ".")
    archive.with_suffix(".new").rename(archive)
    shutil.rmtree(folder)


def base_archive():
    """The smallest Debian as a tar archive, made once for all tests that need one."""
    KEPT.mkdir(exist_ok=True)
    archive = KEPT / "base.tar"
    with (KEPT / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not archive.exists():
            _debootstrap(archive)
    return archive


def what_is_missing(*programs):
    """Why no root can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "a chroot needs root"
    return next((f"{program} is not installed" for program in programs if not shutil.which(program)), "")


class CleanRoot:
    """A Debian in `folder`, with the lists of packages that apt needs."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        must("tar", "-C", folder, "-xf", base_archive())
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        self.must("apt-get", "update", "-qq")

    def command(self, *words, user=None):
        enter = 'mount -t proc proc "$1/proc" && shift && exec chroot "$@"'
        as_user = [f"--userspec={user}:{user}"] if user else []
        return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", enter, "enter", str(self.folder),
                *as_user, str(self.folder), *map(str, words)]

    def run(self, *words, **more):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        return run(*self.command(*words), env=environment, **more)

    def must(self, *words, **more):
        done = self.run(*words, **more)
        assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def path(self, inside):
        return self.folder / inside.lstrip("/")
