"""HTTP servers in a thread of the tests, for requests that the program sends."""

import contextlib
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


class Receiver(http.server.ThreadingHTTPServer):
    """On a free port of loopback, with a thread per connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler, address=("127.0.0.1", 0)):
        super().__init__(address, handler)

    def handle_error(self, *_):
        """A client that has left is not an error of the test."""


@contextlib.contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
