"""`quipu demo`, started and watched."""

import contextlib
import os
import re

from engines import process

from .http import Connection
from .quipu import environment
from .waiting import wait_until

ENDED = "The traffic has ended. The server runs until Ctrl-C."


class Demo:
    """A running `quipu demo`, whose temporary folders are in `folder`."""

    def __init__(self, binary, folder, *arguments, env=None):
        self.folder, self._output, self.errors = folder / "temporary", folder / "stdout", folder / "stderr"
        self.folder.mkdir()
        with self._output.open("wb") as stdout, self.errors.open("wb") as stderr:
            self.process = process.start([binary, "demo", "--listen", "127.0.0.1:0", *arguments], stdout=stdout,
                                         stderr=stderr, env=environment({"TMPDIR": str(self.folder), **(env or {})}))
        line = wait_until(lambda: re.search(r"console +http://127\.0\.0\.1:(\d+)/console\n", self.output()), "it welcomes")
        self.port = int(line.group(1))
        (self.server,) = process.children(self.process.pid)

    def output(self):
        return self._output.read_text()

    def ask(self, method, path, body=None, headers=None):
        with Connection(self.port) as connection:
            answer = connection.ask(method, path, body, headers)
        assert answer.status == 200, answer
        return answer

    def server_is_gone(self):
        return not os.path.exists(f"/proc/{self.server}")


@contextlib.contextmanager
def running_demo(binary, folder, *arguments, env=None):
    """Starts `quipu demo`, and ends it and its server at the end of the block."""
    one = Demo(binary, folder, *arguments, env=env)
    try:
        yield one
    finally:
        process.end(one.process)
        wait_until(one.server_is_gone, "the server ends with the demo")
