"""Fixtures of the end-to-end tests: the program under test, the stores it stands on, and clients.

Every process is started by a fixture and ended by it, by pid, whether the test passed or not. A test that fails shows
the end of the logs of the servers it used.
"""

import contextlib
import os
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from engines import shared  # noqa: E402  (the folders are named above)
from engines.ports import Port  # noqa: E402
from engines.process import die_with_parent  # noqa: E402
from engines.rabbitmq import RabbitMQ  # noqa: E402
from harness.available import available  # noqa: E402
from harness import nats as nt  # noqa: E402
from harness import redis as rd  # noqa: E402
from harness.counts import Counts  # noqa: E402
from harness.entitlements import Entitlements, PostgresBus, SqliteLocal  # noqa: E402
from harness.gateway import Gateway  # noqa: E402
from harness.gateway_stacks import PostgresStack, SqliteStack  # noqa: E402
from harness.openapi import OpenApi  # noqa: E402
from harness.pots import Pots  # noqa: E402
from harness.quipu import Quipu  # noqa: E402
from harness.rabbitmq import Host  # noqa: E402
from harness.stores import PostgresStore, SqliteStore  # noqa: E402
from harness.unread import PostgresUnread, SqliteUnread, Unread  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORES = ["sqlite", "postgres"]
ENTITLEMENT_STACKS = ["sqlite-local", "postgres-nats"]
STACKS = ["sqlite-memory", "sqlite-none", "postgres-none", "postgres-redis"]  # of the gateway: store and cache
UNREAD_STACKS = ["sqlite-local-memory", "postgres-rabbitmq-redis"]  # of dialogs and counters
# For clients that send a request in many pieces: however long that takes, no deadline of the server ends it.
PATIENT = ["--head-timeout", "1h", "--body-timeout", "1h", "--idle-timeout", "1h", "--deadline", "1h"]
LOGS = pytest.StashKey()


def pytest_configure(config):
    """SIGTERM ends the run like Ctrl-C does, so that fixtures end their processes. A worker of a run that is killed
    ends at once, and its processes with it."""
    if hasattr(config, "workerinput"):
        die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for title, tail in item.stash.get(LOGS, []):
            report.sections.append((title, tail()))


def show_on_failure(node, title, tail):
    """`tail` is called when the test fails, and what it returns is shown under `title`."""
    node.stash.setdefault(LOGS, []).append((title, tail))


@pytest.fixture(scope="session")
def binary():
    """The program: $QUIPU, or what the ASan build makes."""
    path = pathlib.Path(os.environ.get("QUIPU", ROOT / "build-asan" / "quipu")).resolve()
    assert os.access(path, os.X_OK), f"no program at {path}: build it, or set QUIPU to its path"
    return path


@pytest.fixture
def free_port():
    """A port on which nobody listens, unless a server of the test does."""
    with Port() as port:
        yield port.number


@pytest.fixture(scope="session")
def openapi():
    return OpenApi.from_files()


@pytest.fixture(scope="session")
def postgres_server():
    """The PostgreSQL of the run, to create databases in. Tests that stop or kill one use `own_postgres`."""
    with available(shared.databases) as server:
        yield server


@pytest.fixture
def own_postgres(request):
    with available(shared.own_postgres) as server:
        show_on_failure(request.node, "PostgreSQL's log", server.log_tail)
        yield server


@pytest.fixture
def database(postgres_server, request):
    """A fresh database."""
    start = postgres_server.log_size()
    fresh = postgres_server.create_database()
    show_on_failure(request.node, "PostgreSQL's log", lambda: fresh.log_since(start)[-4000:])
    yield fresh
    fresh.drop()


@pytest.fixture
def postgres_store(database, tmp_path):
    return PostgresStore(database, tmp_path)


@pytest.fixture
def sqlite_store(tmp_path):
    return SqliteStore(tmp_path / "data")


@pytest.fixture(params=STORES)
def store(request):
    """A fresh store; a test that asks for it runs once on each engine."""
    return request.getfixturevalue(f"{request.param}_store")


class Servers:
    """Starts servers and ends them all: `serve(store, '--batch-max', 1)`."""

    def __init__(self, binary, directory, node):
        self._binary = binary
        self._directory = directory
        self._node = node
        self._all = []

    def __call__(self, store, *arguments, env=None, ready=True, tls=None):
        number = len(self._all) + 1
        server = Quipu(self._binary, [*store.arguments(), *arguments], self._directory / f"quipu-{number}", env, tls)
        self._all.append(server)
        show_on_failure(self._node, f"log of quipu {number}", server.log_tail)
        server.start()
        return server.wait_ready() if ready else server

    def close(self):
        problems = []
        for server in self._all:
            try:
                server.close()
            except AssertionError as problem:
                problems.append(str(problem))
        assert not problems, "\n".join(problems)


@pytest.fixture
def serve(binary, tmp_path, request):
    servers = Servers(binary, tmp_path, request.node)
    yield servers
    servers.close()


@pytest.fixture
def client(openapi):
    """Makes clients of the count service: `client(server)`."""
    made = []

    def make(server):
        made.append(Counts(server.port, openapi))
        return made[-1]

    yield make
    for counts in made:
        counts.close()


@pytest.fixture(scope="module", params=STORES)
def module_server(request, binary, tmp_path_factory):
    """One server for all tests of a module that only send requests and name their items apart."""
    directory = tmp_path_factory.mktemp("shared")
    fresh = None
    if request.param == "postgres":
        fresh = request.getfixturevalue("postgres_server").create_database()
        store = PostgresStore(fresh, directory)
    else:
        store = SqliteStore(directory / "data")
    servers = Servers(binary, directory, request.node)
    try:
        yield servers(store)
    finally:
        servers.close()
        if fresh is not None:
            fresh.drop()


@pytest.fixture(scope="module")
def module_http_server(binary, tmp_path_factory, request):
    """The same for tests of HTTP itself, to which the store does not matter."""
    directory = tmp_path_factory.mktemp("shared-http")
    servers = Servers(binary, directory, request.node)
    try:
        yield servers(SqliteStore(directory / "data"), *PATIENT)
    finally:
        servers.close()


@pytest.fixture(scope="module")
def all_roles_server(binary, tmp_path_factory, request):
    """The program as a newcomer starts it: every role, every route."""
    directory = tmp_path_factory.mktemp("all-roles")
    servers = Servers(binary, directory, request.node)
    try:
        yield servers(SqliteStore(directory / "data"), "--roles", "all")
    finally:
        servers.close()


def _watched(server, node):
    """A shared server on loan to one test: shows its part of the log, and blames the test that hurt it."""
    start = len(server.log_text())
    show_on_failure(node, "log of the shared quipu", lambda: server.log_text()[start:][-6000:])
    yield server
    server.check_alive()


@pytest.fixture
def shared_server(module_server, request):
    yield from _watched(module_server, request.node)


@pytest.fixture
def http_server(module_http_server, request):
    yield from _watched(module_http_server, request.node)


@pytest.fixture
def counts(shared_server, client):
    """A client of the module's shared server, on each engine."""
    return client(shared_server)


@pytest.fixture
def http_counts(http_server, client):
    """A client of the module's shared server for tests of HTTP itself."""
    return client(http_server)


# ---- the gateway and its sender


@pytest.fixture(scope="session")
def redis_server():
    """A Redis for all tests of this process. Tests that stop it or flush it use `own_redis`."""
    with available(rd.Redis) as server:
        yield server


@pytest.fixture
def own_redis(request):
    with available(rd.Redis) as server:
        show_on_failure(request.node, "Redis's log", server.log_tail)
        yield server


def make_stack(name, request, directory, database):
    """A stack by its name in STACKS; `database` makes a database where one is needed."""
    engine, cache = name.split("-")
    if cache == "redis":
        cache = request.getfixturevalue("redis_server").url
    return SqliteStack(directory, cache) if engine == "sqlite" else PostgresStack(directory, cache, database())


@pytest.fixture(params=STACKS)
def stack(request, tmp_path):
    """A fresh stack; a test that asks for it runs once on each."""
    return make_stack(request.param, request, tmp_path, lambda: request.getfixturevalue("database"))


@pytest.fixture
def postgres_stack(database, tmp_path):
    """Without a cache."""
    return PostgresStack(tmp_path, "none", database)


@pytest.fixture
def redis_stack(database, tmp_path, own_redis):
    """On PostgreSQL, with a Redis that belongs to the test."""
    return PostgresStack(tmp_path, own_redis.url, database)


@pytest.fixture
def gateway_client(openapi):
    """Makes clients of the gateway: `gateway_client(server)`."""
    made = []

    def make(server):
        made.append(Gateway(server.port, openapi))
        return made[-1]

    yield make
    for gateway in made:
        gateway.close()


@pytest.fixture(scope="module", params=STACKS)
def module_gateway(request, binary, tmp_path_factory):
    """One gateway for all tests of a module that only send requests, each to users of its own; and its stack."""
    directory = tmp_path_factory.mktemp("gateway")
    databases = []

    def database():
        databases.append(request.getfixturevalue("postgres_server").create_database())
        return databases[-1]

    stack = make_stack(request.param, request, directory, database)
    servers = Servers(binary, directory, request.node)
    try:
        yield servers(stack), stack
    finally:
        servers.close()
        for fresh in databases:
            fresh.drop()


@pytest.fixture
def gateway_server(module_gateway, request):
    yield from _watched(module_gateway[0], request.node)


@pytest.fixture
def gateway_stack(module_gateway):
    return module_gateway[1]


@pytest.fixture
def gateway(gateway_server, gateway_client):
    """A client of the module's shared gateway, on each stack."""
    return gateway_client(gateway_server)


# ---- pots


@pytest.fixture
def pots_client(openapi):
    """Makes clients of pots: `pots_client(server, "protobuf")`."""
    made = []

    def make(server, encoding="json"):
        made.append(Pots(server.port, openapi, encoding))
        return made[-1]

    yield make
    for pots in made:
        pots.close()


@pytest.fixture(scope="module", params=STORES)
def module_pots(request, binary, tmp_path_factory):
    """One server of pots for all tests of a module that only send requests, each to pots of its own; and its store."""
    directory = tmp_path_factory.mktemp("pots")
    fresh = None
    if request.param == "postgres":
        fresh = request.getfixturevalue("postgres_server").create_database()
        store = PostgresStore(fresh, directory)
    else:
        store = SqliteStore(directory / "data")
    servers = Servers(binary, directory, request.node)
    try:
        yield servers(store, "--roles", "pots"), store
    finally:
        servers.close()
        if fresh is not None:
            fresh.drop()


@pytest.fixture
def pots_server(module_pots, request):
    yield from _watched(module_pots[0], request.node)


@pytest.fixture
def pots(pots_server, pots_client):
    """A client of the module's shared server of pots, on each engine."""
    return pots_client(pots_server)


# ---- entitlements and notifications


@contextlib.contextmanager
def _running_nats(node):
    with available(nt.Nats) as server:
        show_on_failure(node, "NATS's log", server.log_tail)
        yield server


@pytest.fixture
def nats(request):
    """A NATS that belongs to the test: stream and durable have fixed names."""
    with _running_nats(request.node) as server:
        yield server


@pytest.fixture(scope="module")
def module_nats(request):
    with _running_nats(request.node) as server:
        yield server


@pytest.fixture
def nats_stack(database, tmp_path, nats):
    return PostgresBus(tmp_path, database, nats)


@pytest.fixture(params=ENTITLEMENT_STACKS)
def entitlement_stack(request, tmp_path):
    """A fresh stack; a test that asks for it runs once on each."""
    return SqliteLocal(tmp_path) if request.param == "sqlite-local" else request.getfixturevalue("nats_stack")


@pytest.fixture
def entitlements_client(openapi):
    """Makes clients of entitlements and notifications: `entitlements_client(server)`."""
    made = []

    def make(server):
        made.append(Entitlements(server.port, openapi))
        return made[-1]

    yield make
    for entitlements in made:
        entitlements.close()


@pytest.fixture(scope="module", params=ENTITLEMENT_STACKS)
def module_entitlements(request, binary, tmp_path_factory):
    """One server for all tests of a module that only send requests, each for users of its own; and its stack."""
    directory = tmp_path_factory.mktemp("entitlements")
    with contextlib.ExitStack() as resources:
        if request.param == "sqlite-local":
            stack = SqliteLocal(directory)
        else:
            bus = resources.enter_context(_running_nats(request.node))
            fresh = request.getfixturevalue("postgres_server").create_database()
            resources.callback(fresh.drop)
            stack = PostgresBus(directory, fresh, bus)
        servers = Servers(binary, directory, request.node)
        resources.callback(servers.close)
        yield servers(stack), stack


@pytest.fixture(scope="module")
def module_nats_stack(request, tmp_path_factory, module_nats):
    """PostgreSQL and NATS for a file whose tests share a server with options of its own."""
    fresh = request.getfixturevalue("postgres_server").create_database()
    yield PostgresBus(tmp_path_factory.mktemp("entitlements"), fresh, module_nats)
    fresh.drop()


@pytest.fixture(scope="module")
def module_serve(binary, tmp_path_factory, request):
    """`serve` for servers that the tests of a file share."""
    servers = Servers(binary, tmp_path_factory.mktemp("shared"), request.node)
    yield servers
    servers.close()


@pytest.fixture
def entitlements_server(module_entitlements, request):
    yield from _watched(module_entitlements[0], request.node)


@pytest.fixture
def shared_stack(module_entitlements):
    return module_entitlements[1]


@pytest.fixture
def entitlements(entitlements_server, entitlements_client):
    """A client of the module's shared server, on each stack."""
    return entitlements_client(entitlements_server)


# ---- dialogs and counters


@pytest.fixture(scope="session")
def rabbitmq_server():
    """The RabbitMQ of the run, to create virtual hosts in. Files whose tests stop it have one of their own."""
    with available(shared.hosts) as server:
        yield server


@pytest.fixture(scope="module")
def own_rabbitmq():
    """A RabbitMQ that belongs to one file."""
    with available(RabbitMQ) as server:
        yield server


@pytest.fixture
def full_unread(database, rabbitmq_server, redis_server, tmp_path, request):
    """PostgreSQL, RabbitMQ and Redis: what several processes share."""
    show_on_failure(request.node, "RabbitMQ's log", rabbitmq_server.log_tail)
    return PostgresUnread(tmp_path, database, Host.new(rabbitmq_server), redis_server)


@pytest.fixture
def own_redis_unread(database, rabbitmq_server, own_redis, tmp_path):
    """The same with a Redis that belongs to the test."""
    return PostgresUnread(tmp_path, database, Host.new(rabbitmq_server), own_redis)


@pytest.fixture(params=UNREAD_STACKS)
def unread_stack(request, tmp_path):
    """A fresh stack; a test that asks for it runs once on each."""
    if request.param.startswith("sqlite"):
        return SqliteUnread(tmp_path)
    return request.getfixturevalue("full_unread")


@pytest.fixture
def unread_client(openapi):
    """Makes clients of dialogs and counters: `unread_client(server)`."""
    made = []

    def make(server):
        made.append(Unread(server.port, openapi))
        return made[-1]

    yield make
    for unread in made:
        unread.close()


@pytest.fixture(scope="module", params=UNREAD_STACKS)
def module_unread(request, binary, tmp_path_factory):
    """One server for all tests of a module that only send requests, each with users of its own; and its stack."""
    directory = tmp_path_factory.mktemp("unread")
    fresh = None
    if request.param.startswith("sqlite"):
        stack = SqliteUnread(directory)
    else:
        host = Host.new(request.getfixturevalue("rabbitmq_server"))
        fresh = request.getfixturevalue("postgres_server").create_database()
        stack = PostgresUnread(directory, fresh, host, request.getfixturevalue("redis_server"))
    servers = Servers(binary, directory, request.node)
    try:
        yield servers(stack), stack
    finally:
        servers.close()
        if fresh is not None:
            fresh.drop()


@pytest.fixture
def unread_server(module_unread, request):
    yield from _watched(module_unread[0], request.node)


@pytest.fixture
def unread(unread_server, unread_client):
    """A client of the module's shared server of dialogs and counters, on each stack."""
    return unread_client(unread_server)
