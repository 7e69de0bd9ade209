"""The images, really built and started: `make test-image`. It takes minutes, so it is no part of `make test`.

Needs root, buildah, and the network for apt; package/image_base.py says how they are built. The archive of a release has
its tests in package/test_release.py.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from engines.waiting import HANG_S, wait_until  # noqa: E402
from package import image_base  # noqa: E402
from package.clean_root import ROOT, must  # noqa: E402
from package.image_base import KEPT, buildah  # noqa: E402

USER = 10001
TOOLS = ["cc", "gcc", "clang", "ld", "as", "make", "meson", "ninja", "python3", "curl", "wget"]


@pytest.fixture(scope="session")
def images():
    """Builds all of them as `make image` does; their names."""
    missing = image_base.why_there_is_no_image()
    if missing:
        pytest.skip(missing)
    environment = {**os.environ, **image_base.environment(image_base.base())}
    output = must("make", "--no-print-directory", "image", cwd=ROOT, env=environment)
    return re.findall(r"^building (\S+):latest$", output, re.MULTILINE)


def config(image):
    return json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]


def variables(image):
    return dict(entry.split("=", 1) for entry in config(image)["Env"])


# ---- what they are


def test_there_is_one_for_every_role_and_one_for_all(images, container):
    _, refusal = container.run("quipu", "serve", "--roles", "none-such")
    roles = refusal.split("roles are: ")[1].splitlines()[0].split(", ")
    names = {"all": "quipu", "counts": "count-processing-service"}
    assert images == [names.get(role, f"quipu-{role}") for role in ["all", *roles]]
    for role in ["all", *roles]:
        assert variables(names.get(role, f"quipu-{role}"))["QUIPU_ROLES"] == role


def test_all_share_their_files(images):
    """All layers but the last, which is empty."""
    layers = {image: json.loads(buildah("inspect", "--type", "image", image))["Docker"]["rootfs"]["diff_ids"]
              for image in images}
    assert len({tuple(ids[:-1]) for ids in layers.values()}) == 1, layers


def test_it_runs_as_nobody_checks_its_health_and_keeps_data_in_a_volume(images):
    for image in images:
        found = config(image)
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", found["User"])
        assert found["Healthcheck"]["Test"] == ["CMD", "quipu", "health"]
        assert (found["Entrypoint"], found["Cmd"]) == (["quipu"], ["serve"])
        assert found["Volumes"] == {"/var/lib/quipu": {}} and found["StopSignal"] == "SIGTERM"
        assert found["ExposedPorts"] == {"8080/tcp": {}}


# ---- what is in them


class Container:
    """A working container of an image, started by buildah in a chroot."""

    def __init__(self, image):
        self.name = buildah("from", image)
        self.root = pathlib.Path(buildah("mount", self.name))

    def run(self, *words, env=None):
        return image_base.run_in(self.name, *words, env=env)

    def close(self):
        buildah("rm", self.name)


@pytest.fixture
def container(images):
    one = Container(images[1])
    yield one
    one.close()


def test_no_compiler_and_nothing_else_that_it_does_not_need_is_inside(container):
    for tool in TOOLS:
        assert not any((container.root / folder / tool).exists() for folder in ("usr/bin", "usr/local/bin")), tool
    assert not list((container.root / "usr/include").rglob("*.h"))
    assert not [path for path in (container.root / "var/lib/apt/lists").rglob("*") if path.is_file()]
    assert not (container.root / "quipu").exists()


def test_without_being_told_that_it_is_meant_it_does_not_listen_to_the_world(container):
    status, printed = container.run("quipu", "serve")
    assert status == 2
    assert "0.0.0.0:8080 can be reached from other machines" in printed


# ---- running one


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(pid):
    with contextlib.suppress(FileNotFoundError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


@contextlib.contextmanager
def serving(container, env):
    """The program inside; yields its pid as the machine sees it. Ends with SIGTERM and exit 0."""
    log = KEPT / "serve.log"
    with log.open("wb") as output:
        started = subprocess.Popen(image_base.command_in(container.name, "quipu", "serve", env=env), stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: b"quipu listening on" in log.read_bytes() or started.poll() is not None, "it listens")
        assert started.poll() is None, log.read_text()
        (pid,) = [pid for pid in descendants(started.pid)
                  if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"bin/quipu\0serve\0")
                  and pathlib.Path(f"/proc/{pid}/comm").read_text() == "quipu\n"]
        yield pid
        os.kill(pid, signal.SIGTERM)
        assert started.wait(HANG_S) == 0, log.read_text()
    finally:
        if started.poll() is None:
            for pid in descendants(started.pid):
                os.kill(pid, signal.SIGKILL)
            started.wait(HANG_S)


def ask(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return json.load(answer)


def test_the_program_serves_is_healthy_and_writes_nowhere_but_into_its_volume(container):
    port = free_port()
    env = {"QUIPU_LISTEN": f"0.0.0.0:{port}", "QUIPU_INSECURE": "yes"}
    status, _ = container.run("quipu", "health", env=env)
    assert status == 1
    marker = KEPT / "marker"
    marker.write_text("")
    with serving(container, env) as pid:
        ids = re.search(r"^Uid:\s+(\d+)\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        assert set(ids.groups()) == {str(USER)}
        assert ask(port, "/api/v1/internal/counts", b'{"itemId":"a"}')["currentValue"] == 0
        assert ask(port, "/api/v1/counts/a/increase", b"")["value"] == 1
        assert container.run("quipu", "health", env=env) == (0, "ok\n")
    with serving(container, env):
        assert ask(port, "/api/v1/counts/a/increase", b"")["value"] == 2
    written = must("find", container.root, "-xdev", "-newer", marker, "-type", "f").split()
    assert [path for path in written if not path.startswith(f"{container.root}/var/lib/quipu/")] == []
