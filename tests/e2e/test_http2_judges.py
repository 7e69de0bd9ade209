"""Clients of HTTP/2 that we did not write: curl, h2load, Node's http2, httpx, and h2spec, which looks for mistakes."""

import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

from harness.counts import action
from harness.tls import Certificate
from harness.waiting import HANG_S

# What h2spec expects and the server does not do, with the reason.
KNOWN = {
    ("3.5", "Sends invalid connection preface"): "the port also speaks HTTP/1.1, which answers 400 and closes",
    ("5.1", "closed: Sends a DATA frame after sending RST_STREAM frame"): "nghttp2 ignores data of closed streams",
    ("5.1", "closed: Sends a DATA frame"): "nghttp2 ignores data of closed streams",
    # These two send data after the end of their request. If the answer is complete before the data arrives, the stream is
    # closed, and again nghttp2 ignores it.
    ("5.1", "half closed (remote): Sends a DATA frame"): "nghttp2 ignores data of closed streams",
    ("6.1", 'Sends a DATA frame on the stream that is not in "open" or "half-closed (local)" state'):
        "nghttp2 ignores data of closed streams",
    ("5.3.1", "Sends PRIORITY frame that depend on itself"): "RFC 9113 has no priorities any more, and they are ignored",
}


def program(name):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=HANG_S, check=False, **options)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("tls") / "one")


def test_curl_in_the_clear(serve, client, sqlite_store):
    if "HTTP2" not in run(program("curl"), "--version").stdout:
        pytest.skip("this curl has no HTTP/2")
    server = serve(sqlite_store)
    item = client(server).new_item()
    done = run("curl", "-sS", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}", "--json", '{"amount":3}',
               f"http://127.0.0.1:{server.port}{action(item, 'increase')}")
    assert done.stdout.endswith(" 2 200"), done.stdout + done.stderr
    assert client(server).value(item) == 3


def test_curl_over_tls(serve, sqlite_store, certificate):
    if "HTTP2" not in run(program("curl"), "--version").stdout:
        pytest.skip("this curl has no HTTP/2")
    server = serve(sqlite_store, *certificate.arguments(), tls=certificate.trust())
    done = run("curl", "-sS", "-k", "-w", " %{http_version}", f"https://localhost:{server.port}/healthz", "--resolve",
               f"localhost:{server.port}:127.0.0.1")
    assert done.stdout == '{"status":"ok"} 2', done.stdout + done.stderr


def test_h2load_gets_an_answer_to_every_request(serve, client, store):
    program("h2load")
    server = serve(store)
    item, many = client(server).new_item(), 2000
    done = run("h2load", "-n", many, "-c", 4, "-m", 64, "-H", ":method: POST",
               f"http://127.0.0.1:{server.port}{action(item, 'increase')}")
    assert re.search(rf"{many} succeeded, 0 failed, 0 errored", done.stdout), done.stdout + done.stderr
    assert client(server).value(item) == many


NODE = """
const http2 = require('http2');
const session = http2.connect(process.argv[1]);
session.on('error', (error) => { console.error(error); process.exit(1); });
let left = 100, sum = 0;
for (let i = 0; i < 100; i++) {
    const stream = session.request({':method': 'POST', ':path': process.argv[2], 'content-type': 'application/json'});
    let body = '';
    stream.on('data', (data) => { body += data; });
    stream.on('end', () => {
        sum += JSON.parse(body).value;
        if (--left === 0) { console.log(sum); session.close(); }
    });
    stream.end('{"amount":1}');
}
"""


def test_node_sends_a_hundred_requests_at_once(serve, client, sqlite_store):
    server = serve(sqlite_store)
    item = client(server).new_item()
    done = run(program("node"), "-e", NODE, f"http://127.0.0.1:{server.port}", action(item, "increase"))
    assert done.stdout.strip() == str(sum(range(1, 101))), done.stdout + done.stderr


def test_httpx_in_the_clear_and_over_tls(serve, sqlite_store, certificate):
    httpx = pytest.importorskip("httpx", reason="python3-httpx is not installed")
    plain = serve(sqlite_store)
    with httpx.Client(http1=False, http2=True, timeout=HANG_S) as http:
        answers = [http.get(f"http://127.0.0.1:{plain.port}/healthz") for _ in range(5)]
    assert {(answer.status_code, answer.http_version) for answer in answers} == {(200, "HTTP/2")}
    plain.stop()
    safe = serve(sqlite_store, *certificate.arguments(), tls=certificate.trust())
    with httpx.Client(http2=True, verify=False, timeout=HANG_S) as http:
        answer = http.get(f"https://localhost:{safe.port}/openapi.json")
    assert (answer.status_code, answer.http_version) == (200, "HTTP/2")


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory):
    """The program: installed, or built from Go's registry."""
    found = shutil.which("h2spec")
    if found:
        return found
    folder = tmp_path_factory.mktemp("go")
    try:
        done = run(program("go"), "install", "github.com/summerwind/h2spec/cmd/h2spec@latest",
                   env={"PATH": str(pathlib.Path(shutil.which("go")).parent) + ":/usr/bin:/bin", "HOME": str(folder),
                        "GOBIN": str(folder), **{name: value for name, value in _go_settings()}})
    except subprocess.TimeoutExpired:
        pytest.skip("Go's registry does not answer")
    if done.returncode != 0:
        pytest.skip(f"h2spec cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return str(folder / "h2spec")


def _go_settings():
    """Where Go looks for modules here."""
    wanted = ("GOPROXY", "GONOSUMDB", "GONOSUMCHECK", "GOFLAGS", "GOSUMDB", "GONOPROXY", "GOINSECURE", "GOMODCACHE", "GOPATH")
    lines = run("go", "env", *wanted).stdout.splitlines()
    return [(name, value) for name, value in zip(wanted, lines) if value]


@pytest.mark.full
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
def test_h2spec_finds_no_mistake_but_the_known_ones(h2spec, serve, sqlite_store, certificate, tmp_path, tls):
    server = serve(sqlite_store, *(certificate.arguments() if tls else []), tls=certificate.trust() if tls else None)
    report = tmp_path / "report.xml"
    words = [h2spec, "-h", "127.0.0.1", "-p", server.port, "-P", "/healthz", "--strict", "-o", 5, "-j", report]
    done = run(*words, *(["-t", "-k"] if tls else []))
    assert report.exists(), done.stdout + done.stderr
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    results = {(case.get("package").removeprefix("http2/"), case.get("classname")): case for case in cases}
    failed = {name for name, case in results.items() if case.find("failure") is not None or case.find("error") is not None}
    assert len(results) > 100
    assert not failed - set(KNOWN), done.stdout
