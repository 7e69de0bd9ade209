"""Threads that are clients of a server while a test does something to it."""

import threading

from .waiting import HANG_S


class Workers:
    """`count` threads that each run `_work(number)`, which ends by itself or when `self._stop` is set.

    Used as a context: inside it the clients work, at its end they are stopped."""

    def __init__(self, count):
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(count)]

    def _work(self, number):
        raise NotImplementedError

    def start(self):
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stop.set()
        self.join()

    def join(self):
        """Waits until every client has ended, by itself or because it was stopped."""
        for thread in self._threads:
            thread.join(HANG_S)
            assert not thread.is_alive(), "a client hangs: some request was never answered"

    def running(self):
        return any(thread.is_alive() for thread in self._threads)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
