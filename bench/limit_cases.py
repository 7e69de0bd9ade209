"""What is measured of limits: takes against envoyproxy/ratelimit with Redis, both over HTTP and JSON.

Quipu's takes are durable, on SQLite; the peer keeps nothing on the disk. Its program is built by Go, if Go and its registry
can be reached, into the cache folder of whoever runs the bench; otherwise the rows are skipped and say so.
"""

import http.client
import json
import os
import shutil
import subprocess
from contextlib import ExitStack

import loads
from cases import Row, alternate, throughput_row
from servers import CacheRedis, Failed, Missing, Quipu, Server, free_port, http_get, wait_until

USERS = 10_000
CONNECTIONS = 64
NO_LIMIT = 2_147_483_647
MODULE = "github.com/envoyproxy/ratelimit/src/service_cmd@latest"
BUILD_LIMIT_S = 900
TAKE = ("POST", "/api/limits/user-", "/take")
PEER_TAKE = ("POST", "/json", "", '{"domain":"quipu","descriptors":[{"entries":[{"key":"user","value":"user-', '"}]}]}')
PEER_CONFIG = """domain: quipu
descriptors:
  - key: user
    rate_limit:
      unit: year
      requests_per_unit: 2147483647
"""


def find_ratelimit():
    """The peer's program, built if it is not there yet."""
    folder = os.path.expanduser(os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/quipu-bench")
    program = os.path.join(folder, "service_cmd")
    if os.access(program, os.X_OK):
        return program
    if not shutil.which("go"):
        raise Missing("Go is not installed, which builds envoyproxy/ratelimit")
    os.makedirs(folder, exist_ok=True)
    try:
        done = subprocess.run(["go", "install", MODULE], env={**os.environ, "GOBIN": folder}, capture_output=True,
                              text=True, timeout=BUILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Missing(f"go install {MODULE} took more than {BUILD_LIMIT_S} s") from None
    if done.returncode != 0:
        raise Missing(f"go install {MODULE}: {done.stderr.strip().splitlines()[-1]}")
    return program


class Ratelimit(Server):
    """envoyproxy/ratelimit in front of a Redis of its own."""

    name = "ratelimit"

    def __init__(self, root, redis):
        super().__init__(root)
        self.program = find_ratelimit()
        self.redis = redis

    def start(self):
        configs = os.path.join(self.folder, "quipu", "config")
        os.makedirs(configs)
        with open(os.path.join(configs, "config.yaml"), "w") as f:
            f.write(PEER_CONFIG)
        self.spawn([self.program], stdout=subprocess.DEVNULL, env={
            **os.environ, "USE_STATSD": "false", "LOG_LEVEL": "error", "BACKEND_TYPE": "redis", "REDIS_SOCKET_TYPE": "tcp",
            "REDIS_URL": f"127.0.0.1:{self.redis.port}", "RUNTIME_ROOT": self.folder, "RUNTIME_SUBDIRECTORY": "quipu",
            "RUNTIME_WATCH_ROOT": "false", "HOST": "127.0.0.1", "PORT": str(self.port), "GRPC_HOST": "127.0.0.1",
            "GRPC_PORT": str(free_port()), "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": str(free_port()),
        })
        wait_until("ratelimit", self.accepts, self.process, self.log_path)

    def accepts(self):
        return http_get(self.port, "/healthcheck")[0] == 200

    def check(self):
        """One take that must be admitted and counted: a limiter that knows no limit would be measured for nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("POST", "/json", PEER_TAKE[3] + "check" + PEER_TAKE[4])
        response = connection.getresponse()
        told = json.loads(response.read())
        connection.close()
        (status,) = told["statuses"]
        if response.status != 200 or "limitRemaining" not in status:
            raise Failed(f"ratelimit does not limit: {told}")


class Takes:
    """Rounds of wrk against one limiter; `problems` gathers whatever makes the figure worthless."""

    def __init__(self, bench, label, port, request, users):
        self.bench, self.label, self.port, self.request, self.users = bench, label, port, request, users
        self.problems = []

    def measure(self):
        loads.settle()
        result = loads.wrk(self.label, self.port, self.request, self.users, self.bench.seconds, CONNECTIONS)
        if result["status_errors"] or result["socket_errors"]:
            self.problems.append(f"{result['status_errors']} refused, {result['socket_errors']} socket errors")
        self.bench.say(f"{self.label}: {result['per_s']:,.0f}/s")
        return result["per_s"]


def take_row(bench, name, what, users, floor):
    row = Row(name, what)
    with ExitStack() as stack:
        peer = stack.enter_context(Ratelimit(bench.root, bench.shared(CacheRedis)))
        peer.check()
        quipu = stack.enter_context(Quipu(bench.root, bench.quipu_program, None, (
            "--roles", "gateway,sender", "--gateway-default-limit", f"{NO_LIMIT}/365d")))
        ours = Takes(bench, f"{name} quipu", quipu.port, TAKE, users)
        theirs = Takes(bench, f"{name} ratelimit", peer.port, PEER_TAKE, users)
        best = alternate(bench.rounds, {"ratelimit": theirs.measure}, ours.measure)
        throughput_row(row, *best, floor, ours.problems + theirs.problems)
    return [row]


def take_spread(bench):
    what = f"takes over {USERS:,} users, SQLite, durable / envoyproxy/ratelimit with Redis, nothing kept"
    return take_row(bench, "take-spread", what, USERS, 1.3)


def take_one(bench):
    return take_row(bench, "take-one", "takes on ONE user, the same", 1, 3)


CASES = {"take-spread": take_spread, "take-one": take_one}
