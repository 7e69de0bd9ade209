"""deploy/kubernetes: every overlay is built as kubectl builds it, is valid by the schemas of Kubernetes, hangs together,
and has settings that the program accepts."""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from harness.quipu import run
from harness.waiting import HANG_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
OVERLAYS = sorted(path.name for path in (ROOT / "deploy/kubernetes/overlays").iterdir())
SCHEMAS = "1.30"
IMAGE_SETTINGS = {"QUIPU_LISTEN": "0.0.0.0:8080"}
VALIDATE = """
import json, sys, kubernetes_validate
for entry in json.load(sys.stdin):
    kubernetes_validate.validate(entry, sys.argv[1], strict=True)
"""


def build(overlay):
    command = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    if not shutil.which(command[0]):
        pytest.skip("neither kustomize nor kubectl is installed")
    done = subprocess.run([*command, ROOT / "deploy/kubernetes/overlays" / overlay], capture_output=True, text=True,
                          timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request):
    return request.param


@pytest.fixture(scope="module")
def entries(overlay):
    return build(overlay)


def of_kind(entries, kind):
    return [entry for entry in entries if entry["kind"] == kind]


def selected(entries, selector):
    """The names of the Deployments whose pods have the labels."""
    assert selector, "an empty selector would take every pod of the namespace"
    return [entry["metadata"]["name"] for entry in of_kind(entries, "Deployment")
            if selector.items() <= entry["spec"]["template"]["metadata"]["labels"].items()]


def container(deployment):
    (one,) = deployment["spec"]["template"]["spec"]["containers"]
    return one


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text).group(1))


def settings(entries, deployment):
    """The variables of the container, those from Secrets included."""
    found = dict(IMAGE_SETTINGS)
    for source in container(deployment).get("envFrom", []):
        (secret,) = [entry for entry in of_kind(entries, "Secret") if entry["metadata"]["name"] == source["secretRef"]["name"]]
        found.update({name: base64.b64decode(value).decode() for name, value in secret["data"].items()})
    return {**found, **{entry["name"]: entry["value"] for entry in container(deployment)["env"]}}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory):
    """The public package kubernetes-validate, in which the schemas travel."""
    folder = tmp_path_factory.mktemp("kubernetes-validate")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "kubernetes-validate"],
                          capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install kubernetes-validate: {done.stderr.strip().splitlines()[-1]}")
    return folder


def test_the_schemas_of_kubernetes_accept_everything(entries, schemas):
    known = [entry for entry in entries if entry["kind"] != "ServiceMonitor"]  # of the Prometheus operator
    assert len(known) >= 6
    done = subprocess.run([sys.executable, "-c", VALIDATE, SCHEMAS], input=json.dumps(known), capture_output=True, text=True,
                          timeout=HANG_S, env={**os.environ, "PYTHONPATH": str(schemas)}, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_process_has_its_service_budget_policy_and_monitor(entries):
    names = [entry["metadata"]["name"] for entry in of_kind(entries, "Deployment")]
    for kind, path in (("Service", ["selector"]), ("PodDisruptionBudget", ["selector", "matchLabels"]),
                       ("NetworkPolicy", ["podSelector", "matchLabels"])):
        found = []
        for entry in of_kind(entries, kind):
            selector = entry["spec"]
            for step in path:
                selector = selector[step]
            assert selected(entries, selector) == [entry["metadata"]["name"]], (kind, selector)
            found.append(entry["metadata"]["name"])
        assert found == names, kind
    services = {entry["metadata"]["name"]: entry["metadata"]["labels"] for entry in of_kind(entries, "Service")}
    for entry in of_kind(entries, "ServiceMonitor"):
        labels = entry["spec"]["selector"]["matchLabels"]
        assert [name for name, own in services.items() if labels.items() <= own.items()] == [entry["metadata"]["name"]]
        assert entry["spec"]["endpoints"][0]["path"] == "/metrics"


def test_secrets_and_claims_that_are_used_are_there(entries):
    there = {(entry["kind"], entry["metadata"]["name"]) for entry in entries}
    for deployment in of_kind(entries, "Deployment"):
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        used = {("Secret", volume["secret"]["secretName"]) for volume in volumes if "secret" in volume}
        used |= {("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) for volume in volumes
                 if "persistentVolumeClaim" in volume}
        assert used <= there and len(used) >= 1


def test_the_program_accepts_the_settings_once_there_is_a_key(entries, binary, tmp_path):
    key = run(binary, "keys", "new", "me", "--scopes", "admin").stdout
    for deployment in of_kind(entries, "Deployment"):
        given = settings(entries, deployment)
        assert given["QUIPU_API_KEYS"].startswith(container(deployment)["volumeMounts"][1]["mountPath"])
        given["QUIPU_API_KEYS"] = str(tmp_path / "keys")
        (tmp_path / "keys").write_text(key)
        done = run(binary, "serve", "--check-config", cwd=tmp_path, env=given)
        assert done.returncode == 0, done.stderr


def test_the_keys_that_are_in_the_repository_open_nothing(overlay, binary, tmp_path):
    given = {**IMAGE_SETTINGS, "QUIPU_API_KEYS": str(ROOT / "deploy/kubernetes/overlays" / overlay / "keys")}
    done = run(binary, "serve", "--check-config", cwd=tmp_path, env=given)
    assert done.returncode == 1 and "the file has no keys" in done.stderr


def test_a_process_has_the_time_to_drain_and_the_probes_notice_it(entries, binary):
    shown = run(binary, "serve", "--print-config").stdout
    drain = seconds(re.search(r"^drain-timeout = (\S+)", shown, re.MULTILINE).group(1))
    for deployment in of_kind(entries, "Deployment"):
        delay = seconds(settings(entries, deployment)["QUIPU_DRAIN_DELAY"])
        one = container(deployment)
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > delay + drain + 2
        ready = one["readinessProbe"]
        assert delay > (ready["periodSeconds"] + ready["timeoutSeconds"]) * ready["failureThreshold"]
        paths = [one[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert paths == ["/healthz", "/healthz", "/readyz"]


def test_nothing_runs_with_more_rights_than_it_needs(entries):
    for deployment in of_kind(entries, "Deployment"):
        pod, one = deployment["spec"]["template"]["spec"], container(deployment)
        assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert one["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                          "capabilities": {"drop": ["ALL"]}}
        assert one["resources"]["limits"]["memory"] == "1Gi"


def test_the_image_is_that_of_this_version(entries):
    version = subprocess.run([ROOT / "scripts/version.sh"], capture_output=True, text=True, check=True).stdout.strip()
    assert {container(entry)["image"] for entry in of_kind(entries, "Deployment")} == {f"quipu:{version}"}


def test_every_role_of_the_program_has_its_processes(binary):
    roles = run(binary, "serve", "--roles", "none-such").stderr.split("roles are: ")[1].strip().split(", ")
    entries = build("roles")
    found = {settings(entries, entry)["QUIPU_ROLES"]: entry["metadata"]["name"] for entry in of_kind(entries, "Deployment")}
    assert found == {role: f"quipu-{role}" for role in roles}


def test_a_data_folder_is_never_given_to_two_processes():
    (deployment,) = of_kind(build("sqlite"), "Deployment")
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"] == {"type": "Recreate"}
