"""What operators see: /healthz, /readyz, /metrics, the log."""

import json
import re
import time

from harness.counts import action, increase_request, new_id, record
from harness.http import ask_all
from harness.quipu import run
from harness.waiting import wait_until

LABEL = r'[a-z_]+="(?:\\.|[^"\\])*"'
SAMPLE = re.compile(rf"^[a-zA-Z_:][a-zA-Z0-9_:]*(\{{{LABEL}(,{LABEL})*\}})? (NaN|[+-]?Inf|[-+0-9.eE]+)$")
METRICS = {
    "quipu_http_requests_total": "counter",
    "quipu_http_request_duration_seconds": "histogram",
    "quipu_http_requests_in_flight": "gauge",
    "quipu_http_connections": "gauge",
    "quipu_lane_depth": "gauge",
    "quipu_batch_size": "histogram",
    "quipu_commit_duration_seconds": "histogram",
    "quipu_parked_commands": "gauge",
    "quipu_store_errors_total": "counter",
    "quipu_dependency_duration_seconds": "summary",
    "quipu_reruns_total": "counter",
}


def test_healthz_and_readyz_say_that_all_is_well(shared_server, openapi, request):
    health = shared_server.ask("GET", "/healthz")
    openapi.check_answer("GET", "/healthz", health)
    assert health.status == 200
    ready = shared_server.ask("GET", "/readyz")
    openapi.check_answer("GET", "/readyz", ready)
    engine = request.node.callspec.params["module_counts"]
    assert ready.json() == {
        "status": "ready",
        "dependencies": [{"name": "counts-store", "engine": engine, "status": "up"}],
    }


def test_metrics_are_in_the_text_format_and_complete(shared_server, counts, openapi):
    counts.increase(counts.new_item())
    answer = shared_server.ask("GET", "/metrics")
    openapi.check_answer("GET", "/metrics", answer)
    assert answer.header("content-type").startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    assert text.endswith("\n")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert METRICS.items() <= types.items()
    for line in text.splitlines():
        assert line.startswith("#") or SAMPLE.match(line), line
    sampled = {re.split("[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    for name, kind in METRICS.items():
        assert (name + "_count" if kind in ("histogram", "summary") else name) in sampled


def test_metrics_describe_the_process_and_its_version(shared_server, binary):
    version = run(binary, "version").stdout.split()[1]
    before = shared_server.metrics()
    assert before[f'quipu_build_info{{version="{version}"}}'] == 1
    assert abs(time.time() - before["process_start_time_seconds"]) < 24 * 3600
    assert before["process_virtual_memory_bytes"] > before["process_resident_memory_bytes"] > 1_000_000
    assert 3 < before.get("process_open_fds", 4) < before["process_max_fds"]
    after = shared_server.metrics()
    assert after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] > 0


def test_requests_that_no_route_takes_are_counted(shared_server):
    name = 'quipu_http_requests_total{route="unmatched",method="any",code="404"}'
    before = shared_server.metrics().get(name, 0)
    assert shared_server.ask("GET", "/nothing").status == 404
    assert shared_server.metrics()[name] == before + 1


def test_histograms_are_cumulative_and_end_at_infinity(shared_server, counts):
    counts.increase(counts.new_item())
    text = shared_server.ask("GET", "/metrics").body.decode()
    series = {}
    for name, labels, bound, value in re.findall(r'^(\w+)_bucket\{(.*?),?le="([^"]+)"\} (\S+)$', text, re.MULTILINE):
        series.setdefault((name, labels.rstrip(",")), []).append((float(bound.replace("+Inf", "inf")), float(value)))
    assert series
    for (name, labels), buckets in series.items():
        assert buckets == sorted(buckets), f"{name}{{{labels}}}"
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1][0] == float("inf")
        total = re.search(rf"^{name}_count{re.escape('{' + labels + '}') if labels else ''} (\S+)$", text, re.MULTILINE)
        assert total and float(total.group(1)) == buckets[-1][1]


def requests_total(server, route, method, code):
    wanted = {f'route="{route}"', f'method="{method}"', f'code="{code}"'}
    return sum(
        value
        for name, value in server.metrics().items()
        if name.startswith("quipu_http_requests_total{") and wanted <= set(re.findall(r'\w+="[^"]*"', name))
    )


def test_requests_are_counted_by_route_method_and_code(shared_server, counts):
    """By the route's template, so that a million items do not make a million series."""
    item = counts.new_item()
    template = "/api/v1/counts/{itemId}/increase"
    before = [requests_total(shared_server, template, "POST", code) for code in (200, 404, 400)]
    for _ in range(3):
        counts.increase(item)
    counts.increase(new_id())
    counts.increase(item, 0)
    after = [requests_total(shared_server, template, "POST", code) for code in (200, 404, 400)]
    assert [now - then for now, then in zip(after, before)] == [3, 1, 1]
    assert item not in shared_server.ask("GET", "/metrics").body.decode()


def test_unknown_paths_do_not_make_series(shared_server):
    for number in range(20):
        shared_server.ask("GET", f"/nowhere-{number}")
    assert "nowhere" not in shared_server.ask("GET", "/metrics").body.decode()


def test_batches_are_measured(shared_server, counts):
    item = counts.new_item()
    commits = shared_server.metric("quipu_commit_duration_seconds_count")
    commands = shared_server.metric("quipu_batch_size_sum")
    ask_all((shared_server.port, increase_request(item)) for _ in range(50))
    wait_until(lambda: shared_server.metric("quipu_commit_duration_seconds_count") > commits, "commits are measured")
    wait_until(lambda: shared_server.metric("quipu_batch_size_sum") >= commands + 50, "all commands are counted")


def test_connections_and_requests_under_way_are_counted(shared_server):
    wait_until(lambda: shared_server.metric("quipu_http_connections") == 1, "only this look is connected")
    connections = [shared_server.connect() for _ in range(5)]
    wait_until(lambda: shared_server.metric("quipu_http_connections") == 6, "five more are connected")
    for connection in connections:
        connection.close()
    wait_until(lambda: shared_server.metric("quipu_http_connections") == 1, "they are gone")
    assert shared_server.metric("quipu_http_requests_in_flight") == 1


def test_json_logs_are_one_object_a_line_with_control_characters_escaped(serve, client, sqlite_store):
    server = serve(sqlite_store, "--log-format", "json", "--log-level", "debug")
    with server.connect() as connection:
        connection.ask("GET", "/nowhere%0Ainjected", headers={"User-Agent": "a\tb"})
    counts = client(server)
    counts.increase(counts.new_item())
    server.stop()
    lines = server.log_text().splitlines()
    assert lines
    for line in lines:
        entry = json.loads(line)
        assert {"time", "level"} & entry.keys(), entry


def test_text_logs_have_no_raw_control_characters(serve, sqlite_store):
    server = serve(sqlite_store, "--log-format", "text", "--log-level", "debug")
    for path in ("/nowhere%1b%5b31m", record("a%1b"), action("x%0Ay", "increase")):
        server.ask("GET", path)
    server.stop()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", server.log_text())


def test_a_secret_in_a_store_url_is_never_logged(serve, database, sqlite_store):
    url = database.url.replace("postgres@", "postgres:s3cr3t@")
    server = serve(sqlite_store, "--log-level", "debug", env={"QUIPU_STORE": url})
    server.stop()
    assert "s3cr3t" not in server.log_text() + server.output.read_text()


def test_samples_of_one_name_stand_together_on_the_page_of_all_roles(all_roles_server):
    """As the text format of Prometheus asks; several roles have relays, intakes and lanes."""
    lines = all_roles_server.ask("GET", "/metrics").body.decode().splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) and "quipu_inbox_taken_total" in families
    names = [re.sub("_(bucket|sum|count)$", "", re.split("[{ ]", line)[0]) for line in lines if not line.startswith("#")]
    runs = [name for name, before in zip(names, [None, *names]) if name != before]
    assert len(runs) == len(set(runs))
