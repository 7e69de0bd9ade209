"""HTTP/2, frame by frame: what a proper client sends, and what it never would.

Frames are hyperframe's and headers are hpack's, which share nothing with the server's nghttp2. Nothing is repaired or
retried; only SETTINGS and PING are acknowledged, as every client must, unless `polite` is false.
"""

import collections
import contextlib
import json
import socket
import ssl

import hpack
import hyperframe.frame as frames

from .http import Answer, dial
from .waiting import HANG_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, STREAM_CLOSED, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 5, 7, 8, 11
LARGEST_WINDOW = 2**31 - 1
FIRST_WINDOW = 65535  # of the connection and of each stream
MAX_CONCURRENT, INITIAL_WINDOW, MAX_HEADER_LIST = 3, 4, 6


class Ended(Exception):
    """The server has closed the connection."""


class Reset(Exception):
    """The server has reset the stream; `code` says why."""

    def __init__(self, code):
        super().__init__(f"reset with code {code}")
        self.code = code


class Http2:
    """One connection. Streams get odd numbers in the order in which they are opened."""

    def __init__(self, port, tls=None, settings=None, preface=True, polite=True, receive_buffer=None):
        self.socket = dial(port, receive_buffer=receive_buffer)
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
            assert self.socket.selected_alpn_protocol() == "h2"
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.polite = polite
        self.settings = {}  # of the server
        self.goaways = []  # received so far
        self.streams = {}  # by number: [headers, body, whether it is over]
        self.resets = {}  # by number: the code
        self.granted = collections.Counter()  # by number, 0 for the connection: how far the server has opened the window
        self._next = 1
        self._input = b""
        if preface:
            self.socket.sendall(PREFACE)
            self.send(frames.SettingsFrame(0, settings=settings or {}))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- sending

    def send(self, *several):
        self.socket.sendall(b"".join(frame.serialize() for frame in several))

    def new_stream(self):
        self._next += 2
        return self._next - 2

    def head(self, method, path, headers=(), end=True, stream=None):
        """The HEADERS frame of a request, on a new stream unless one is named."""
        fields = [(":method", method), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path), *headers]
        flags = ["END_HEADERS"] + (["END_STREAM"] if end else [])
        return frames.HeadersFrame(stream or self.new_stream(), data=self.encoder.encode(fields), flags=flags)

    def frames_of(self, method, path, body=None, headers=()):
        """All frames of a request. A dict as body is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers = [("content-type", "application/json"), *headers]
        head = self.head(method, path, headers, end=body is None)
        return [head] if body is None else [head, frames.DataFrame(head.stream_id, data=body, flags=["END_STREAM"])]

    def request(self, method, path, body=None, headers=()):
        """Sends a request. Returns its stream."""
        several = self.frames_of(method, path, body, headers)
        self.send(*several)
        return several[0].stream_id

    def ask(self, method, path, body=None, headers=()):
        return self.answer(self.request(method, path, body, headers))

    def open_window(self, increment=LARGEST_WINDOW - 65535, stream=0):
        self.send(frames.WindowUpdateFrame(stream, window_increment=increment))

    # ---- reading

    def _read(self, count):
        while len(self._input) < count:
            try:
                more = self.socket.recv(65536)
            except (ConnectionError, ssl.SSLError):
                more = b""
            if not more:
                raise Ended("the server has closed the connection")
            self._input += more
        data, self._input = self._input[:count], self._input[count:]
        return data

    def read_frame(self):
        """Reads the next frame and notes what it says. Raises Ended at the end of the connection."""
        frame, length = frames.Frame.parse_frame_header(memoryview(self._read(9)))
        frame.parse_body(memoryview(self._read(length)))
        self._note(frame)
        return frame

    def _note(self, frame):
        stream = self.streams.setdefault(frame.stream_id, [[], b"", False])
        if isinstance(frame, frames.HeadersFrame):
            stream[0] = self.decoder.decode(frame.data)
        elif isinstance(frame, frames.DataFrame):
            stream[1] += frame.data
        elif isinstance(frame, frames.RstStreamFrame):
            self.resets[frame.stream_id] = frame.error_code
        elif isinstance(frame, frames.GoAwayFrame):
            self.goaways.append(frame)
        elif isinstance(frame, frames.WindowUpdateFrame):
            self.granted[frame.stream_id] += frame.window_increment
        elif isinstance(frame, frames.SettingsFrame) and "ACK" not in frame.flags:
            self.settings.update(frame.settings)
            self._acknowledge(frames.SettingsFrame(0, flags=["ACK"]))
        elif isinstance(frame, frames.PingFrame) and "ACK" not in frame.flags:
            self._acknowledge(frames.PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
        if "END_STREAM" in frame.flags:
            stream[2] = True

    def _acknowledge(self, frame):
        with contextlib.suppress(OSError):  # if the server no longer listens, the next read will show it
            if self.polite:
                self.send(frame)

    def read_until(self, holds):
        """Reads frames until holds() is true."""
        while not holds():
            self.read_frame()

    def answer(self, stream):
        """Reads until the answer on a stream is complete. Raises Reset if the server resets it before."""
        self.read_until(lambda: self.streams.get(stream, [0, 0, 0])[2] or stream in self.resets)
        headers, body, complete = self.streams.pop(stream)
        if not complete:
            raise Reset(self.resets[stream])
        return Answer(int(headers[0][1]), "HTTP/2", [(str(n), str(v)) for n, v in headers[1:]], body)

    def ping(self):
        """Waits until the server has read everything that was sent."""
        mark = b"%08d" % (self._next % 10**8)
        self.send(frames.PingFrame(0, opaque_data=mark))
        while True:
            frame = self.read_frame()
            if isinstance(frame, frames.PingFrame) and frame.opaque_data == mark:
                return

    def read_to_the_end(self):
        """Reads until the server closes. Returns the code of its last GOAWAY, or None if there was none."""
        try:
            while True:
                self.read_frame()
        except Ended:
            return self.goaways[-1].error_code if self.goaways else None

    def flood(self, data):
        """Sends `data` again and again until the server has had enough. Returns the code of its GOAWAY, or None."""
        self.socket.settimeout(HANG_S)
        try:
            while True:
                self.socket.sendall(data)
        except socket.timeout:
            raise AssertionError("the server neither reads the flood nor ends it") from None
        except OSError:
            pass
        return self.read_to_the_end()
