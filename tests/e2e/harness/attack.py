"""Malicious clients, in a process of their own, and honest ones that are served meanwhile."""

import collections
import contextlib
import multiprocessing
import os
import re
import select
import threading
import time

from engines.process import die_with_parent

from .counts import action
from .http import ConnectionLost, dial, reset_on_close
from .waiting import HANG_S, wait_until

CLOSED = 0  # stands for a status: the server has closed the connection
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")

# A sanitizer keeps freed memory for a while in order to find its use, so the memory of such a build says nothing
# about the server.
MEASURABLE = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:"
                    "allocator_release_to_os_interval_ms=100",
}


class Attack:
    """`count` connections that each send `first` and then `again` for ever: as fast as they can, or every `pause`
    seconds.

    If `reads` is false, they never read an answer. If `returns` is true, they reconnect when they are closed: at once,
    or `wave` of them for each next_wave(). Used as a context: inside, all are connected and have sent `first`."""

    def __init__(self, server, count, first=b"", again=b"", pause=0.0, reads=True, returns=False, wave=None):
        self.port = server.port
        self.count = count
        self.first = first
        self.again = again
        self.pause = pause
        self.reads = reads
        self.returns = returns
        self.wave = wave
        context = multiprocessing.get_context("fork")
        self._begun = context.Event()
        self._over = context.Event()
        self._open = context.Value("q", 0)
        self._returns_left = context.Value("q", 0)
        self._unanswered = context.Value("q", 0)  # connections that have sent a request and wait for its answer
        self._answers = context.RawArray("q", 600)  # by status; at CLOSED, the connections that the server has closed
        self._pipe, child = context.Pipe(duplex=False)
        self._process = context.Process(target=self._run, args=(child,))
        self.statuses = None

    def __enter__(self):
        self._process.start()
        assert self._begun.wait(HANG_S), "the attack could not begin"
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Ends the attack, with all its connections. Returns how many answers came, by status."""
        if self.statuses is None:
            self._over.set()
            self.statuses = self._pipe.recv() if self._pipe.poll(HANG_S) else None
            self._process.join(HANG_S)
            assert self._process.exitcode == 0, "the attack broke down"
        return self.statuses

    @property
    def open(self):
        """Returns how many connections the server has not closed."""
        return self._open.value

    def answers(self, status):
        """Returns how many answers with a status have come so far."""
        return self._answers[status]

    @property
    def closed(self):
        """Returns how many connections the server has closed so far."""
        return self._answers[CLOSED]

    # ---- in the process of its own

    def _run(self, pipe):
        die_with_parent()
        os.nice(10)  # attackers use cores of their own, if there are any
        self._epoll = select.epoll()
        self._clients = {}  # by descriptor: the socket, and what it still has to send
        self._asking = set()  # the descriptors of those that wait for their first answer
        self._found = collections.Counter()
        self._gone = 0  # closed, and not yet connected again
        for _ in range(self.count):
            self._connect()
        self._begun.set()
        due = time.monotonic() + self.pause
        while not self._over.is_set():
            for descriptor, events in self._epoll.poll(0.02):
                self._move(descriptor, events)
            self._return()
            if self.pause and time.monotonic() >= due:
                due += self.pause
                for descriptor in list(self._clients):
                    self._clients[descriptor][1] += self.again
                    self._write(descriptor)
        pipe.send(self._found)

    def _connect(self):
        try:
            # a small buffer, so that the kernel does not read for them either
            client = dial(self.port, receive_buffer=None if self.reads else 4096)
        except OSError:
            return
        client.setblocking(False)
        reset_on_close(client)
        self._clients[client.fileno()] = [client, self.first]
        self._open.value = len(self._clients)
        if self.reads and self.first.endswith(b"\r\n\r\n"):
            self._asking.add(client.fileno())
            self._unanswered.value = len(self._asking)
        self._epoll.register(client, self._events(client.fileno()))
        self._write(client.fileno())

    def _events(self, descriptor):
        wanted = select.EPOLLIN if self.reads else select.EPOLLRDHUP
        if self._clients[descriptor][1] or (self.again and not self.pause):
            wanted |= select.EPOLLOUT
        return wanted

    def _move(self, descriptor, events):
        if events & (select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP | select.EPOLLIN):
            self._read(descriptor)
        if events & select.EPOLLOUT and descriptor in self._clients:
            self._write(descriptor)

    def _read(self, descriptor):
        data = b""
        with contextlib.suppress(OSError):
            data = self._clients[descriptor][0].recv(262144)
        self._asking.discard(descriptor)
        self._unanswered.value = len(self._asking)
        for status in STATUS.findall(data):
            self._note(int(status))
        if not data:
            self._end(descriptor)

    def _note(self, status):
        self._found[status] += 1
        self._answers[status] += 1

    def _write(self, descriptor):
        client, left = self._clients[descriptor]
        if not left and not self.pause:
            left = self.again
        if not left:
            return
        try:
            taken = client.send(left)
        except BlockingIOError:
            return
        except OSError:
            self._read(descriptor)  # the reason for the close may be there to read
            if descriptor in self._clients:
                self._end(descriptor)
            return
        self._clients[descriptor][1] = left[taken:]
        self._epoll.modify(descriptor, self._events(descriptor))

    def _end(self, descriptor):
        self._note(CLOSED)
        client, _ = self._clients.pop(descriptor)
        self._epoll.unregister(client)
        client.close()
        self._open.value = len(self._clients)
        self._gone += 1
        self._return()

    def _return(self):
        """Reconnects those that were closed: all at once, or as many as the current wave allows."""
        while self.returns and self._gone > 0 and not self._over.is_set():
            if self.wave is not None and self._returns_left.value == 0:
                return
            self._gone -= 1
            self._connect()
            if self.wave is not None:
                self._returns_left.value -= 1  # after it has connected: see next_wave()

    # ---- in the process of the test

    def next_wave(self):
        """Waits until the last wave has come and was answered; then lets `wave` of the closed connections come back."""
        wait_until(lambda: self._returns_left.value == 0 and self._unanswered.value == 0, "the last wave is over")
        self._returns_left.value = self.wave


class Guests:
    """Honest clients: each increases an item of its own on a kept connection, and one asks for /healthz on new
    ones."""

    def __init__(self, server, counts, number=4):
        self._server = server
        self._items = [counts.new_item() for _ in range(number)]
        self._connections = [None] * number

    def close(self):
        for connection in self._connections:
            if connection is not None:
                connection.close()

    def _increase(self, number, before_each):
        """Increases an item, on a new connection if the old one was closed between two requests."""
        for _ in range(2):
            before_each()
            kept = self._connections[number] is not None
            if not kept:
                self._connections[number] = self._server.connect()
            try:
                answer = self._connections[number].ask("POST", action(self._items[number], "increase"), {"amount": 1})
                assert answer.status == 200, answer
                return
            except ConnectionLost:
                self._connections[number] = None
                assert kept, "a new connection was not served"
        raise AssertionError("two connections were lost")

    def are_served(self, rounds, before_each=lambda: None):
        """Checks that everybody gets an answer, in each round."""
        for _ in range(rounds):
            for number in range(len(self._items)):
                self._increase(number, before_each)
            before_each()
            assert self._server.ask("GET", "/healthz").status == 200


class Peak:
    """The most memory that the server has used, measured all the time."""

    def __init__(self, server):
        self.kib = server.resident_kib()
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self._over.wait(0.05):
            self.kib = max(self.kib, self._server.resident_kib())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
