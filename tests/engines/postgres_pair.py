"""A private pair of PostgreSQL servers: a primary and a standby that has everything the primary has acknowledged."""

import contextlib
import subprocess

from . import shared
from .postgres import Database, Postgres
from .process import with_us
from .waiting import HANG_S, wait_until


class Standby(Postgres):
    """A copy of a running server, which follows it until promote()."""

    name = "standby"

    def __init__(self, primary, **settings):
        self._primary = primary
        super().__init__(**settings)

    def _initdb(self):
        command = [self._programs / "pg_basebackup", "-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "postgres",
                   "-D", self.data, "-R", "-c", "fast"]
        subprocess.run(with_us(command, self.user), cwd="/", stdin=subprocess.DEVNULL, timeout=HANG_S, check=True)

    def _answers(self):
        """As long as it follows the primary, its state is `standby`."""
        with contextlib.suppress(FileNotFoundError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return (lines[0], lines[7].strip()) in {(str(self.pid), "standby"), (str(self.pid), "ready")}
        return False

    def promote(self):
        """Returns when it accepts writes."""
        command = [self._programs / "pg_ctl", "-D", self.data, "promote", "-w"]
        subprocess.run(with_us(command, self.user), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       timeout=HANG_S, check=True)


class Pair:
    """Two servers with synchronous replication. `primary` and `standby` keep their names after a failover."""

    def __init__(self):
        self.primary = shared.own_postgres()
        self.standby = None

    def __enter__(self):
        self.primary.start()
        self.standby = Standby(self.primary).start()
        self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.execute("SELECT pg_reload_conf()")
        wait_until(self._is_synchronous, "the standby is synchronous")
        return self

    def _is_synchronous(self):
        return Database(self.primary, "postgres").query(
            "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'") != []

    def __exit__(self, *_):
        for server in (self.standby, self.primary):
            if server:
                server.close()

    def create_database(self):
        return PairDatabase(self, self.primary.create_database().name)


class PairDatabase(Database):
    """A database of both servers. Its URL names both; queries go to the one that accepts writes."""

    def __init__(self, pair, name):
        super().__init__(pair.primary, name)
        self._pair = pair

    def use(self, server):
        """From now on, queries go to this server."""
        self.server = server

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self._pair.primary, self._pair.standby))
        return f"postgres://postgres@{hosts}/{self.name}"
