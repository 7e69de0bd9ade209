"""A private Citus cluster: a coordinator and workers, each a PostgreSQL server on a free port with temporary data.

Citus is what the user has installed: pg_config (or $PG_CONFIG) says where. A database of the cluster is a database on
every node, made from a template in which the extension and the nodes are known already: creating the extension takes a
second on each of them.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import subprocess

from .postgres import Database, Databases, Postgres
from .server import Unavailable
from .waiting import wait_until

TEMPLATE = "quipu_template"
WORKERS = 2
SETTINGS = {
    "shared_preload_libraries": "citus",
    "wal_level": "logical",  # shards are moved by logical replication
    "max_prepared_transactions": "600",
    "max_connections": "600",
    "max_wal_senders": "20",
    "max_replication_slots": "40",
    "max_worker_processes": "200",  # one per database, and more while shards move
    "max_logical_replication_workers": "20",
    "citus.max_background_task_executors_per_node": "2",
    "citus.enable_statistics_collection": "off",
    "citus.shard_count": "4",
    "citus.node_conninfo": "sslmode=disable",  # the servers have no certificates
}


def programs():
    """The folder of a PostgreSQL that has Citus."""
    config = os.environ.get("PG_CONFIG") or shutil.which("pg_config")
    if not config:
        raise Unavailable("there is no pg_config to find Citus with; name one with PG_CONFIG")
    folders = [pathlib.Path(_ask(config, what)) for what in ("--bindir", "--pkglibdir")]
    if not (folders[1] / "citus.so").exists():
        raise Unavailable(f"Citus is not installed for {config}; name another PostgreSQL with PG_CONFIG")
    return folders[0]


def _ask(config, what):
    try:
        return subprocess.run([config, what], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as reason:
        raise Unavailable(f"{config} does not run: {reason}") from reason


class Cluster(Databases):
    """Databases of a cluster whose nodes are known by their ports, the coordinator first."""

    def __init__(self, ports, log):
        super().__init__(ports[0], log)
        self.nodes = [self, *(Databases(port, log) for port in ports[1:])]
        self.template = TEMPLATE

    def create_database(self):
        name = self.new_name()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: _copy_database(node, self.template, name), self.nodes))
        return DistributedDatabase(self, name)

    def use_as_template(self, database):
        """Databases that are created from now on begin as this one, which nobody can use any more."""
        for node in self.nodes:
            _close_database(node, database.name)
        self.template = database.name


def _copy_database(node, template, name):
    """Settings of a role in a database do not come along by themselves."""
    node.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    with contextlib.closing(node.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT unnest(setconfig) FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase "
                       "WHERE datname = %s AND setrole = 'postgres'::regrole", (template,))
        for (setting,) in cursor.fetchall():
            key, value = setting.split("=", 1)
            cursor.execute(f"ALTER ROLE postgres IN DATABASE {name} SET {key} = %s", (value,))


class DistributedDatabase(Database):
    """A database on every node; its URL is the coordinator's."""

    user = "postgres"

    @property
    def url(self):
        return f"postgres://{self.user}@127.0.0.1:{self.server.port}/{self.name}"

    def of_user(self, user):
        """The same for another user."""
        other = DistributedDatabase(self.server, self.name)
        other.user = user
        return other

    def on_workers(self, sql):
        return [Database(node, self.name).query(sql) for node in self.server.nodes[1:]]

    def on_each_node(self, sql):
        return [self.query(sql), *self.on_workers(sql)]

    def _prepared(self):
        """The nodes with transactions that are prepared and neither committed nor rolled back yet."""
        asked = "SELECT 1 FROM pg_prepared_xacts WHERE database = %s"
        return [node for node in self.server.nodes if Database(node, "postgres").query(asked, (self.name,))]

    def _recover(self):
        """Has the node that prepared them decide about transactions whose session has ended; true if none is left."""
        if self._prepared():
            self.on_each_node("SELECT recover_prepared_transactions()")
        return not self._prepared()

    def drop(self):
        """A server that was killed leaves prepared transactions, and a database that has some cannot be dropped. The
        coordinator's database is dropped first: its background worker would connect to the others."""
        wait_until(self._recover, f"no transaction of {self.name} is prepared")
        for node in self.server.nodes:
            node.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


class Citus(Cluster):
    """A cluster that this process starts and ends."""

    name = "citus"

    def __init__(self, workers=WORKERS, **settings):
        found, settings = programs(), {**SETTINGS, **settings}
        first = Postgres(programs=found, **settings)
        copy = first.save_template()
        self.servers = [first, *(Postgres(copy, found, **settings) for _ in range(workers))]
        super().__init__([server.port for server in self.servers], first.log)
        self.nodes = self.servers

    @property
    def coordinator(self):
        return self.servers[0]

    @property
    def workers(self):
        return self.servers[1:]

    def start(self):
        for server in self.servers:
            server.start()
        self._make_template()
        return self

    def _make_template(self):
        for server in self.servers:
            server.execute(f"CREATE DATABASE {TEMPLATE}")
            server.execute("CREATE EXTENSION citus", TEMPLATE)
        self.execute(f"SELECT citus_set_coordinator_host('127.0.0.1', {self.port})", TEMPLATE)
        for worker in self.workers:
            self.execute(f"SELECT citus_add_node('127.0.0.1', {worker.port})", TEMPLATE)
        for server in self.servers:
            _close_database(server, TEMPLATE)

    def add_worker(self, database):
        """One more node, which this database knows and which has no shards of it yet."""
        server = Postgres(programs=programs(), **SETTINGS).start()
        self.servers.append(server)
        server.execute(f"CREATE DATABASE {TEMPLATE}")  # Citus remembers the name of the database it was created in
        server.execute(f"CREATE DATABASE {database.name}")
        server.execute("CREATE EXTENSION citus", database.name)
        database.query(f"SELECT citus_add_node('127.0.0.1', {server.port})")
        return server

    def describe(self):
        """What `attach` needs in another process."""
        return json.dumps({"ports": [server.port for server in self.servers], "log": str(self.log)})

    def close(self):
        for server in self.servers:
            server.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def _close_database(server, name):
    """A database that is copied must have no sessions, not even that of Citus's background worker."""
    server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    server.execute(f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{name}'")


def attach(description):
    """Creates databases in a cluster that another process has started."""
    fields = json.loads(description)
    return Cluster(fields["ports"], fields["log"])
