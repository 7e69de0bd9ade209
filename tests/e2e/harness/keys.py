"""API keys as an operator handles them: created by `quipu keys new`, kept in a file, read again on SIGHUP."""

import pathlib
import signal

from .quipu import run
from .waiting import wait_until

READ_AGAIN = "SIGHUP: the keys were read again"
KEPT = "the previous keys stay in use"


class Key:
    """What a client gets, and the line for it in the file."""

    def __init__(self, binary, name, scopes=None):
        done = run(binary, "keys", "new", name, *(["--scopes", scopes] if scopes else []))
        assert done.returncode == 0, done.stderr
        self.line = done.stdout.rstrip("\n")
        self.shown = done.stderr.splitlines()[-1]
        assert self.shown.startswith(f"qk_{name}_") and "\n" not in self.line
        self.secret = self.shown.removeprefix(f"qk_{name}_")
        self.headers = {"Authorization": f"Bearer {self.shown}"}


class KeyFile:
    """A file of keys: `file.new("shop", "internal:counts")` adds one."""

    def __init__(self, binary, path):
        self._binary = binary
        self.path = pathlib.Path(path)
        self._keys = []

    def new(self, name, scopes=None):
        key = Key(self._binary, name, scopes)
        self._keys.append(key)
        self._write()
        return key

    def drop(self, key):
        self._keys.remove(key)
        self._write()

    def _write(self):
        self.path.write_text("# id, SHA-256, scopes\n" + "".join(f"{key.line}\n" for key in self._keys))

    def reload(self, server, told=READ_AGAIN):
        """Returns when the server has read the file again."""
        before = server.log_text().count(told)
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.log_text().count(told) > before, told)
