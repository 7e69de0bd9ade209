"""What all faults have in common. One class per kind, in faults.py and engine_faults.py.

A fault is injected, holds for a while, and is healed. Both must see their effect before they return: a fault that
silently does nothing would prove nothing, so it raises FaultFailed, and the run is not valid. Faults of one `target`
never overlap; those of different targets do, on purpose, so a check may find that another fault is in the way. It then
says so in its detail instead of failing.
"""

import contextlib
import select
import socket
import time


class FaultFailed(Exception):
    """The fault did not happen, or could not be healed."""


class Violation(Exception):
    """While a fault was injected or healed, Quipu did something it must never do."""


class Fault:
    name = None
    hold_s = (1.0, 3.0)  # how long it lasts, from and to
    rest_s = 2.0  # how long its target is left alone afterwards
    weight = 4  # how often it is chosen, compared with others
    prepare_s = 0.0  # how long before the injection prepare() is called; 0: never

    def __init__(self, cluster, target, dice):
        """`dice` is a number in [0, 1) from the schedule, for what differs from one injection to the next."""
        self.cluster = cluster
        self.target = target
        self.dice = dice
        self.forgotten = []  # of a broker: what it was made to forget

    @classmethod
    def targets(cls, shape):
        """What the fault can hit in a run of this shape; empty: it cannot happen there."""
        raise NotImplementedError

    def prepare(self):
        pass

    def inject(self):
        """Returns a few words on what was done."""
        raise NotImplementedError

    def heal(self):
        """Returns a few words on what was seen, or None."""
        raise NotImplementedError

    def between(self, low, high):
        return low + self.dice * (high - low)

    def expect(self, is_true, what):
        if not is_true:
            raise FaultFailed(f"{self.name} on {self.target}: {what}")


class NodeFault(Fault):
    """A fault of one process of Quipu: its target is quipu-N."""

    @classmethod
    def targets(cls, shape):
        return [f"quipu-{number}" for number in range(1, shape.nodes + 1)]

    @property
    def node(self):
        return self.cluster.nodes[int(self.target.rpartition("-")[2]) - 1]


class EngineFault(Fault):
    """A fault of one engine, which is its target."""

    engine_name = None

    @classmethod
    def targets(cls, shape):
        return [cls.engine_name] if cls.engine_name in shape.engines else []

    @property
    def engine(self):
        return self.cluster.engines[self.engine_name]


# What makes each server answer, whatever its state: enough to see that a path works, and how fast.
GREETINGS = {
    "clients": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "postgres": b"\x00\x00\x00\x08\x04\xd2\x16\x2f",  # SSLRequest
    "redis": b"PING\r\n",
    "kafka": b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff",  # ApiVersions
    "nats": b"PING\r\n",
    "rabbitmq": b"AMQP\x00\x00\x09\x01",
}


ANSWERS = {"nats": b"PONG"}  # what tells an answer from what a server says unasked

PROBE_EVERY_S = 0.015


def round_trip_s(name, port, timeout=2.0):
    """How long a server takes to greet a new client; None: it does not, within the timeout."""
    began = time.monotonic()
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=timeout) as wire:
        wire.settimeout(timeout)
        wire.sendall(GREETINGS[name])
        answer = b""
        while more := wire.recv(4096):
            answer += more
            if ANSWERS.get(name, b"") in answer:
                return time.monotonic() - began
    return None


def is_reset(name, port, timeout=2.0):
    """Whether a new connection, on which something was sent, is reset."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as wire:
            wire.sendall(GREETINGS[name])
            while wire.recv(4096):
                pass
    except ConnectionResetError:
        return True
    except OSError:
        pass
    return False


def order_of_answers(name, port, count, timeout=2.0):
    """Greets a server on several connections, a moment after each other. Returns their numbers in the order of the answers."""
    order, began = [], time.monotonic()
    with contextlib.ExitStack() as closing, contextlib.suppress(OSError):
        wires = [closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=timeout)) for _ in range(count)]
        unsent, waiting = list(wires), []
        while unsent or (waiting and time.monotonic() < began + timeout):
            if unsent:
                unsent[0].sendall(GREETINGS[name])
                waiting.append(unsent.pop(0))
            for wire in select.select(waiting, [], [], PROBE_EVERY_S)[0]:
                waiting.remove(wire)
                order += [wires.index(wire)] if wire.recv(64) else []
    return order


def until(condition, seconds, interval=0.05):
    """Waits for something that may not come; whether it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(interval)
    return bool(condition())
