"""The place of a run's temporary files, and the servers that it shares, which start while the trees are being built.

Temporary files are kept in memory if there is room: tests end processes, not machines, and PostgreSQL creates and
deletes hundreds of files for every database, which is most of its work on a disk.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import threading

from engines import shared
from engines.server import Unavailable


MEMORY = pathlib.Path("/dev/shm")
MEMORY_MIN = 4 << 30  # bytes that must be free there
PREFIX, LOCK = "quipu-tests-", "lock"  # of a run's folder, and in it a file that the run keeps locked
_locks = []  # held until this process ends


def use_scratch():
    """Creates a folder for all temporary files of this process and those it starts; returns it."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_MIN
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY if roomy else None)
    _remove_left_behind(pathlib.Path(folder).parent)
    os.chmod(folder, 0o755)  # PostgreSQL runs as another user
    _locks.append(_lock(pathlib.Path(folder) / LOCK, "w"))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    return folder


def _lock(path, mode):
    """An open file that this process alone has locked. Raises BlockingIOError if another one has."""
    file = path.open(mode)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def _remove_left_behind(parent):
    """Folders of runs that were killed: their lock is there, and nobody holds it."""
    for path in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(BlockingIOError, FileNotFoundError), _lock(path, "r"):
            shutil.rmtree(path.parent, ignore_errors=True)


class Servers:
    def __init__(self, names):
        self._names = names
        self._running = []
        self._ready = set()
        self._threads = []
        self._folder = tempfile.mkdtemp(prefix="quipu-servers-")
        self.environment = {shared.FOLDER: self._folder}
        self.notes = []

    def start(self, changed):
        """`changed` is called whenever a server answers, or is known not to be had."""
        for name in self._names:
            thread = threading.Thread(target=self._start_one, args=(name, changed), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _start_one(self, name, changed):
        try:
            self._running.append(shared.STARTERS[name](self._folder))
        except (Unavailable, RuntimeError, OSError) as reason:
            self.notes.append(f"{name} is not shared: {reason}")  # tests that need it say so themselves
        self._ready.add(name)
        changed()

    def is_ready(self, name):
        return name in self._ready

    def close(self):
        for thread in self._threads:
            thread.join()
        for server in self._running:
            server.close()
        shutil.rmtree(self._folder, ignore_errors=True)
