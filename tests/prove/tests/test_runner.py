"""The parts of a proof that decide what it is worth: that its faults are planned, happen and are told truthfully."""

import errno
import io
import os
import struct
import subprocess
import sys
import time
import types

import pytest

import previous
import prove
import recovery
import report
from check.result import Finding, Invariant
from cluster import SETTINGS, settings_for
from conductor import Conductor, Happened
from disk import Disk, compile_preload
from engines.kafka_log import truncate
from engines.server import Unavailable
from fault import Fault, FaultFailed
from faults import KINDS
from part import Part, Result, Settings
from recovery import FollowedLog, Measurement, Recovery
from schedule import Schedule, Shape

POSTGRES = Shape("postgres", 3, ("postgres", "redis", "kafka", "nats", "rabbitmq"), has_paths=True, has_clock=True)
SQLITE = Shape("sqlite", 1, (), has_paths=True, has_clock=False)


# ---- the schedule ----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_schedule():
    assert Schedule(7, 540, POSTGRES).faults == Schedule(7, 540, POSTGRES).faults
    assert Schedule(7, 540, POSTGRES).faults != Schedule(8, 540, POSTGRES).faults


@pytest.mark.parametrize("seed", range(20))
def test_the_default_run_has_150_faults_of_every_kind_that_is_possible(seed):
    faults = Schedule(seed, 480, POSTGRES).faults + Schedule(seed, 92, SQLITE).faults
    assert len(faults) >= 150
    assert {fault.kind for fault in faults} == set(KINDS) - {"quipu-upgrade"}


@pytest.mark.parametrize("seed", range(20))
def test_faults_of_one_target_never_overlap_and_those_of_several_do(seed):
    faults = Schedule(seed, 540, POSTGRES).faults
    together = [(one, other) for one in faults for other in faults
                if one is not other and one.at_s <= other.at_s < one.end_s]
    assert together
    assert all(one.target != other.target for one, other in together)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_marked_to_be_forgotten_is_not_taken_away_by_another_fault_before(seed):
    faults = [fault for fault in Schedule(seed, 2900, POSTGRES).faults if fault.prepare_at_s is not None]
    assert {fault.target for fault in faults} == {"redis", "kafka", "nats", "rabbitmq"}
    taken_away = [(one, other) for one in faults for other in faults if one is not other and
                  one.target == other.target and one.prepare_at_s <= other.at_s <= one.at_s]
    assert not taken_away


def test_a_rolling_upgrade_replaces_every_process_once():
    shape = Shape("postgres", 3, ("postgres",), has_paths=False, has_clock=False, has_previous=True)
    upgrades = [fault.target for fault in Schedule(7, 300, shape).faults if fault.kind == "quipu-upgrade"]
    assert upgrades == ["quipu-1", "quipu-2", "quipu-3"]


@pytest.mark.parametrize("seed", range(20))
def test_during_an_upgrade_nothing_else_happens_to_a_process_of_the_previous_release(seed):
    shape = Shape("postgres", 3, ("postgres",), has_paths=False, has_clock=False, has_previous=True)
    faults = Schedule(seed, 60, shape, prove.UPGRADE_FAULTS).faults
    upgraded = {fault.target: fault.at_s for fault in faults if fault.kind == "quipu-upgrade"}
    others = [fault for fault in faults if fault.kind != "quipu-upgrade"]
    assert others and all(fault.at_s > upgraded[fault.target] for fault in others)


def test_only_the_chosen_kinds_happen():
    assert {fault.kind for fault in Schedule(7, 300, POSTGRES, ["redis-flush"]).faults} == {"redis-flush"}
    assert not Schedule(7, 300, POSTGRES, []).faults


# ---- the upgrade -----------------------------------------------------------------------------------------------------


def settings(faults=None, binary="old", services=("counts", "dialogs")):
    return Settings(binary="new", load=None, seed=7, services=list(services), previous=binary, faults=faults)


def planned(minutes, store, chosen):
    """[(store, whether it is the upgrade, services, seconds), …]"""
    arguments = types.SimpleNamespace(minutes=minutes, store=store)
    return [(where, part.previous is not None, part.services, round(seconds))
            for part, where, seconds in prove.plan_parts(arguments, chosen)]


def test_the_upgrade_is_a_part_of_its_own_without_services_that_cannot_run_side_by_side():
    assert planned(12, "both", settings()) == [
        ("postgres", False, ["counts", "dialogs"], 540), ("postgres", True, ["counts"], 60),
        ("sqlite", False, ["counts", "dialogs"], 108), ("sqlite", True, ["counts", "dialogs"], 12)]


def test_without_the_previous_release_all_the_time_is_for_the_rest():
    assert planned(12, "postgres", settings(binary=None)) == [("postgres", False, ["counts", "dialogs"], 720)]
    assert planned(12, "postgres", settings(services=["dialogs"])) == [("postgres", False, ["dialogs"], 720)]


def test_a_run_of_the_upgrade_alone_gives_it_all_the_time():
    assert planned(1, "postgres", settings(["quipu-upgrade", "quipu-kill"])) == [("postgres", True, ["counts"], 60)]


def test_a_binary_gets_only_the_settings_that_it_knows(tmp_path):
    old = tmp_path / "quipu"
    old.write_text("#!/bin/sh\necho '  --drain-timeout TIME  how long'\necho '  --other WORD  like --console'\n")
    old.chmod(0o755)
    assert settings_for(old) == ["--drain-timeout", SETTINGS["--drain-timeout"]]


def clone_without_tags(monkeypatch, tmp_path):
    """A repository with one commit, in which that of the previous release is missing."""
    monkeypatch.setattr(previous, "ROOT", tmp_path)
    subprocess.run(["git", "-c", "init.defaultBranch=main", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "x"],
                   check=True)


def test_without_tags_the_previous_release_is_the_commit_that_the_tests_of_upgrades_know(monkeypatch, tmp_path):
    clone_without_tags(monkeypatch, tmp_path)
    monkeypatch.setattr(previous, "COMMIT", previous.commit_of("HEAD"))
    assert previous.newest_release() == previous.COMMIT


def test_a_shallow_clone_has_no_previous_release_and_says_so(monkeypatch, tmp_path):
    clone_without_tags(monkeypatch, tmp_path)
    with pytest.raises(Unavailable, match=previous.COMMIT[:12]):
        previous.newest_release()


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.fixture(name="disk")
def disk_fixture(tmp_path):
    disk = Disk(compile_preload(tmp_path), tmp_path / "orders")
    yield disk
    disk.close()


def write_under(disk, path, code):
    """Runs Python code on the file `f` with the disk below it; returns its errno, 0 for success."""
    program = f"import os\nf = open({str(path)!r}, 'r+b', buffering=0)\ntry:\n    {code}\nexcept OSError as e:\n    os._exit(e.errno)"
    return subprocess.run([sys.executable, "-c", program], env={**os.environ, **disk.environment()}, check=False).returncode


def test_a_full_disk_refuses_to_make_files_longer_and_nothing_else(disk, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    disk.fill()
    assert write_under(disk, path, "os.pwrite(f.fileno(), b'abc', 0)") == 0
    assert write_under(disk, path, "os.pwrite(f.fileno(), b'abc', 6)") == errno.ENOSPC
    assert write_under(disk, path, "f.seek(0, 2); f.write(b'x')") == errno.ENOSPC
    assert write_under(disk, path, "os.posix_fallocate(f.fileno(), 0, 100)") == errno.ENOSPC
    assert path.read_bytes() == b"abc45678"
    assert disk.refused == 3
    disk.heal()
    assert write_under(disk, path, "f.seek(0, 2); f.write(b'x')") == 0


def test_a_slow_disk_makes_every_sync_wait(disk, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    disk.slow(50_000)
    began = time.monotonic()
    assert write_under(disk, path, "os.fsync(f.fileno()); os.fdatasync(f.fileno())") == 0
    assert time.monotonic() - began >= 0.1
    assert disk.slowed == 2


def batch(offset, records, size):
    """A record batch as Kafka stores it, as far as anyone looks at it here."""
    body = bytearray(size - 12)
    struct.pack_into(">i", body, 23 - 12, records - 1)
    return struct.pack(">qi", offset, len(body)) + bytes(body)


def test_kafka_forgets_whole_batches_behind_a_position(tmp_path):
    log = tmp_path / "0.log"
    log.write_bytes(batch(0, 3, 100) + batch(3, 2, 150) + batch(5, 7, 120))
    assert not truncate(log, 370)
    assert truncate(log, 101) == range(5, 12)
    assert log.stat().st_size == 250


class Cluster:
    nodes = ()


class NothingPlanned:
    faults = ()


def conducted(tmp_path, kind):
    conductor = Conductor(Cluster(), NothingPlanned(), tmp_path)
    conductor.perform(kind(Cluster(), "redis", 0.5), 0)
    conductor.close()
    return conductor


def test_a_fault_that_does_not_happen_is_a_failure_of_the_run_and_not_counted(tmp_path):
    class Nothing(Fault):
        name = "nothing"

        def inject(self):
            raise FaultFailed("it had no effect")

        def heal(self):
            pass

    conductor = conducted(tmp_path, Nothing)
    assert conductor.failures == ["it had no effect"]
    assert not conductor.happened


def test_a_fault_that_happened_is_told_with_its_times(tmp_path):
    class Something(Fault):
        name = "something"

        def inject(self):
            return "broken"

        def heal(self):
            return "mended"

    conductor = conducted(tmp_path, Something)
    [happened] = conductor.happened
    assert happened.detail == "broken; mended"
    assert happened.injected_us <= happened.healed_us
    assert (tmp_path / "faults.jsonl").read_text().count("\n") == 2


# ---- recovery and report ---------------------------------------------------------------------------------------------


def test_the_first_success_is_that_of_an_operation_that_was_sent_after_the_fault_began(tmp_path):
    log = tmp_path / "gateway.log"
    log.write_text("1 > 1 0 k-1 send u m1\n")
    early, late = FollowedLog(tmp_path, "gateway", "send"), FollowedLog(tmp_path, "gateway", "send")
    with log.open("a", encoding="ascii") as file:
        file.write("20 < 1 200 {}\n21 > 2 0 k-2 take u 1\n22 < 2 200 {}\n23 > 3 0 k-3 send u m3\n24 < 3 503 {}\n")
        file.write("25 > 4 0 k-4 send u m4\n26 < 4 200 {}\n27 > 5 0 k-5 send u m5\n30 < 5 2")
    assert early.first_success_us(10) == 26
    assert late.first_success_us(28) is None
    with log.open("a", encoding="ascii") as file:
        file.write("00 {}\n")
    assert late.first_success_us(28) == 30


def test_a_slow_recovery_is_a_finding():
    assert not list(Recovery("nats", 1.9, 29.0).problems())
    assert len(list(Recovery("nats", 2.1, None).problems())) == 2
    assert len(list(Recovery("kafka", None, None, has_outbox=False).problems())) == 1


@pytest.fixture(name="measurement")
def measurement_fixture(monkeypatch, tmp_path):
    monkeypatch.setattr(recovery, "BACKLOG_MAX_S", 0.3)
    return Measurement(types.SimpleNamespace(services=["dialogs"]), None, None, tmp_path)


def test_what_the_faults_left_must_leave_before_recovery_is_measured(monkeypatch, measurement):
    left = [7, 3, 0]
    monkeypatch.setattr(recovery, "open_events", lambda *_: left.pop(0))
    backlog = measurement.clear()
    assert backlog.events == 7 and 0 <= backlog.empty_s < 0.3 and not list(backlog.problems())


def test_a_backlog_that_does_not_leave_is_a_finding_and_the_recovery_is_not_measured(monkeypatch, measurement):
    monkeypatch.setattr(recovery, "open_events", lambda *_: 7)
    monkeypatch.setattr(measurement, "run", lambda: pytest.fail("the recovery was measured"))
    part = Part(Settings(None, None, 7, []), "sqlite", 60)
    part.conductor = types.SimpleNamespace(happened=[], violations=[])
    part.load = part.schedule = types.SimpleNamespace(acknowledged=1, faults=[])
    part._measure_recovery(measurement)
    broken = [invariant for invariant in part._own_invariants(left={}) if not invariant.holds]
    assert len(broken) == 1 and "7 events waited" in broken[0].text()


def test_the_report_shows_what_happened_and_escapes_it():
    seconds = [{"t": second * 1_000_000, "phase": "running", "acked": {"counts": 100 * second},
                "errors": {"lost": second}, "waiting": 0, "unknown": 0} for second in range(1, 9)]
    result = Result("sqlite", 7, seconds=seconds, faults=[Happened("quipu-kill", "quipu-1", 2_000_000, 3_000_000, "pid <1>")],
                    invariants=[Invariant("all is well", 800), Invariant("nothing <b>", 5, [Finding("lost 4711")])])
    page = report.page([result], 'make prove ARGS="--seed 7"')
    assert "A promise is broken" in page and "lost 4711" in page and "800" in page
    assert "pid &lt;1&gt;" in page and "nothing &lt;b&gt;" in page
    assert "<script" not in page and "http" not in page


def result_with(acked, **covered):
    return Result("sqlite", 7, seconds=[{"t": 1, "phase": "quiet", "acked": acked, "errors": {}}],
                  invariants=[Invariant(f"{role}: all is well", count) for role, count in covered.items()])


def test_roles_that_only_react_have_what_the_checks_found():
    result = result_with({"gateway": 500, "entitlements": 300, "pots": 9}, gateway=500, sender=400, notifications=120)
    assert result.roles == {"gateway": 500, "sender": 400, "entitlements": 300, "notifications": 120, "pots": 9}
    assert result.operations == 809
    assert "sender" not in result_with({"counts": 5}).roles


def test_a_default_run_notes_what_it_has_too_little_of():
    enough = result_with({"counts": 1_400_000, "gateway": 60_000, "entitlements": 60_000}, sender=50_000, notifications=50_000)
    assert not list(prove.shortfalls([enough]))
    few = result_with({"counts": 1_000_000, "entitlements": 60_000}, notifications=49_999)
    total, role = prove.shortfalls([few])
    assert "1,060,000" in total and "49,999 operations of notifications" in role


# ---- the progress ----------------------------------------------------------------------------------------------------


class _Screen(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_one_line_that_is_erased_on_a_terminal_and_plain_lines_elsewhere(monkeypatch, is_terminal):
    screen = _Screen(is_terminal)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((30, 24)))
    part = types.SimpleNamespace(result=Result("sqlite", 7), elapsed_s=65.0, doing="breaking things, one after the other",
                                 load=None, conductor=None)
    progress = prove.Progress()
    progress.show(part)
    progress.end()
    line = "sqlite 1:05  breaking things, one after the other"
    assert screen.getvalue() == (f"\r\x1b[K{line[:29]}\r\x1b[K" if is_terminal else f"{line}\n")
