"""The loads of the bench: wrk, pgbench and openloop, each run to its end, and what it printed as a dictionary.

Every measurement is also appended to `log`, which goes into the JSON file, so that a row of the table can be traced
back to all the rounds that were run for it.
"""

import json
import os
import re
import subprocess
import threading
import time

from servers import Failed, Missing, find_postgres_program, find_program

WRK_CONNECTIONS = 256
WRK_THREADS = 2
H2_CONNECTIONS = 8
H2_STREAMS = 64
HERE = os.path.dirname(os.path.abspath(__file__))

log = []


def record(**measurement):
    log.append(measurement)
    return measurement


def run_to_end(arguments, limit_s, prefix=(), **more):
    """Returns the output of a program that must succeed. If that takes too long or the bench is stopped, ends it by
    its id."""
    process = subprocess.Popen(
        [*prefix, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **more
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except BaseException as e:
        process.kill()
        process.communicate()
        if isinstance(e, subprocess.TimeoutExpired):
            raise Failed(f"{arguments[0]} did not end in {limit_s:.0f} s") from e
        raise
    if process.returncode != 0:
        raise Failed(f"{os.path.basename(arguments[0])} ended with {process.returncode}: {errors.strip()[-300:]}")
    return output


def run_batch_job(arguments, limit_s):
    """The same for loads of throughput, at a low priority: beside the servers that they measure, on the same
    processors, they would interrupt them for every single answer."""
    return run_to_end(arguments, limit_s, (find_program("chrt"), "--batch", "0"))


def last_json(output):
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed(f"no JSON in: {output[-200:]}")


def run_wrk(port, script, arguments, seconds, connections):
    """`per_s` counts only successful answers."""
    command = [find_program("wrk"), f"-t{WRK_THREADS}", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
    command += ["-s", os.path.join(HERE, script), f"http://127.0.0.1:{port}", "--", *map(str, arguments)]
    result = last_json(run_batch_job(command, seconds + 30))
    result["per_s"] = (result["requests"] - result["status_errors"]) / result["seconds"]
    return result


def wrk(label, port, request, items, seconds, connections=WRK_CONNECTIONS):
    """
    `request` is (method, path before the item's number, path after it), or, where the number is in the body, the same
    and (body before it, body after it).
    """
    result = run_wrk(port, "requests.lua", [*request[:3], items, *request[3:]], seconds, connections)
    return record(tool="wrk", label=label, items=items, connections=connections, **result)


def wrk_keyed(label, port, items, prefix, seconds, connections=WRK_CONNECTIONS):
    """Increases of items 1 to `items`, each with a body and a key of its own that begins with `prefix`."""
    result = run_wrk(port, "keyed.lua", [items, prefix], seconds, connections)
    return record(tool="wrk", label=label, items=items, connections=connections, **result)


def wrk_bulk(label, port, items, changes, seconds, connections):
    """Batches of `changes` increases each, of items 1 to `items`."""
    result = run_wrk(port, "bulk.lua", [items, changes], seconds, connections)
    return record(tool="wrk", label=label, items=items, changes=changes, connections=connections, **result)


def wrk_pots(label, port, pots, coins, how, seconds, connections):
    """Adds and removes `coins` coins at a time, by turns, of pots 1 to `pots`; `how` is kind or draw."""
    result = run_wrk(port, "pots.lua", [pots, coins, how], seconds, connections)
    return record(tool="wrk", label=label, pots=pots, coins=coins, how=how, encoding="protobuf", **result)


def h2load_command(port, paths, root, seconds, connections, more):
    targets = os.path.join(root, f"h2load-{len(paths)}")
    with open(targets, "w") as f:
        f.writelines(f"http://127.0.0.1:{port}{path}\n" for path in paths)
    return [find_program("h2load"), "-D", str(seconds), "-c", str(connections), "-t", "2", "-i", targets, *more]


def h2load_answers(output):
    """Returns how many answers h2load got, and how many of them were no success."""
    found = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
    if not found:
        raise Failed(f"h2load printed no status codes: {output[-200:]}")
    answers = [int(count) for count in found.groups()]
    return sum(answers), sum(answers[1:])


def h2load(label, port, paths, root, seconds, more=()):
    """H2_CONNECTIONS with H2_STREAMS requests at once on each; `per_s` counts only successful answers."""
    command = h2load_command(port, paths, root, seconds, H2_CONNECTIONS, ["-m", str(H2_STREAMS), *more])
    requests, errors = h2load_answers(run_batch_job(command, seconds + 30))
    return record(tool="h2load", label=label, paths=len(paths), requests=requests, status_errors=errors, socket_errors=0,
                  per_s=(requests - errors) / seconds)


def h2load_latency(label, port, paths, root, seconds, connections, rate, more=()):
    """Requests at a fixed rate, whether earlier ones are answered or not, and how long each took (p50_ms, p99_ms)."""
    path = os.path.join(root, "h2load-log")
    pace = ["--rps", f"{rate / connections:.3f}", "-m", str(H2_STREAMS), "--log-file", path, *more]
    requests, errors = h2load_answers(
        run_to_end(h2load_command(port, paths, root, seconds, connections, pace), seconds + 30))
    with open(path) as f:
        took_ms = sorted(int(line.split("\t")[2]) / 1e3 for line in f)
    os.unlink(path)
    if not took_ms:
        raise Failed("h2load got no answer")
    return record(tool="h2load", label=label, connections=connections, requests=requests, status_errors=errors,
                  per_s=(requests - errors) / seconds, p50_ms=took_ms[len(took_ms) // 2],
                  p99_ms=took_ms[len(took_ms) * 99 // 100])


def pgbench(label, postgres, database, script, clients, seconds, more=()):
    arguments = [find_postgres_program("pgbench"), "-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres"]
    arguments += ["-n", "-M", "prepared", "-c", str(clients), "-j", str(min(2, clients)), "-T", str(seconds)]
    output = run_batch_job(arguments + [*more, "-f", script, database], seconds + 30)
    found = re.search(r"tps = ([\d.]+) \(without initial connection time\)", output)
    if not found:
        raise Failed(f"pgbench printed no tps: {output[-200:]}")
    return record(tool="pgbench", label=label, clients=clients, per_s=float(found.group(1)))


def openloop(label, program, port, seconds, options, run=run_to_end):
    """Use run_batch_job if the generator's own latencies are not what is measured."""
    if not os.access(program, os.X_OK):
        raise Missing(f"{program} is not built")
    arguments = [program, "--target", f"127.0.0.1:{port}", "--seconds", str(seconds)]
    for name, value in options.items():
        arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return record(tool="openloop", label=label, **last_json(run(arguments, seconds + 60)))


class IdleConnections:
    """Holds `count` connections, each of which has received one answer, while the `with` block runs."""

    def __init__(self, program, port, count):
        if not os.access(program, os.X_OK):
            raise Missing(f"{program} is not built")
        self.count = count
        self.arguments = [program, "--target", f"127.0.0.1:{port}", "--idle", str(count)]
        self.arguments += ["--idle-path", "/healthz", "--seconds", "55"]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            if self.process.stdout.readline():
                return self
            _, errors = self.process.communicate()
            raise Failed(f"{self.count} connections could not be opened: {errors.strip()}")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def __exit__(self, *exception):
        try:
            _, errors = self.process.communicate(timeout=30)
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise
        if self.process.returncode != 0 and exception[0] is None:
            raise Failed(errors.strip())


class ResidentMemory:
    """Samples the resident memory of a Quipu while the `with` block runs; `max_kib` is the largest seen."""

    def __init__(self, quipu, every_s=0.1):
        self.quipu = quipu
        self.every_s = every_s
        self.max_kib = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def sample(self):
        while not self.stopped.is_set():
            try:
                self.max_kib = max(self.max_kib, self.quipu.resident_kib())
            except (OSError, AttributeError):
                return  # it has ended
            self.stopped.wait(self.every_s)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.stopped.set()
        self.thread.join()


def settle(seconds=0.5):
    """Waits, so that what the last measurement left behind does not fall into the next."""
    os.sync()
    time.sleep(seconds)
