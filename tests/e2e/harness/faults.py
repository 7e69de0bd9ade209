"""Faults of the machine under a SQLite store: a full disk, an fsync that fails."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess

from engines import process

from .waiting import wait_until


class Unavailable(Exception):
    """This machine does not allow the tests to cause that fault."""


@contextlib.contextmanager
def small_disk(directory, size):
    """Mounts a tmpfs of `size` (in mount's notation) on `directory`."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], capture_output=True, text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"a tmpfs cannot be mounted: {done.stderr.strip()}")
    try:
        yield pathlib.Path(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill_disk(directory):
    """Writes a file until the disk is full, and returns its path. Removing the file makes room again."""
    filler = pathlib.Path(directory) / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
    return filler


@contextlib.contextmanager
def failing_fsync(pid, directory):
    """While the block runs, every fsync and fdatasync of the process fails with EIO."""
    if shutil.which("strace") is None:
        raise Unavailable("strace is not installed")
    messages = pathlib.Path(directory) / "strace-messages"
    with messages.open("wb") as output:
        tracer = process.start(
            ["strace", "-f", "-p", str(pid), "-o", os.devnull, "-e", "trace=fsync,fdatasync",
             "-e", "inject=fsync,fdatasync:error=EIO"],
            stdout=output, stderr=output,
        )
    try:
        wait_until(lambda: tracer.poll() is not None or "attached" in messages.read_text(), "strace attaches")
        if tracer.poll() is not None:
            raise Unavailable(f"strace cannot trace: {messages.read_text().strip()}")
        yield
    finally:
        process.end(tracer, signal.SIGINT)
