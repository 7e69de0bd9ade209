"""`make release`: complete, the same bytes whenever and wherever the same commit is built, and refused for anything else.

The image is left out where none can be built, and its tests are skipped.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from package import image_base  # noqa: E402
from package.clean_root import ROOT, must, run  # noqa: E402

CCACHE = "/usr/lib/ccache"
VERSION = must(ROOT / "scripts/version.sh")
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read()))
"""


def clone(folder, source=ROOT):
    done = run("git", "clone", "-q", "--shared", source, folder)
    if done.returncode != 0:
        pytest.skip(f"a release is made of a commit, and git cannot clone this tree: {done.stderr.strip()}")
    return folder


@pytest.fixture(scope="module")
def image_settings():
    """The environment in which a release builds its image, or leaves it out where none can be built."""
    missing = image_base.why_there_is_no_image()
    if missing:
        return {"WITHOUT_IMAGE": "yes"}
    return image_base.environment(image_base.base(), "--build-arg", f"BUILD_BASE={image_base.build_base()}")


@pytest.fixture(scope="module")
def first(image_settings, tmp_path_factory):
    """`make release` in a clone: its folder dist."""
    if not shutil.which("dh"):
        pytest.skip("debhelper is not installed")
    tree = clone(tmp_path_factory.mktemp("first") / "tree")
    quick = {"PATH": f"{CCACHE}:{os.environ['PATH']}"}
    must("make", "--no-print-directory", "release", cwd=tree, env={**os.environ, **image_settings, **quick})
    return tree / "dist"


@pytest.fixture
def archive(first):
    """The image as OCI archive."""
    found = list(first.glob("*.oci.tar"))
    if not found:
        pytest.skip(f"the release has no image: {image_base.why_there_is_no_image()}")
    return found[0]


def names_below(folder):
    return {path.name for path in folder.iterdir()}


def test_it_is_complete_and_its_sums_are_right(first, image_settings):
    arch = must("dpkg", "--print-architecture")
    files = {f"quipu-{VERSION}.tar.gz", f"quipu_{VERSION}-1_{arch}.deb", f"quipu-{VERSION}-{arch}.cdx.json"}
    if "WITHOUT_IMAGE" not in image_settings:
        files.add(f"quipu-{VERSION}-{arch}.oci.tar")
    assert names_below(first) == files | {"SHA256SUMS"}
    must("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=first)
    assert {line.split("  ")[1] for line in (first / "SHA256SUMS").read_text().splitlines()} == files


def test_a_second_build_elsewhere_without_a_cache_has_the_same_bytes(first, image_settings, tmp_path):
    elsewhere = clone(tmp_path / "another" / "place", first.parent)  # the same commit, whatever happens to ours
    second, other = tmp_path / "dist", {"CCACHE_DISABLE": "1", "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8"}
    must(elsewhere / "scripts/release.sh", second, env={**os.environ, **image_settings, **other})
    digests = [{path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
               for folder in (first, second)]
    assert digests[0] == digests[1]


def blob(archive, digest):
    """What a digest of the archive stands for, checked against it."""
    content = archive.extractfile(f"blobs/{digest.replace(':', '/')}").read()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def test_the_image_is_whole_and_made_for_serving_every_role(archive):
    with tarfile.open(archive) as file:
        assert json.load(file.extractfile("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (entry,) = json.load(file.extractfile("index.json"))["manifests"]
        assert entry["annotations"]["org.opencontainers.image.ref.name"] == VERSION
        manifest = json.loads(blob(file, entry["digest"]))
        assert all(blob(file, layer["digest"]) for layer in manifest["layers"])
        config = json.loads(blob(file, manifest["config"]["digest"]))["config"]
    assert (config["Entrypoint"], config["Cmd"], config["User"]) == (["quipu"], ["serve"], "10001:10001")
    assert "QUIPU_ROLES=all" in config["Env"]


@pytest.mark.parametrize("reader", ["oci-archive", "docker-archive"])
def test_the_image_has_the_program_of_this_version(archive, reader):
    """As podman, skopeo and a Docker with containerd's store read it, and as any Docker does."""
    container = image_base.buildah("from", "-q", f"{reader}:{archive}")
    image = image_base.buildah("inspect", "--format", "{{.FromImageID}}", container)
    try:
        assert image_base.run_in(container, "quipu", "version") == (0, f"quipu {VERSION}\n")
    finally:
        image_base.buildah("rm", container)
        image_base.buildah("rmi", image)


def test_the_sources_are_those_of_the_commit_and_have_its_version(first, tmp_path):
    must("tar", "-xf", first / f"quipu-{VERSION}.tar.gz", "-C", tmp_path)
    tree = tmp_path / f"quipu-{VERSION}"
    tracked = set(must("git", "ls-tree", "-r", "--name-only", "HEAD", cwd=ROOT).splitlines())
    assert {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()} == tracked
    assert must(tree / "scripts/version.sh") == VERSION


def test_the_bill_of_materials_names_every_library_that_the_package_needs(first):
    (path,) = first.glob("*.cdx.json")
    named = {entry["name"] for entry in json.loads(path.read_text())["components"]}
    (package,) = first.glob("*.deb")
    needed = set(re.findall(r"(?:^|, )([a-z0-9.+-]+)", must("dpkg-deb", "-f", package, "Depends")))
    assert needed - {"adduser", "debconf"} <= named and {"node-llhttp", "libjs-dygraphs"} <= named


def test_the_bill_of_materials_is_valid(first, tmp_path):
    """As the schema says that comes with the public `cyclonedx-python-lib`."""
    (path,) = first.glob("*.cdx.json")
    wanted = "cyclonedx-python-lib[json-validation]"
    done = run(sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path, wanted, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {wanted}: {done.stderr.strip().splitlines()[-1]}")
    done = subprocess.run([sys.executable, "-c", VALIDATE], input=path.read_text(), capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stdout + done.stderr


def test_changes_that_are_not_committed_are_not_released(tmp_path):
    tree = clone(tmp_path / "tree")
    (tree / "README.md").write_text("changed")
    done = run(tree / "scripts/release.sh", tmp_path / "dist")
    assert done.returncode == 1 and "not committed" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_the_version_has_a_dated_heading_in_the_changelog():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert all(re.fullmatch(r"[\d.]+ \(\d{4}-\d\d-\d\d\)", heading) for heading in headings), headings
    assert headings[0].startswith(f"{VERSION} (")


@pytest.mark.parametrize("heading", ["## Unreleased", f"## {VERSION}", f"## {VERSION.replace('.', '0')} (2026-11-18)"])
def test_a_version_without_a_dated_heading_is_not_released(tmp_path, heading):
    tree = clone(tmp_path / "tree")
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(re.sub(rf"^## {re.escape(VERSION)} .*$", heading, changelog.read_text(), flags=re.MULTILINE))
    must("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "Undo the heading", cwd=tree)
    done = run(tree / "scripts/release.sh", tmp_path / "dist")
    assert done.returncode == 1 and f"## {VERSION} (" in done.stderr
    assert not (tmp_path / "dist").exists()
