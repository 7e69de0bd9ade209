"""A private NATS (of tests/engines), and its text protocol on a bare socket, JetStream's API included."""

import contextlib
import dataclasses
import itertools
import json
import socket
import uuid

from engines import nats
from engines.waiting import HANG_S, wait_until

STREAM = "ENTITLEMENTS"
SUBJECTS = "entitlements.events.>"


@dataclasses.dataclass
class Message:
    subject: str
    reply: str
    headers: dict
    payload: bytes

    @property
    def id(self):
        return self.headers.get("Nats-Msg-Id")


class Wire:
    """One connection. Messages that arrive while it waits for an answer are kept for `next`."""

    def __init__(self, port, timeout=HANG_S):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._file = self._socket.makefile("rb")
        self._inbox = f"_INBOX.{uuid.uuid4().hex}"
        self._numbers = itertools.count(1)
        self._kept = []
        assert self._file.readline().startswith(b"INFO ")
        self._say('CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}')
        self.subscribe(f"{self._inbox}.*")

    def close(self):
        self._file.close()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _say(self, line, *parts):
        self._socket.sendall(b"".join([line.encode(), b"\r\n", *parts]))

    def subscribe(self, subject):
        """Returns when the server has the subscription, so that everything published from now on arrives."""
        self._say(f"SUB {subject} {next(self._numbers)}")
        self._say("PING")
        while (message := self._read()) is not None:
            self._kept.append(message)

    def publish(self, subject, payload, headers=None, reply=""):
        if not headers:
            self._say(f"PUB {subject} {reply} {len(payload)}", payload, b"\r\n")
            return
        head = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        head = head.encode()
        self._say(f"HPUB {subject} {reply} {len(head)} {len(head) + len(payload)}", head, payload, b"\r\n")

    def request(self, subject, payload=b"", headers=None):
        reply = f"{self._inbox}.{next(self._numbers)}"
        self.publish(subject, payload, headers, reply)
        while True:
            message = self._read()
            if message is not None and message.subject == reply:
                return message
            if message is not None:
                self._kept.append(message)

    def ask(self, verb, body=None):
        """Calls JetStream's API; the answer must not be an error."""
        answer = json.loads(self.request(f"$JS.API.{verb}", json.dumps(body).encode() if body else b"").payload)
        assert "error" not in answer, answer
        return answer

    def pull(self, durable="notifications", stream=STREAM):
        """Pulls one message, as a member of the durable's group would, and does not acknowledge it."""
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}", b"1", reply=f"{self._inbox}.pull")
        return self.next()

    def store(self, subject, payload, headers=None):
        """Publishes, and returns JetStream's acknowledgement, or None if no stream listened: nothing was stored then."""
        message = self.request(subject, payload, headers)
        if not message.payload:
            return None
        answer = json.loads(message.payload)
        assert "error" not in answer, answer
        return answer

    def next(self, timeout=HANG_S):
        """Returns the next message of a subscription, or None if none came in time."""
        if self._kept:
            return self._kept.pop(0)
        self._socket.settimeout(timeout)
        try:
            while (message := self._read()) is None:
                pass
            return message
        except TimeoutError:
            return None
        finally:
            self._socket.settimeout(HANG_S)

    def take_all(self):
        """Returns everything that the server had for us before this call."""
        self._say("PING")
        while (message := self._read()) is not None:
            self._kept.append(message)
        taken, self._kept = self._kept, []
        return taken

    def _read(self):
        """Returns the next message, or None for the answer to our PING."""
        while True:
            line = self._file.readline().decode().rstrip("\r\n")
            verb, _, rest = line.partition(" ")
            if verb == "PING":
                self._say("PONG")
            elif verb == "PONG":
                return None
            elif verb in ("MSG", "HMSG"):
                return self._read_message(rest.split(), verb == "HMSG")
            elif verb != "+OK" and not line.startswith("INFO"):
                raise ConnectionError(f"NATS said {line!r}")

    def _read_message(self, fields, with_headers):
        subject, sizes = fields[0], fields[2:]
        reply = sizes.pop(0) if len(sizes) == (3 if with_headers else 2) else ""
        whole = self._file.read(int(sizes[-1]) + 2)[:-2]
        head_size = int(sizes[0]) if with_headers else 0
        lines = whole[:head_size].decode().split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        return Message(subject, reply, headers, whole[head_size:])


class Nats(nats.Nats):
    def wire(self):
        return Wire(self.port)

    @contextlib.contextmanager
    def tapped(self, subject=SUBJECTS):
        """Subscribes without JetStream, and so sees every publication, even those that JetStream drops as repeated."""
        with self.wire() as wire:
            wire.subscribe(subject)
            yield wire

    def messages(self, stream=STREAM):
        """Returns everything that is in a stream now."""
        with self.wire() as wire:
            count = wire.ask(f"STREAM.INFO.{stream}")["state"]["messages"]
            inbox = f"read.{uuid.uuid4().hex}"
            wire.subscribe(inbox)
            wire.ask(f"CONSUMER.CREATE.{stream}", {
                "stream_name": stream,
                "config": {"deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none"},
            })
            found = []
            while len(found) < count:
                message = wire.next()
                assert message is not None, f"{stream} has {count} messages and gave {len(found)}"
                found.append(message)
            return found

    def put(self, subject, payload, headers=None):
        """Publishes as soon as a stream listens: Quipu is ready before it has declared its streams, and NATS names a stream
        before the stream listens."""
        with self.wire() as wire:
            return wait_until(lambda: wire.store(subject, payload, headers), f"a stream takes {subject}")

    def consumer(self, name="notifications", stream=STREAM):
        """Returns what the server knows about a durable, or None if it does not exist yet."""
        with self.wire() as wire:
            answer = json.loads(wire.request(f"$JS.API.CONSUMER.INFO.{stream}.{name}").payload)
            return None if "error" in answer else answer
