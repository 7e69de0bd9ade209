"""prove-load as the runner sees it: started, followed second by second, and told when to stop."""

import json
import signal
import subprocess
import threading

from engines.process import end, start
from fault import until

# What the load plays for each service.
PLAYED = {"counts": ["counts"], "gateway": ["gateway"], "entitlements": ["entitlements"], "pots": ["pots"],
          "dialogs": ["dialogs", "counters"]}
FOREVER_S = 24 * 3600
DRAIN_S = 180
SET_UP_S = 120


class LoadFailed(Exception):
    """The load could not be played: the run proves nothing."""


class Load:
    """`seconds` holds what it reported, a dictionary for each second; see README.md for the members."""

    def __init__(self, program, cluster, seed, folder, rate=0):
        roles = [role for service in cluster.services for role in PLAYED[service]]
        self._errors = folder / "load-errors"
        with self._errors.open("wb") as errors:
            self._process = start(
                [program, "--targets", ",".join(cluster.targets), "--roles", ",".join(roles), "--seed", str(seed),
                 "--seconds", str(FOREVER_S), "--log", str(folder), "--key-file", str(cluster.key_file),
                 "--linger", str(FOREVER_S), "--rate", str(rate), *(["--previous"] if cluster.previous else [])],
                stdout=subprocess.PIPE, stderr=errors, text=True)
        self.seconds = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self.seconds.append(json.loads(line))

    @property
    def phase(self):
        return self.seconds[-1]["phase"] if self.seconds else "setup"

    @property
    def acknowledged(self):
        return sum(self.seconds[-1]["acked"].values()) if self.seconds else 0

    @property
    def alive(self):
        return self._process.poll() is None

    def wait_running(self):
        self._wait(lambda: self.phase == "running", SET_UP_S, "does not get through its set-up")

    def stop(self):
        """Starts nothing new. Returns when every outcome is known, while streams are still followed."""
        self._process.send_signal(signal.SIGTERM)
        self._wait(lambda: self.phase == "quiet", DRAIN_S, "does not learn all outcomes")

    def finish(self):
        """Ends the streams, and the program."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
        if not until(lambda: not self.alive, 30) or self._process.returncode != 0:
            raise LoadFailed(f"prove-load ended with {self._process.poll()}: {self._words()}")
        self._reader.join()

    def _wait(self, condition, seconds, what):
        if not until(lambda: condition() or not self.alive, seconds) or not self.alive:
            raise LoadFailed(f"prove-load {what}: {self._words()}")

    def _words(self):
        return self._errors.read_text(errors="replace")[-2000:] or str(self.seconds[-1:])

    def close(self):
        end(self._process)
