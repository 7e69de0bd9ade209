#!/usr/bin/python3
"""A private RabbitMQ on free ports with temporary data; and a command run with it.

with_rabbitmq.py COMMAND [ARGUMENT...]   the command finds the broker in QUIPU_CONTRACT_BUS (an amqp:// URL)
with_rabbitmq.py --control               prints "ok URL TLS-URL", then does what the lines of standard input say

Exits with the command's code, or with 77 (meson: skipped) where RabbitMQ cannot be had. Other tests use the class.

Each line of --control is answered by one that begins with "ok" or "error":

    start, stop, kill, freeze, thaw          the broker; stop and kill keep its data
    alarm on, alarm off                      its memory alarm, under which it takes no messages
    drop                                     closes every connection that it has
    limit NAME COUNT                         a queue refuses what is more than so many messages
    make-queue NAME transient|durable        what follows asks an independent client, pika
    make-exchange NAME TYPE
    delete-queue NAME, delete-exchange NAME
    count NAME                               how many messages lie in a queue: "ok 3"
    publish EXCHANGE KEY BODY                a message that has a body and nothing else ("-": the default exchange)
    odd EXCHANGE KEY BODY                    one with headers of many kinds and properties that a copy must not keep
    get NAME                                 takes a message: "ok {json}"
"""

import contextlib
import datetime
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
BIN = pathlib.Path("/usr/lib/rabbitmq/bin")

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


class Unavailable(Exception):
    """RabbitMQ is not on this machine."""


def _free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class RabbitMQ:
    """The ports and the data stay the same when the broker is stopped or killed and started again."""

    def __init__(self, schedulers=1):
        for program in (BIN / "rabbitmq-server", BIN / "rabbitmqctl"):
            if not program.exists():
                raise Unavailable(f"RabbitMQ is not installed (no {program})")
        if not shutil.which("epmd"):
            raise Unavailable("RabbitMQ is not installed (no epmd)")
        self._process = None
        self._epmd = None
        self.port, self.tls_port, distribution, epmd = _free_ports(4)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="quipu-rabbitmq-"))
        self.log = self.directory / "log" / "broker.log"
        self._prepare(distribution, epmd, schedulers)

    def _prepare(self, distribution, epmd, schedulers):
        folder = self.directory
        for name in ("mnesia", "log", "home"):
            (folder / name).mkdir()
        (folder / "enabled_plugins").write_text("[].\n")
        self.has_tls = self._make_certificate()
        config = CONFIG.format(port=self.port)
        if self.has_tls:
            config += TLS_CONFIG.format(port=self.tls_port, folder=folder)
        (folder / "rabbitmq.conf").write_text(config)
        self._epmd_port = epmd
        self._env = {
            **os.environ,
            "HOME": str(folder / "home"),
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(epmd),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"quipu{os.getpid()}x{self.port}@localhost",
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
        self._env.pop("NOTIFY_SOCKET", None)

    def _make_certificate(self):
        """One that signs itself, for localhost. False where there is no openssl."""
        if not shutil.which("openssl"):
            return False
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=self.directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return True

    @property
    def url(self):
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def tls_url(self):
        return f"amqps://localhost:{self.tls_port}?cacert={self.directory}/cert.pem" if self.has_tls else "-"

    @property
    def pid(self):
        return self._process.pid if self._process else None

    def start(self):
        """Returns when the broker serves."""
        assert self._process is None, "RabbitMQ runs already"
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [BIN / "rabbitmq-server"], env=self._env, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, cwd=self.directory, start_new_session=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() >= deadline:
                words = self._last_words()
                self.kill()
                raise RuntimeError(f"rabbitmq-server does not start:\n{words}")
            time.sleep(0.05)
        return self

    def _answers(self):
        """Greeted as a client is, with connection.start (class 10, method 10) in a frame of type 1."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            answer = connection.recv(16)
            return answer[:1] == b"\x01" and answer[7:11] == b"\x00\x0a\x00\x0a"
        return False

    def _last_words(self):
        texts = [path.read_text(errors="replace") for path in (self.directory / "output", self.log) if path.exists()]
        return "".join(texts)[-4000:]

    def ctl(self, *arguments):
        """rabbitmqctl; its output."""
        ran = subprocess.run([BIN / "rabbitmqctl", "-q", *arguments], env=self._env, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=90, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {arguments[0]}: {ran.stdout} {ran.stderr}")
        return ran.stdout

    def alarm(self, is_on):
        self.ctl("set_vm_memory_high_watermark", "0" if is_on else "0.4")

    def stop(self):
        """An orderly end, also of a frozen broker. Nothing happens where none runs."""
        self.thaw()
        self._end(signal.SIGTERM)

    def kill(self):
        """A crash."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def freeze(self):
        """The broker is silent from now on; its connections stay, and new ones are taken by the kernel."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self):
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def close(self):
        """Ends the broker however it is, and removes its data."""
        self.kill()
        if self._epmd is not None:
            self._epmd.terminate()
            self._epmd.wait()
            self._epmd = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


# ---- what --control does -------------------------------------------------------------------------


class Control:
    def __init__(self, server):
        self._server = server

    def obey(self, line):
        name, *arguments = line.split(" ", 3)
        handler = getattr(self, "do_" + name.replace("-", "_"), None)
        if handler is None:
            return f"error nobody knows {name}"
        try:
            result = handler(*arguments)
            return "ok" if result is None else f"ok {result}"
        except Exception as problem:  # pylint: disable=broad-except # the program that asked decides what it means
            return f"error {type(problem).__name__} {problem}".replace("\n", " ")

    def do_start(self):
        self._server.start()

    def do_stop(self):
        self._server.stop()

    def do_kill(self):
        self._server.kill()

    def do_freeze(self):
        self._server.freeze()

    def do_thaw(self):
        self._server.thaw()

    def do_alarm(self, how):
        self._server.alarm(how == "on")

    def do_drop(self):
        self._server.ctl("close_all_connections", "a test says so")

    def do_limit(self, name, count):
        policy = {"max-length": int(count), "overflow": "reject-publish"}
        self._server.ctl("set_policy", "--apply-to", "queues", f"limit-{name}", f"^{name}$", json.dumps(policy))

    @contextlib.contextmanager
    def _channel(self):
        import pika  # pylint: disable=import-outside-toplevel # needed by few
        connection = pika.BlockingConnection(pika.URLParameters(self._server.url + "/%2F"))
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()

    def do_make_queue(self, name, kind):
        with self._channel() as channel:
            channel.queue_declare(name, durable=kind == "durable")

    def do_make_exchange(self, name, kind):
        with self._channel() as channel:
            channel.exchange_declare(name, kind, durable=True)

    def do_delete_queue(self, name):
        with self._channel() as channel:
            channel.queue_delete(name)

    def do_delete_exchange(self, name):
        with self._channel() as channel:
            channel.exchange_delete(name)

    def do_count(self, name):
        with self._channel() as channel:
            return channel.queue_declare(name, passive=True).method.message_count

    def do_publish(self, exchange, key, body):
        self._publish(exchange, key, body, None)

    def _publish(self, exchange, key, body, properties):
        with self._channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("" if exchange == "-" else exchange, key, body.encode(), properties)

    def do_odd(self, exchange, key, body):
        import pika  # pylint: disable=import-outside-toplevel
        headers = {"text": "äöü", "number": -5, "big": 1 << 40, "yes": True, "none": None, "list": [1, "two"],
                   "table": {"inner": 1}, "bytes": b"\x00\xff", "CC": ["elsewhere"], "MT-Reason": "an older one",
                   "when": datetime.datetime(2024, 5, 6, 7, 8, 9)}
        properties = pika.BasicProperties(
            content_type="application/vnd.masstransit+json", content_encoding="utf-8", headers=headers,
            delivery_mode=1, priority=3, correlation_id="correlation", reply_to="reply", expiration="600000",
            message_id="odd-1", timestamp=1700000000, type="kind", user_id="guest", app_id="app")
        self._publish(exchange, key, body, properties)

    def do_get(self, name):
        with self._channel() as channel:
            method, properties, body = channel.basic_get(name, auto_ack=True)
            if method is None:
                raise LookupError("the queue is empty")
            fields = {key: value for key, value in vars(properties).items() if value is not None}
            return json.dumps({**fields, "body": body.decode(errors="replace"), "routing_key": method.routing_key},
                              default=str, ensure_ascii=True)


def control(server):
    commands = Control(server)
    print(f"ok {server.url} {server.tls_url}", flush=True)
    for line in sys.stdin:
        print(commands.obey(line.strip()), flush=True)
    return 0


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    # Being ended must end the server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        server = RabbitMQ()
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    try:
        server.start()
        if arguments == ["--control"]:
            return control(server)
        return subprocess.run(arguments, env={**os.environ, "QUIPU_CONTRACT_BUS": server.url}, check=False).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
