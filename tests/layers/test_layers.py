"""The layers of docs/ARCHITECTURE.md, checked on every #include: what only a comment guards, leaks."""
import pathlib
import re

import pytest

SRC = pathlib.Path(__file__).resolve().parent.parent.parent / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)

# Which folders of src/ the files of a folder may include. The longest matching prefix counts.
MAY_INCLUDE = {
    "base": {"base"},
    "runtime": {"base", "runtime", "ports/answer.h"},
    "access": {"base", "access"},
    "ports": {"base", "ports"},
    "protobuf": {"base", "protobuf"},
    "http": {"base", "access", "runtime", "protobuf", "http", "ports/answer.h"},
    "flow": {"base", "ports", "runtime", "flow"},
    "events": {"base", "ports", "events"},
    "inbound": {"base", "access", "ports", "runtime", "flow", "http", "inbound"},
    "admin": {"base", "access", "ports", "runtime", "flow", "http", "inbound", "admin"},
    "services": {"base", "access", "ports", "runtime", "flow", "events", "protobuf", "http", "inbound", "admin"},
    "adapters": {"base", "ports", "adapters/shared"},
    "cli": {"base", "access", "cli"},
}

# Where everything meets.
SEES_ALL = {"app", "main.c"}

# Headers of client libraries, and the only folders that may see them.
MAY_SEE = {
    "libpq-fe.h": {"adapters/store/postgres"},
    "sqlite3.h": {"adapters/store/sqlite", "adapters/bus/local", "adapters/shared"},
    "hiredis/hiredis.h": {"adapters/cache/redis"},
    "librdkafka/rdkafka.h": {"adapters/bus/kafka"},
    "curl/curl.h": {"adapters/notifier/webhook", "cli"},
    "entitlements.pb-c.h": {"events"},
    "nats/nats.h": {"adapters/bus/nats"},
    "amqp.h": {"adapters/bus/rabbitmq"},
    "amqp_ssl_socket.h": {"adapters/bus/rabbitmq"},
    "amqp_tcp_socket.h": {"adapters/bus/rabbitmq"},
    "uv.h": {"runtime"},
    "llhttp.h": {"http"},
    "nghttp2/nghttp2.h": {"http"},
    "zlib.h": {"http"},
    "jansson.h": {"base", "admin", "app"},
    "openssl/bio.h": {"access"},
    "openssl/crypto.h": {"access"},
    "openssl/ecdsa.h": {"access"},
    "openssl/err.h": {"access", "http"},
    "openssl/evp.h": {"base", "access"},
    "openssl/hmac.h": {"access"},
    "openssl/pem.h": {"access"},
    "openssl/ssl.h": {"http"},
    "protobuf-c/protobuf-c.h": {"protobuf"},
}

# Headers of ours that expose a client library, and the only folders that may include them.
MAY_SHARE = {
    "adapters/shared/sqlite_connection.h": {"adapters/store/sqlite", "adapters/bus/local", "adapters/shared"},
}


def files():
    return sorted(p for p in SRC.rglob("*") if p.suffix in {".c", ".h"})


def place(path):
    """base/slice.h -> "base"; adapters/store/sqlite/x.c -> "adapters/store/sqlite"; main.c -> "main.c"."""
    parts = path.relative_to(SRC).parts
    deep = {"adapters": 3, "services": 2}.get(parts[0], 1)
    return "/".join(parts[: min(deep, len(parts) - 1)]) or parts[0]


def includes():
    for path in files():
        for kind, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            yield path, kind, name


OWN = [(p, n) for p, kind, n in includes() if kind == '"']
FOREIGN = [(p, n) for p, kind, n in includes() if kind == "<"]


def test_there_is_something_to_check():
    assert len(OWN) > 100 and len(FOREIGN) > 50


@pytest.mark.parametrize("path", [p for p in files() if place(p) not in SEES_ALL],
                         ids=lambda p: str(p.relative_to(SRC)))
def test_a_file_includes_only_layers_below_its_own(path):
    home = place(path)
    for other, name in OWN:
        if other != path:
            continue
        target, allowed = place(SRC / name), MAY_INCLUDE[home.split("/")[0]]
        assert (SRC / name).exists(), f"{name} is not below src/"
        assert target == home or {target, target.split("/")[0], name} & allowed, \
            f"{path.relative_to(SRC)} may not include {name}"


def test_no_service_includes_another_service_and_no_adapter_another_adapter():
    for path, name in OWN:
        home, target = place(path), place(SRC / name)
        for layer in ("services/", "adapters/"):
            if home.startswith(layer) and target.startswith(layer) and target != "adapters/shared":
                assert home == target, f"{path.relative_to(SRC)} includes {name}"


def test_only_the_app_includes_adapters():
    for path, name in OWN:
        if name.startswith("adapters/") and place(path) != "app":
            assert place(path).startswith("adapters/"), f"{path.relative_to(SRC)} includes {name}"


@pytest.mark.parametrize("header", sorted(MAY_SEE))
def test_a_client_library_is_seen_in_its_own_place_only(header):
    seen = {place(path) for path, name in FOREIGN if name == header}
    assert seen, f"nobody includes {header}: the rule is out of date"
    assert seen <= MAY_SEE[header]


@pytest.mark.parametrize("header", sorted(MAY_SHARE))
def test_a_header_that_exposes_a_client_library_is_shared_only_by_adapters_that_use_it(header):
    seen = {place(path) for path, name in OWN if name == header}
    assert seen == MAY_SHARE[header]


def test_the_nats_adapter_never_uses_the_reply_subscription_of_cnats():
    """Closing a connection releases it while cnats may still read for it: src/adapters/bus/nats/nats_link.c."""
    call = re.compile(r"\b(js_[A-Z]\w*|natsConnection_(?:JetStream|Request\w*))\((?!\))")  # a comment has ()
    for path in files():
        if place(path) == "adapters/bus/nats":
            assert call.findall(path.read_text(encoding="utf-8")) == [], path.relative_to(SRC)
