"""The Debian package, really built, installed, started, upgraded, removed and purged, in a clean Debian.

Needs root, debhelper, lintian, debootstrap and the network for apt. No systemd runs in a chroot, so the program is
started with the user, the folder and the settings that the unit names.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from package.clean_root import ROOT, CleanRoot, must, run, what_is_missing  # noqa: E402

UNIT = "/lib/systemd/system/quipu.service"
SETTINGS = "/etc/quipu/quipu.env"
DATA = "/var/lib/quipu"
EXPOSURE_MAX = 2.0


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """What make deb builds."""
    if not shutil.which("dh") or not shutil.which("lintian"):
        pytest.skip("debhelper or lintian is not installed")
    quick = {**os.environ, "PATH": f"/usr/lib/ccache:{os.environ['PATH']}"}
    return pathlib.Path(must(ROOT / "scripts/deb.sh", tmp_path_factory.mktemp("deb"), env=quick))


@pytest.fixture(scope="module")
def older(package, tmp_path_factory):
    """The same files under an earlier version."""
    folder = tmp_path_factory.mktemp("older")
    must("dpkg-deb", "-R", package, folder / "tree")
    control = folder / "tree/DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 0.1.9-1", control.read_text(), flags=re.MULTILINE))
    must("dpkg-deb", "--root-owner-group", "-b", folder / "tree", folder / "quipu_0.1.9-1_amd64.deb")
    return folder / "quipu_0.1.9-1_amd64.deb"


# ---- the file


def test_lintian_finds_nothing(package):
    done = run("lintian", "--allow-root", "--display-info", "--fail-on", "error,warning", package)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_it_is_fortified_as_every_build_is():
    """Debian's own level comes last in the compiler's arguments, and would override that of meson.build."""
    rules = (ROOT / "deploy" / "debian" / "rules").read_text()
    asked = dict(re.findall(r"^export (DEB_\w+) = (.*)$", rules, re.MULTILINE))
    without = {name: value for name, value in asked.items() if not name.startswith("DEB_CPPFLAGS")}
    assert "_FORTIFY_SOURCE" in run("dpkg-buildflags", "--get", "CPPFLAGS", env={**os.environ, **without}).stdout
    assert "_FORTIFY_SOURCE" not in run("dpkg-buildflags", "--get", "CPPFLAGS", env={**os.environ, **asked}).stdout


def test_it_has_the_version_of_the_program(package):
    version = must(ROOT / "scripts/version.sh")
    assert must("dpkg-deb", "-f", package, "Version") == f"{version}-1"


def test_it_builds_with_the_packages_that_make_build_installs():
    control = (ROOT / "deploy/debian/control").read_text()
    declared = set(re.findall(r"^ ([a-z0-9-]+)(?: \(.*\))?,$", control, re.MULTILINE))
    listed = re.search(r'^build="(.*?)"$', (ROOT / "scripts/deps.sh").read_text(), re.MULTILINE | re.DOTALL).group(1)
    assert declared - {"debhelper-compat", "po-debconf"} == set(listed.split()) - {"gcc", "libc6-dev", "make"}


def test_the_copyright_names_what_the_program_contains():
    """The libraries that the bill of materials lists because they are inside the program, not beside it."""
    stanzas = (ROOT / "deploy/debian/copyright").read_text().split("\n\n")
    bill = (ROOT / "scripts/sbom.py").read_text()
    for package, name in (("node-llhttp", "llhttp"), ("libjs-dygraphs", "dygraphs")):
        assert package in bill
        (stanza,) = [one for one in stanzas if one.startswith("Files: ") and package in one]
        assert f"Comment: {name}," in stanza and "Copyright: " in stanza and "License: Expat" in stanza


def unit_lines(text):
    return [tuple(line.split("=", 1)) for line in text.splitlines() if line and line[0] not in "#["]


@pytest.fixture(scope="module")
def unit(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unit")
    must("dpkg-deb", "-x", package, folder)
    return folder / UNIT.lstrip("/")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit_and_finds_it_shut_tightly(unit, tmp_path):
    assert {("User", "quipu"), ("Group", "quipu"), ("StateDirectory", "quipu")} <= set(unit_lines(unit.read_text()))
    copy = tmp_path / "quipu.service"
    copy.write_text(unit.read_text().replace("/usr/bin/quipu", "/bin/true").replace("Documentation=man:quipu(1)\n", ""))
    done = run("systemd-analyze", "verify", copy)
    assert "quipu.service:" not in done.stderr and "Unknown" not in done.stderr, done.stderr
    done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", unit)
    score = re.search(r"Overall exposure level for quipu.service: ([0-9.]+)", done.stdout)
    assert score and float(score.group(1)) <= EXPOSURE_MAX, done.stdout + done.stderr


# ---- its life


@pytest.fixture
def root(tmp_path):
    missing = what_is_missing("debootstrap", "unshare", "chroot")
    if missing:
        pytest.skip(missing)
    return CleanRoot(tmp_path / "root")


def install(root, package):
    shutil.copy(package, root.path("/tmp"))
    return root.must("apt-get", "install", "-y", "-q", "--no-install-recommends", f"/tmp/{package.name}")


def owner_and_mode(root, path):
    return root.must("stat", "-c", "%U:%G %a", path).strip()


def listen_on_a_free_port(root):
    """Sets the address as an administrator would; the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with root.path(SETTINGS).open("a") as settings:
        settings.write(f"QUIPU_LISTEN=127.0.0.1:{port}\n")
    return port


def command_of_the_unit(root):
    """What systemd would run, and with which user and variables."""
    lines = unit_lines(root.path(UNIT).read_text())
    values = dict(lines)
    variables = [value for name, value in lines if name == "Environment"]
    variables += [line for line in root.path(values["EnvironmentFile"].lstrip("-")).read_text().splitlines()
                  if line and not line.startswith("#")]
    start = f"umask {values['UMask']}; cd {values['WorkingDirectory']} && exec {values['ExecStart']}"
    words = ["env", "-i", "PATH=/usr/bin:/bin", *variables, "sh", "-c", start]
    return root.command(*words, user=values["User"])


@contextlib.contextmanager
def started(root, log):
    """The service, until the end of the block; then it gets SIGTERM and must end well."""
    with log.open("wb") as output:
        service = subprocess.Popen(command_of_the_unit(root), stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 60
        while b"quipu listening on" not in log.read_bytes():
            assert service.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0, log.read_text()
    finally:
        if service.poll() is None:
            service.kill()
            service.wait()


def ask(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def increase(root, port):
    with started(root, root.path("/tmp/quipu.log")):
        return ask(port, "/api/v1/counts/visits/increase", b"")["value"]


def test_it_is_installed_started_upgraded_removed_and_purged(root, package, older):
    install(root, older)
    assert owner_and_mode(root, DATA) == "quipu:quipu 700"
    assert owner_and_mode(root, SETTINGS) == "root:root 600"
    assert root.must("getent", "passwd", "quipu").strip().endswith(f":{DATA}:/usr/sbin/nologin")
    assert root.path("/etc/systemd/system/multi-user.target.wants/quipu.service").is_symlink()
    for name in ("/usr/share/man/man1/quipu.1.gz", "/usr/share/bash-completion/completions/quipu"):
        assert root.path(name).exists(), name

    port = listen_on_a_free_port(root)
    settings = root.path(SETTINGS).read_text()
    with started(root, root.path("/tmp/quipu.log")):
        ask(port, "/api/v1/internal/counts", b'{"itemId":"visits"}')
        assert ask(port, "/api/v1/counts/visits/increase", b"")["value"] == 1

    install(root, package)
    assert root.must("quipu", "version").strip() == f"quipu {must(ROOT / 'scripts/version.sh')}"
    assert root.path(SETTINGS).read_text() == settings, "an upgrade must keep the settings"
    assert increase(root, port) == 2

    root.must("apt-get", "remove", "-y", "-q", "quipu")
    assert not root.path("/usr/bin/quipu").exists() and not root.path(UNIT).exists()
    assert root.path(SETTINGS).read_text() == settings and root.path(DATA).is_dir()

    assert "still in /var/lib/quipu" in root.must("apt-get", "purge", "-y", "-q", "quipu")
    assert not root.path("/etc/quipu").exists()
    install(root, package)
    assert increase(root, listen_on_a_free_port(root)) == 3, "a purge must keep the data"


def test_a_purge_deletes_the_data_of_an_administrator_who_agrees(root, package):
    install(root, package)
    listen_on_a_free_port(root)
    with started(root, root.path("/tmp/quipu.log")):
        pass
    assert list(root.path(DATA).iterdir())
    root.must("sh", "-c", f"echo {shlex.quote('quipu quipu/purge-data boolean true')} | debconf-set-selections")
    root.must("apt-get", "purge", "-y", "-q", "quipu")
    assert not root.path(DATA).exists() and not root.path("/etc/quipu").exists()
