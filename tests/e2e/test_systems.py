"""scripts/deps.sh: which packages it wants on which system, and what it says on one that it does not know."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def deps(folder, release, *arguments):
    """Runs the script as on the system that `release` describes."""
    path = folder / "os-release"
    path.write_text(release)
    return subprocess.run([ROOT / "scripts/deps.sh", *arguments], env={**os.environ, "OS_RELEASE": str(path)},
                          capture_output=True, text=True, timeout=60, check=False)


def names(folder, release, *purposes):
    done = deps(folder, release, "--list", *purposes)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n'
FEDORA = 'NAME="Fedora Linux"\nVERSION="41 (Workstation Edition)"\nID=fedora\nVERSION_ID=41\n'


def test_debian_and_ubuntu_differ_where_their_names_do(tmp_path):
    everything = ("build", "test", "full", "bench", "image", "deb")
    debian, ubuntu = names(tmp_path, DEBIAN, *everything), names(tmp_path, UBUNTU, *everything)
    assert debian - ubuntu == {"libclang-rt-14-dev", "chromium"}
    assert ubuntu - debian == {"libclang-rt-18-dev", "chromium-browser"}


def test_fedora_has_its_own_names_to_build_and_says_that_it_has_no_others(tmp_path):
    found = names(tmp_path, FEDORA, "build")
    assert {"libuv-devel", "sqlite-devel", "llhttp-devel"} <= found and not any(name.endswith("-dev") for name in found)
    done = deps(tmp_path, FEDORA, "--list", "test")
    assert (done.returncode, done.stdout) == (1, "") and "Debian 12 or Ubuntu 24.04" in done.stderr


@pytest.mark.parametrize("release", ["ID=arch\n", 'ID=debian\nVERSION_ID="11"\n', 'ID=ubuntu\nVERSION_ID="22.04"\n', ""])
def test_another_system_is_named_with_what_to_do(tmp_path, release):
    done = deps(tmp_path, release, "build")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Debian 12, Ubuntu 24.04 and Fedora, and this is" in done.stderr and "ninja -C build" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--list"], ["everything"], ["build", "everything"]])
def test_wrong_purposes_are_refused(tmp_path, arguments):
    done = deps(tmp_path, DEBIAN, *arguments)
    assert (done.returncode, done.stdout) == (2, "") and "usage: scripts/deps.sh" in done.stderr


def test_what_is_installed_is_not_installed_again(tmp_path):
    release = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    done = deps(tmp_path, release, "test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
