"""A private RabbitMQ, virtual hosts in it, and pika to look into them from outside.

Exchanges and queues have the names of the specification, so every test gets a virtual host of its own.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess

from .process import end, start, tail
from .server import Server, Unavailable, exchange
from .waiting import HANG_S

BIN = pathlib.Path("/usr/lib/rabbitmq/bin")
HOSTS_AT_ONCE = 24  # rabbitmqctl takes seconds to start: one call creates several virtual hosts

CONFIG = """\
listeners.tcp.default = 127.0.0.1:{port}
disk_free_limit.absolute = 1MB
log.console = false
log.file.level = warning
"""
TLS_CONFIG = """\
listeners.ssl.default = 127.0.0.1:{port}
ssl_options.cacertfile = {folder}/cert.pem
ssl_options.certfile = {folder}/cert.pem
ssl_options.keyfile = {folder}/key.pem
ssl_options.verify = verify_none
ssl_options.versions.1 = tlsv1.2
"""
CREATE_HOSTS = """
lists:foreach(fun(N) ->
    Name = list_to_binary("test-" ++ integer_to_list(N)),
    rabbit_vhost:add(Name, <<"tests">>),
    rabbit_auth_backend_internal:set_permissions(<<"guest">>, Name, <<".*">>, <<".*">>, <<".*">>, <<"tests">>)
end, lists:seq({first}, {last})).
"""


class Hosts:
    """Virtual hosts of one broker, handed out to several processes. A file counts them."""

    def __init__(self, directory, port, environment):
        self._file = pathlib.Path(directory) / "hosts"
        self._environment = environment
        self.port = port

    @property
    def url(self):
        return f"amqp://127.0.0.1:{self.port}"

    def ctl(self, *arguments):
        """rabbitmqctl; its output."""
        ran = subprocess.run([BIN / "rabbitmqctl", "-q", *arguments], env=self._environment, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=HANG_S, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {arguments[0]}: {ran.stdout} {ran.stderr}")
        return ran.stdout

    def new_host(self):
        """The name of a fresh virtual host."""
        with self._file.open("a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            used, created = map(int, (file.read() or "0 0").split())
            if used == created:
                self.ctl("eval", CREATE_HOSTS.format(first=created + 1, last=created + HOSTS_AT_ONCE))
                created += HOSTS_AT_ONCE
            file.truncate(0)
            file.write(f"{used + 1} {created}")
        return f"test-{used + 1}"

    def log_tail(self, size=4000):
        return tail(self._file.parent / "log" / "broker.log", size)


class RabbitMQ(Server, Hosts):
    name = "rabbitmq"

    def __init__(self, schedulers=1):
        for program in (BIN / "rabbitmq-server", BIN / "rabbitmqctl"):
            if not program.exists():
                raise Unavailable(f"RabbitMQ is not installed (no {program})")
        if not shutil.which("epmd"):
            raise Unavailable("RabbitMQ is not installed (no epmd)")
        Server.__init__(self)
        self._epmd = None
        port, self.tls_port, distribution, self._epmd_port = (self.new_port() for _ in range(4))
        self.log = self.directory / "log" / "broker.log"
        self._prepare(port)
        self.environment = self._environment_of(port, distribution, schedulers)
        Hosts.__init__(self, self.directory, port, self.environment)

    def _prepare(self, port):
        for name in ("mnesia", "log", "home"):
            (self.directory / name).mkdir()
        (self.directory / "enabled_plugins").write_text("[].\n")
        self.has_tls = self._create_certificate()
        config = CONFIG.format(port=port)
        if self.has_tls:
            config += TLS_CONFIG.format(port=self.tls_port, folder=self.directory)
        (self.directory / "rabbitmq.conf").write_text(config)

    def _environment_of(self, port, distribution, schedulers):
        folder = self.directory
        environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"quipu{os.getpid()}x{port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": str(self.log),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                f"-kernel inet_dist_use_interface {{127,0,0,1}} +S {schedulers}:{schedulers} +sbwt none",
            "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the broker instead of being its parent
        }
        environment.pop("NOTIFY_SOCKET", None)
        return environment

    def _create_certificate(self):
        """A self-signed one for localhost. False if there is no openssl."""
        if not shutil.which("openssl"):
            return False
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=self.directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return True

    @property
    def tls_url(self):
        return f"amqps://localhost:{self.tls_port}?cacert={self.directory}/cert.pem" if self.has_tls else "-"

    def _command(self):
        return [BIN / "rabbitmq-server"]

    def start(self):
        if self._epmd is None:
            self._epmd = start(["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return super().start()

    def _answers(self):
        """Greeted as a client is, with connection.start (class 10, method 10) in a frame of type 1."""
        answer = exchange(self.port, b"AMQP\x00\x00\x09\x01")
        return answer[:1] == b"\x01" and answer[7:11] == b"\x00\x0a\x00\x0a"

    def alarm(self, is_on):
        self.ctl("set_vm_memory_high_watermark", "0" if is_on else "0.4")

    @contextlib.contextmanager
    def away(self):
        self.stop()
        try:
            yield
        finally:
            self.start()

    def close(self):
        self.kill()
        if self._epmd is not None:
            end(self._epmd)
            self._epmd = None
        super().close()

    def describe(self):
        """What `attach` needs in another process."""
        return json.dumps({"directory": str(self.directory), "port": self.port, "environment": self.environment})


def attach(description):
    """Hands out virtual hosts of a broker that another process has started."""
    return Hosts(**json.loads(description))
