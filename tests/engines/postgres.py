"""A private PostgreSQL server on a free port with temporary data, and databases in it.

Servers run as the user postgres when the tests run as root, because PostgreSQL refuses root.
`fsync` is off: the tests end processes, not machines, and what a process wrote survives it.
"""

import contextlib
import itertools
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess

import psycopg2

from .process import children, with_us
from .server import Server, Unavailable
from .waiting import HANG_S

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "deadlock_timeout": "100ms",
    "log_lock_waits": "on",
    "log_line_prefix": "%m [%p] %d ",
}

# A record begins with SETTINGS' log_line_prefix; its further lines begin with a tab.
RECORD_HEAD = r"\d{4}-\d\d-\d\d [\d:.]+ \w+ \[\d+\] "
RECORD_START = rf"(?m)^(?={RECORD_HEAD})"


def _programs():
    """The folder of initdb and pg_ctl: Debian keeps them out of PATH, newest version last."""
    on_path = shutil.which("initdb")
    if on_path:
        return pathlib.Path(on_path).resolve().parent
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if not found:
        raise Unavailable("PostgreSQL is not installed (no initdb)")
    return found[-1].parent


class Databases:
    """Databases of one server, created for any number of processes, and its log."""

    _names = itertools.count(1)  # of all objects: two of them may stand for one server

    def __init__(self, port, log):
        self.port = port
        self.log = pathlib.Path(log)

    def connect(self, database="postgres"):
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=database)
        connection.autocommit = True
        return connection

    def execute(self, sql, database="postgres"):
        with contextlib.closing(self.connect(database)) as connection:
            connection.cursor().execute(sql)

    def new_name(self):
        return f"test_{os.getpid()}_{next(self._names)}"

    def create_database(self):
        name = self.new_name()
        self.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return Database(self, name)

    def log_tail(self, size=4000):
        return self.log_since(max(0, self.log_size() - size))

    def log_size(self):
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, offset):
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")


class Postgres(Server, Databases):
    name = "postgres"
    user = "postgres" if os.geteuid() == 0 else None

    def __init__(self, template=None, programs=None, **settings):
        """`template` is the data folder of a server that was never started: copying it is faster than initdb.
        `programs` is the folder of initdb and postgres, where it is not the usual one."""
        self._programs = programs or _programs()
        Server.__init__(self)
        Databases.__init__(self, self.new_port(), self.log)
        self.output = self.errors = self.log
        self._settings = {**SETTINGS, "unix_socket_directories": str(self.directory), **settings}
        self.directory.chmod(0o755)
        if self.user:
            owner = pwd.getpwnam(self.user)
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
        self.data = self.directory / "data"
        if template:
            subprocess.run(["cp", "-a", str(template), str(self.data)], check=True)
        else:
            self._initdb()

    def _initdb(self):
        command = [self._programs / "initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
                   "--locale=C.UTF-8", "-N"]
        done = subprocess.run(
            with_us(command, self.user), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed ({done.returncode}):\n{done.stdout}")

    def save_template(self):
        """A copy of the data for others to start from. The server must not have been started."""
        template = self.directory / "template"
        subprocess.run(["cp", "-a", str(self.data), str(template)], check=True)
        return template

    def _command(self):
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [self._programs / "postgres", "-D", self.data, "-p", str(self.port), *settings]

    def _answers(self):
        """What pg_ctl looks at: in its file, the first line is the server's pid and the eighth its state."""
        with contextlib.suppress(FileNotFoundError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return (lines[0], lines[7].strip()) == (str(self.pid), "ready")
        return False

    def stop(self, mode="fast"):
        """`fast` breaks off the sessions and shuts down in order; `immediate` is a crash."""
        self._end({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    @contextlib.contextmanager
    def frozen(self):
        """While the block runs, the server and all its sessions are stopped: connected, and silent."""
        stopped = [self.pid, *children(self.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def describe(self, template):
        """What `attach` needs in another process."""
        return json.dumps({"port": self.port, "log": str(self.log), "template": str(template)})


def attach(description):
    """Creates databases in a server that another process has started."""
    fields = json.loads(description)
    return Databases(fields["port"], fields["log"])


def template_of(description):
    return json.loads(description)["template"]


class Database:
    def __init__(self, server, name):
        self.server = server
        self.name = name

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.server.port}/{self.name}"

    def connect(self):
        return self.server.connect(self.name)

    def query(self, sql, arguments=None):
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return cursor.fetchall() if cursor.description else []

    def on_each_node(self, sql):
        """The rows of every server that keeps a part of the database."""
        return [self.query(sql)]

    def value(self, item):
        """The value in the table, or None where there is no such row."""
        rows = self.query("SELECT current_value FROM count_values WHERE item_id = %s", (item,))
        return rows[0][0] if rows else None

    @contextlib.contextmanager
    def locked_row(self, item):
        """Another session holds this row's lock until the block ends or `release` is called."""
        with contextlib.closing(self.connect()) as connection:
            connection.autocommit = False
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM count_values WHERE item_id = %s FOR UPDATE", (item,))
                assert cursor.fetchone() is not None, f"there is no row {item} to lock"
            yield connection.rollback

    @contextlib.contextmanager
    def locked_table(self, table):
        """Another session holds this table's lock until the block ends or `release` is called: nobody reads it either."""
        with contextlib.closing(self.connect()) as connection:
            connection.autocommit = False
            with connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield connection.rollback

    def terminate_sessions(self):
        """What an administrator's pg_terminate_backend does; returns how many sessions there were."""
        with contextlib.closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s", (self.name,)
            )
            return cursor.fetchone()[0]

    def log_since(self, offset):
        """What the server's log says about this database: others use the server too."""
        records = re.split(RECORD_START, self.server.log_since(offset))
        return "".join(record for record in records if re.match(rf"{RECORD_HEAD}{self.name} ", record))

    def drop(self):
        self.server.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
