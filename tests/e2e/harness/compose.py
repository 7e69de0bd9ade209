"""docker-compose.yml, and the same set of processes without containers: private engines, and every role as a process
with the environment that the file and the image give it. Only hosts and ports differ."""

import contextlib
import pathlib
import re

import yaml

from engines.kafka import Kafka
from engines.nats import Nats
from engines.server import Unavailable

from .quipu import Quipu

ROOT = pathlib.Path(__file__).resolve().parents[3]
FILE = ROOT / "docker-compose.yml"
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
PORTS = {"postgres": 5432, "redis": 6379, "kafka": 9092, "nats": 4222, "rabbitmq": 5672}  # the ports inside a container


def load():
    """Returns the file, with ${NAME:-default} replaced by the default."""
    text = FILE.read_text(encoding="utf-8")
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def roles(document):
    """{role: its service}, of all services that are built here; `all` is the one that plays every role."""
    return {service["build"]["args"]["ROLE"]: service for service in document["services"].values() if "build" in service}


def name_of(role):
    """What the service of a role is called."""
    return "quipu" if role == "all" else role


def image_of(role):
    return {"all": "quipu", "counts": "count-processing-service"}.get(role, f"quipu-{role}")


def engines(document):
    return {name: service for name, service in document["services"].items() if "build" not in service}


def image_environment():
    """Returns what the image sets for every role."""
    lines = re.findall(r"^ENV (.*)$", CONTAINERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


def environment(role, service):
    """Returns the environment of a container of the role: the image's, then the file's."""
    return {name: value.replace("${ROLE}", role) for name, value in
            {**image_environment(), **service["environment"]}.items()}


def secrets(document, service):
    """Returns {path in a container of the service: the file here}."""
    return {f"/run/secrets/{name}": str(ROOT / document["secrets"][name]["file"]) for name in service.get("secrets", [])}


def demo_key():
    """Returns the key that is printed in the comments of the key file."""
    return re.search(r"^#\s+(qk_\S+)$", (ROOT / "deploy/demo-keys").read_text(encoding="utf-8"), re.MULTILINE).group(1)


def hosts(settings):
    """Returns the engines that these settings refer to: {'postgres', …}."""
    return {name for value in settings.values() for name in PORTS if re.search(rf"[/@,]{name}:{PORTS[name]}\b", value)}


def prepare_postgres(server, service):
    """Creates the user and the database that the image would create; a private server trusts everybody."""
    given = service["environment"]
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {given['POSTGRES_DB']} WITH (FORCE)")
        cursor.execute(f"DROP ROLE IF EXISTS {given['POSTGRES_USER']}")
        cursor.execute(f"CREATE ROLE {given['POSTGRES_USER']} LOGIN")
        cursor.execute(f"CREATE DATABASE {given['POSTGRES_DB']} OWNER {given['POSTGRES_USER']}")


def prepare_rabbitmq(server, service):
    """Creates the user that the image would create, with one HTTP call, because rabbitmqctl takes seconds to start."""
    given = service["environment"]
    name, password = given["RABBITMQ_DEFAULT_USER"], given["RABBITMQ_DEFAULT_PASS"]
    server.ctl("eval", f'''
        catch rabbit_auth_backend_internal:add_user(<<"{name}">>, <<"{password}">>, <<"tests">>),
        rabbit_auth_backend_internal:set_permissions(
            <<"{name}">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"tests">>).''')


_PREPARE = {"postgres": prepare_postgres, "rabbitmq": prepare_rabbitmq}
_START = {
    "kafka": lambda: Kafka(real=False).start(),  # the mock starts in seconds; the tests of the gateway use a real broker
    "nats": lambda: Nats().start(),
}


class Service(Quipu):
    """A role that is configured by its environment alone, as in a container."""

    base_arguments = []


class Composition:
    """The engines that some role needs and that are available, and the roles on them. `missing` says why a role does
    not run."""

    def __init__(self, binary, directory, lend):
        """`lend(name)` returns a running engine that others use, too, or raises Unavailable."""
        self._lend = lend
        self._binary = binary
        self._directory = pathlib.Path(directory)
        self._engines = {}
        self._own = []  # the engines that end with the composition
        self._unavailable = {}
        self.document = load()
        self.services = {}
        self.missing = {}

    def start(self):
        for role, service in roles(self.document).items():
            settings = environment(role, service)
            files = secrets(self.document, service)
            settings = {name: files.get(value, value) for name, value in settings.items()}
            try:
                self.services[role] = self._start_role(role, settings)
            except Unavailable as reason:
                self.missing[role] = str(reason)
        for server in self.services.values():
            server.wait_ready()
        return self

    def _start_role(self, role, settings):
        for name in hosts(settings):
            address = _address(self._engine(name))
            for setting, value in settings.items():
                settings[setting] = re.sub(rf"(?<=[/@,]){name}:{PORTS[name]}\b", address, value)
        directory = self._directory / role
        (directory / "data").mkdir(parents=True)
        settings.update(QUIPU_LISTEN="127.0.0.1:0", QUIPU_DATA=str(directory / "data"))
        return Service(self._binary, [], directory, settings).start()

    def _engine(self, name):
        if name in self._unavailable:
            raise Unavailable(self._unavailable[name])
        if name not in self._engines:
            try:
                self._engines[name] = self._start_engine(name)
            except Unavailable as reason:
                self._unavailable[name] = str(reason)
                raise
        return self._engines[name]

    def _start_engine(self, name):
        if name in _START:
            engine = _START[name]()
            self._own.append(engine)
        else:
            engine = self._lend(name)
        if name in _PREPARE:
            _PREPARE[name](engine, self.document["services"][name])
        return engine

    def close(self):
        problems = []
        for server in self.services.values():
            try:
                server.close()
            except AssertionError as problem:
                problems.append(str(problem))
        for server in self._own:
            server.close()
        assert not problems, "\n".join(problems)


def _address(engine):
    """Kafka may have several brokers."""
    return getattr(engine, "address", None) or f"127.0.0.1:{engine.port}"
