"""A private Redis with a replica, and three Sentinels that make the replica the master when the master dies."""

import contextlib
import re

from .redis import Redis
from .server import exchange
from .waiting import wait_until

MASTER = "quipu"
SENTINELS = 3
CONFIG = f"""\
port {{port}}
bind 127.0.0.1
dir {{folder}}
logfile {{log}}
sentinel monitor {MASTER} 127.0.0.1 {{master}} 2
sentinel down-after-milliseconds {MASTER} 1000
sentinel failover-timeout {MASTER} 5000
"""
# Only this user may ask where the master is.
USER, PASSWORD = "quipu", "s3cr3t"
RESTRICTED = f"""\
user {USER} on >{PASSWORD} ~* &* +@all
user default on nopass ~* &* +@all -sentinel|get-master-addr-by-name
"""


class Sentinel(Redis):
    """A Redis with other commands: the same program in another mode, which rewrites its configuration."""

    name = "sentinel"

    def __init__(self, master, restricted):
        super().__init__()
        self._config = self.directory / "sentinel.conf"
        self._config.write_text(CONFIG.format(port=self.port, folder=self.directory, log=self.log, master=master.port)
                                + (RESTRICTED if restricted else ""))

    def _command(self):
        return [self._program, str(self._config), "--sentinel"]

    def knows_everybody(self):
        """Whether it has found the replica and the other Sentinels."""
        text = exchange(self.port, b"INFO sentinel\r\n", 4096).decode()
        return re.search(rf"name={MASTER},status=ok,.*slaves=1,sentinels={SENTINELS}", text) is not None


class SentinelRedis:
    """`master` and `replica` keep their names after a failover. If it is restricted, clients have to log in."""

    def __init__(self, kind=Redis, restricted=False):
        options = ["--user", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all"] if restricted else []
        self._login = f"{USER}:{PASSWORD}@" if restricted else ""
        self.master = kind(*options)
        self.replica = kind(*options, "--replicaof", "127.0.0.1", str(self.master.port))
        self.sentinels = [Sentinel(self.master, restricted) for _ in range(SENTINELS)]
        self._started = contextlib.ExitStack()

    def __enter__(self):
        for server in (self.master, self.replica, *self.sentinels):
            self._started.enter_context(server)
        wait_until(self._is_complete, "every Sentinel knows everybody, and the replica follows")
        return self

    def _is_complete(self):
        follows = b"master_link_status:up" in exchange(self.replica.port, b"INFO replication\r\n", 4096)
        return follows and all(sentinel.knows_everybody() for sentinel in self.sentinels)

    def __exit__(self, *_):
        self._started.close()

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{self._login}{hosts}/{MASTER}"

    def fail_over(self):
        """What an operator does before maintenance: the two servers change places, and both stay up."""
        exchange(self.sentinels[0].port, f"SENTINEL FAILOVER {MASTER}\r\n".encode())
