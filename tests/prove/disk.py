"""The disk of a program, made slow or full while the program runs: the orders that disk.c obeys."""

import contextlib
import mmap
import os
import pathlib
import struct
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parent / "disk.c"
SYNC_US, IS_FULL, SLOWED, REFUSED = range(4)  # the members of struct orders


def compile_preload(folder):
    """Builds disk.c into a folder; returns the library's path."""
    library = pathlib.Path(folder) / "disk.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared",
                    str(SOURCE), "-o", str(library), "-ldl"], check=True)
    return library


class Disk:
    """One disk, for all processes that get its `environment`."""

    def __init__(self, library, path):
        self._library = library
        self.path = pathlib.Path(path)
        self.path.write_bytes(bytes(32))
        self.path.chmod(0o666)  # PostgreSQL runs as another user and counts in it
        with self.path.open("r+b") as file:
            self._orders = mmap.mmap(file.fileno(), 32)

    def environment(self, *before):
        """What a process needs to obey; `before` are libraries to preload first."""
        return {"LD_PRELOAD": ":".join(map(str, (*before, self._library))), "PROVE_DISK": str(self.path)}

    def _read(self, member):
        return struct.unpack_from("=Q", self._orders, 8 * member)[0]

    def _write(self, member, value):
        struct.pack_into("=Q", self._orders, 8 * member, value)

    @property
    def slowed(self):
        """How many syncs were made to wait so far."""
        return self._read(SLOWED)

    @property
    def refused(self):
        """How many writes found no space so far."""
        return self._read(REFUSED)

    def slow(self, sync_us):
        self._write(SYNC_US, sync_us)

    def fill(self):
        self._write(IS_FULL, 1)

    def heal(self):
        self._write(SYNC_US, 0)
        self._write(IS_FULL, 0)

    def close(self):
        self._orders.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
