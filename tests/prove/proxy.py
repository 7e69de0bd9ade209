"""Network paths that can be cut, reset, slowed down and silenced: toxiproxy between Quipu and its engines, and its clients.

Each process of Quipu has a path of its own to each engine, so one process can lose an engine that the others still see.
toxiproxy is built from Go's registry once and kept in build-prove/ at the top of the repository. Without it the run goes
on, smaller: `Direct` leads straight to the engines, and there are no faults of the network.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess

from engines.server import Server, Unavailable, exchange

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build-prove" / "toxiproxy-server"
MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
BUILD_SECONDS = 300


def find_program():
    """toxiproxy's server: on the PATH, kept, or built now."""
    found = shutil.which("toxiproxy-server")
    if found:
        return found
    if not KEPT.exists():
        _build()
    return str(KEPT)


def _build():
    if not shutil.which("go"):
        raise Unavailable("toxiproxy is not installed, and there is no Go to build it")
    KEPT.parent.mkdir(exist_ok=True)
    folder = KEPT.parent / "go-bin"
    try:
        built = subprocess.run(["go", "install", MODULE], env={**os.environ, "GOBIN": str(folder)}, capture_output=True,
                               stdin=subprocess.DEVNULL, text=True, timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired as slow:
        raise Unavailable(f"Go took more than {BUILD_SECONDS} s to build toxiproxy") from slow
    if built.returncode != 0:
        raise Unavailable(f"toxiproxy cannot be built: {built.stderr.strip().splitlines()[-1][:200]}")
    (folder / "server").rename(KEPT)
    folder.rmdir()


class Path:
    """The way to one engine: clients connect to `port`."""

    def __init__(self, proxy, name, port):
        self._proxy = proxy
        self.name = name
        self.port = port

    def cut(self):
        """Breaks all connections and refuses new ones."""
        self._proxy.call("POST", f"/proxies/{self.name}", {"enabled": False})
        assert not exchange_opens(self.port), f"{self.name} still accepts connections"

    def mend(self):
        """Makes the path as good as new. Connections that were silenced are closed."""
        self._proxy.call("POST", f"/proxies/{self.name}", {"enabled": True})
        for toxic in self._toxics():
            self._proxy.call("DELETE", f"/proxies/{self.name}/toxics/{toxic}")
        assert not self._toxics(), f"{self.name} is still disturbed"

    def delay(self, latency_ms, jitter_ms):
        """Both directions, open connections too."""
        for stream in ("upstream", "downstream"):
            self._add("latency", stream, {"latency": latency_ms, "jitter": jitter_ms})

    def silence(self, stream):
        """Half-open: connections stay, and nothing comes out at the other end of `stream` any more."""
        self._add("timeout", stream, {"timeout": 0})

    def reset(self, stream, after_ms):
        """New connections are reset (RST) that long after they were opened, with the next that is sent in `stream`, of which
        nothing arrives. Those that are open already are closed then."""
        self._add("reset_peer", stream, {"timeout": after_ms})

    def trickle(self, kilobytes_per_s):
        self._add("bandwidth", "downstream", {"rate": kilobytes_per_s})

    def _add(self, kind, stream, attributes):
        self._proxy.call("POST", f"/proxies/{self.name}/toxics",
                         {"type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes})

    def _toxics(self):
        return [toxic["name"] for toxic in self._proxy.call("GET", f"/proxies/{self.name}/toxics")]


def exchange_opens(port):
    """Whether somebody accepts a connection."""
    with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, 2)) as wire:
        wire.connect()
        return True
    return False


class Toxiproxy(Server):
    """The proxy of all paths. `path(name, port)` adds one that leads to a port of loopback."""

    name = "toxiproxy"
    can_disturb = True

    def __init__(self):
        self._program = find_program()
        super().__init__()
        # With more threads, a third of its time goes into waking one of them for a packet.
        self.environment = {**os.environ, "GOMAXPROCS": "1"}
        self.port = self.new_port()
        self.paths = {}

    def _command(self):
        return [self._program, "-host", "127.0.0.1", "-port", str(self.port)]

    def _answers(self):
        return b"200" in exchange(self.port, b"GET /version HTTP/1.0\r\n\r\n")

    def path(self, name, port, listen=None):
        """`listen` is a port that was taken before, for engines that must know where clients come in."""
        listen = listen or self.new_port()
        self.call("POST", "/proxies", {"name": name, "listen": f"127.0.0.1:{listen}",
                                       "upstream": f"127.0.0.1:{port}", "enabled": True})
        self.paths[name] = Path(self, name, listen)
        return self.paths[name]

    def call(self, method, path, body=None):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as wire:
            wire.request(method, path, json.dumps(body) if body is not None else None)
            answer = wire.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"toxiproxy refused {method} {path}: {answer.status} {text.decode()[:200]}")
            return json.loads(text) if text else None


class Direct:
    """No proxy: paths that cannot be disturbed."""

    can_disturb = False

    def __init__(self):
        self.paths = {}

    def start(self):
        return self

    def path(self, name, port, listen=None):
        assert listen is None
        self.paths[name] = Path(self, name, port)
        return self.paths[name]

    def close(self):
        pass
