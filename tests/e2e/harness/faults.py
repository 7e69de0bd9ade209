"""Faults of the machine under a SQLite store: a full disk, an fsync that fails. And the writes that strace sees."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess

from engines import process

from .waiting import wait_until


NO_LEAK_CHECK = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}  # LeakSanitizer cannot work under ptrace


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
def _strace(pid, directory, *options):
    """Traces all threads of a process while the block runs. Yields the file with their calls."""
    if shutil.which("strace") is None:
        raise Unavailable("strace is not installed")
    messages, calls = pathlib.Path(directory) / "strace-messages", pathlib.Path(directory) / "strace-calls"
    with messages.open("wb") as output:
        tracer = process.start(["strace", "-f", "-p", str(pid), "-o", calls, *options], stdout=output, stderr=output)
    try:
        wait_until(lambda: tracer.poll() is not None or "attached" in messages.read_text(), "strace attaches")
        if tracer.poll() is not None:
            raise Unavailable(f"strace cannot trace: {messages.read_text().strip()}")
        yield calls
    finally:
        process.end(tracer, signal.SIGINT)


def failing_fsync(pid, directory):
    """While the block runs, every fsync and fdatasync of the process fails with EIO."""
    return _strace(pid, directory, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")


def traced_writes(pid, directory):
    """Notes every write of the process while the block runs. Yields a file, complete after the block, with a line for
    each; of a socket it names the addresses of both ends."""
    return _strace(pid, directory, "-yy", "-e", "trace=write,writev,sendto,sendmsg", "-e", "signal=none")
