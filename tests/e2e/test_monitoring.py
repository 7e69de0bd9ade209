"""Alert rules and dashboard: every metric and label they name is on a live page, and every alert can fire."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from harness.keys import KeyFile
from harness.stores import SqliteStore
from harness.tls import Certificate
from harness.waiting import HANG_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/quipu.json"
OF_PROMETHEUS = {"up"}
OF_SCRAPING = {"instance", "job"}
SELECTOR = re.compile(r"\b(quipu_\w+|process_\w+|up)\b(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\bby \(([^)]*)\)")

# A series for which each alert fires within 20 minutes.
FIRING = {
    "QuipuDown": 'up{job="quipu",instance="a"} 0x20',
    "QuipuStoreDown": 'quipu_store_up{store="counts-store"} 0x20',
    "QuipuDependencyDown": 'quipu_dependency_up{dependency="gateway-bus"} 0x20',
    "QuipuServerErrors": 'quipu_http_requests_total{code="500"} 0+1x20',
    "QuipuRefusing": 'quipu_http_requests_total{code="503"} 0+1x20',
    "QuipuSlowRequests": 'quipu_http_request_duration_seconds_bucket{le="+Inf"} 0+9x20',
    "QuipuSlowCommits": 'quipu_commit_duration_seconds_bucket{le="+Inf"} 0+9x20',
    "QuipuLaneFilling": 'quipu_lane_depth{lane="counts-write-0"} 3000x20',
    "QuipuExpiredCommands": 'quipu_expired_commands_total{lane="counts-write-0"} 0+200x20',
    "QuipuPoisonedCommands": 'quipu_poisoned_commands_total{lane="counts-write-0"} 0+1x20',
    "QuipuOutcomeUnknown": 'quipu_store_errors_total{kind="OUTCOME_UNKNOWN"} 0+1x20',
    "QuipuConnectionsRefused": "quipu_http_connections_refused_total 0+1x20",
    "QuipuCallersRefused": 'quipu_access_refused_total{reason="key",instance="a"} 0+120x20',
    "QuipuCertificateExpires": "quipu_tls_certificate_expires_seconds 1200000x20",  # time begins at 0 here
    "QuipuReloadFailed": "quipu_last_reload_successful 0x20",
    "QuipuOutboxStuck": 'quipu_outbox_oldest_seconds{outbox="entitlements"} 301+60x20',
    "QuipuOutboxFailed": 'quipu_outbox_failed{outbox="entitlements"} 2x20',
    "QuipuCountersLate": 'quipu_outbox_oldest_seconds{outbox="dialogs"} 31+60x20',
    "QuipuCountersStopped": 'quipu_outbox_published_total{outbox="dialogs"} 0+1x20',
    "QuipuNotificationsStuck": "quipu_notifications_oldest_seconds 601+60x20",
    "QuipuMessagesStuck": "quipu_sender_oldest_seconds 601+60x20",
    "QuipuDeadLetters": "quipu_dead_letters 1x20",
    "QuipuUnreadableMessages": "quipu_sender_malformed_total 0+1x20",
}
CALM = {  # where 0 would be a cause
    "QuipuDown": "1x20",
    "QuipuStoreDown": "1x20",
    "QuipuDependencyDown": "1x20",
    "QuipuCertificateExpires": "1300000x20",
    "QuipuReloadFailed": "1x20",
}
FINITE = {  # histograms need a second bucket
    "QuipuSlowRequests": 'quipu_http_request_duration_seconds_bucket{le="1"} 0+9x20',
    "QuipuSlowCommits": 'quipu_commit_duration_seconds_bucket{le="1"} 0+9x20',
}


def rules():
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def panels():
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]


def expressions():
    """{where it stands: PromQL}, of both files."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in panels():
        for target in panel.get("targets", []):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found


@pytest.fixture(scope="module")
def live(binary, tmp_path_factory, module_serve):
    """{name: the labels of its samples}, as Prometheus gets them: of a server with every role, with keys and TLS."""
    directory = tmp_path_factory.mktemp("monitored")
    keys = KeyFile(binary, directory / "keys")
    prometheus = keys.new("prometheus", "internal")
    certificate = Certificate(directory / "tls")
    server = module_serve(SqliteStore(directory / "data"), "--roles", "all", "--api-keys", keys.path,
                          *certificate.arguments(), tls=certificate.trust())
    assert server.ask("POST", "/api/v1/internal/counts", {"itemId": "monitored"}, prometheus.headers).status == 201
    metrics = {}
    for line in server.ask("GET", "/metrics", headers=prometheus.headers).body.decode().splitlines():
        found = re.match(r"(\w+)(?:\{(.*)\})? \S+$", line)
        if found and not line.startswith("#"):
            metrics.setdefault(found.group(1), set()).update(re.findall(r'(\w+)="', found.group(2) or ""))
    return metrics


def test_every_metric_and_label_of_alerts_and_dashboard_is_on_the_page(live):
    seen = set()
    for where, expression in expressions().items():
        selectors = SELECTOR.findall(expression)
        assert selectors, f"{where}: {expression}"
        labels = set()
        for name, matchers in selectors:
            assert name in live or name in OF_PROMETHEUS, f"{where} asks for {name}, which /metrics does not have"
            labels |= live.get(name, set())
            for label in re.findall(r"(\w+)\s*[=!]~?\s*\"", matchers):
                assert label in live.get(name, set()) | OF_SCRAPING, f"{where}: {name} has no label {label}"
            seen.add(name)
        for group in GROUPING.findall(expression):
            for label in group.split(","):
                assert label.strip() in labels | OF_SCRAPING, f"{where}: nothing there has the label {label}"
    assert len(seen) > 30


def test_the_labels_that_texts_of_alerts_and_legends_show_are_there(live):
    for rule in rules():
        labels = set().union(*(live.get(name, set()) for name, _ in SELECTOR.findall(rule["expr"])))
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels | OF_SCRAPING, rule["alert"]
    for panel in panels():
        for target in panel.get("targets", []):
            labels = set().union(*(live.get(name, set()) for name, _ in SELECTOR.findall(target["expr"])))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels | OF_SCRAPING, panel["title"]


def test_every_metric_of_the_page_is_on_the_dashboard_or_in_an_alert(live):
    used = {name for expression in expressions().values() for name, _ in SELECTOR.findall(expression)}
    base = {re.sub("_(bucket|sum|count)$", "", name) for name in used}
    unused = {name for name in live if re.sub("_(bucket|sum|count)$", "", name) not in base}
    assert unused <= {"quipu_outbox_given_up_total", "quipu_notifications_retried_total",
                      "quipu_notifications_given_up_total", "quipu_sender_given_up_total"}, f"nobody looks at {sorted(unused)}"


def test_the_durations_that_alerts_ask_for_can_be_measured(all_roles_server):
    """A quantile is never above the last finite bound."""
    page = all_roles_server.ask("GET", "/metrics").body.decode()
    for rule in rules():
        for name, limit in re.findall(r"rate\((\w+)_bucket\[.*> ([0-9.]+)$", rule["expr"].strip()):
            bounds = {float(bound) for bound in re.findall(rf'{name}_bucket.*le="([0-9.e-]+)"', page)}
            assert max(bounds) > float(limit), f"{rule['alert']}: {name} has no bound above {limit}"


def test_alerts_say_what_it_means_and_what_to_do():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) and set(names) == FIRING.keys()
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"] and rule["annotations"]["description"].endswith(".")


def test_every_alert_is_told_of_in_the_operators_page():
    page = (ROOT / "docs/OPERATIONS.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(Quipu[A-Z]\w+)`", page))
    assert told == {rule["alert"] for rule in rules()}


def test_the_dashboard_can_be_imported():
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["title"] == "Quipu" and dashboard["uid"] and "id" not in dashboard
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids)) > 15
    taken = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"], panel["title"]


# ---- in the words of Prometheus itself


def promtool(*arguments, cwd=None):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run(["promtool", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=HANG_S,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules():
    assert f"{len(rules())} rules found" in promtool("check", "rules", ALERTS)


def test_promtool_accepts_the_example_of_the_operators_page(tmp_path):
    (example,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", (ROOT / "docs/OPERATIONS.md").read_text(encoding="utf-8"), re.DOTALL)
    key = tmp_path / "quipu.key"
    key.write_text("qk_prometheus_secret\n")
    (tmp_path / "prometheus.yml").write_text(re.sub(r"(?<=credentials_file: )[^}]+", str(key), example))
    assert str(key) in (tmp_path / "prometheus.yml").read_text()
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_promtool_accepts_the_expressions_of_the_dashboard(tmp_path):
    found = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    recorded = [{"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
                for number, expression in enumerate(found)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", tmp_path / "panels.yml")


def test_promtool_finds_that_every_alert_fires_and_none_without_a_cause(tmp_path):
    tests = []
    for rule in rules():
        name = rule["alert"]
        series = [text.rsplit(" ", 1) for text in (FIRING[name], FINITE.get(name)) if text]
        series = [{"series": one, "values": values} for one, values in series]
        calm = [{**one, "values": CALM.get(name, "0x20")} for one in series]
        ask = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
        tests.append(case(series, ask, [{"labels": "{}", "value": 1}]))
        tests.append(case(calm, ask, []))
    (tmp_path / "test.yml").write_text(yaml.safe_dump(
        {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", tmp_path / "test.yml")


def case(series, expression, samples):
    return {"interval": "1m", "input_series": series,
            "promql_expr_test": [{"expr": expression, "eval_time": "20m", "exp_samples": samples}]}
