"""Starting the gateway and the sender: what is refused, and what /readyz lists."""

import pytest

from harness import quipu


@pytest.fixture
def check(binary, tmp_path):
    def command(*arguments):
        return quipu.run(binary, "serve", "--check-config", *arguments, cwd=tmp_path)

    return command


def test_readyz_lists_the_store_the_bus_and_the_cache(gateway_server, gateway_stack):
    answer = gateway_server.ask("GET", "/readyz")
    cache = [] if gateway_stack.cache == "none" else [("cache", gateway_stack.cache.split(":")[0], "up")]
    listed = [(entry["name"], entry["engine"], entry["status"]) for entry in answer.json()["dependencies"]]
    assert (answer.status, answer.json()["status"]) == (200, "ready")
    assert listed == [("gateway-store", gateway_stack.engine, "up"), ("gateway-bus", "local", "up"), *cache]


def test_the_gateway_has_its_own_routes_only(gateway_server):
    paths = gateway_server.ask("GET", "/openapi.json").json()["paths"]
    assert {"/api/config", "/api/config/{userId}", "/api/send"} <= paths.keys()
    assert not [path for path in paths if "counts" in path]
    assert gateway_server.ask("GET", "/api/v1/internal/counts/a").status == 404


def test_every_role_runs_in_one_process(serve, gateway_client, client, sqlite_store):
    server = serve(sqlite_store, "--roles", "all")
    names = [entry["name"] for entry in server.ask("GET", "/readyz").json()["dependencies"]]
    assert {"counts-store", "gateway-store", "gateway-bus", "cache", "pots-store"} <= set(names)
    gateway = gateway_client(server)
    assert len(gateway.use_up(gateway.new_user(2))) == 2
    assert client(server).increase(client(server).new_item()).json()["value"] == 1


def test_the_cache_is_memory_on_sqlite_and_none_on_postgres_unless_told(serve, sqlite_store, postgres_store):
    engines = {}
    for store in (sqlite_store, postgres_store):
        server = serve(store, "--roles", "gateway,sender")
        entries = server.ask("GET", "/readyz").json()["dependencies"]
        engines[store.name] = [entry["engine"] for entry in entries if entry["name"] == "cache"]
    assert engines == {"sqlite": ["memory"], "postgres": []}


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["--cache", "memory", "--store", "postgres://127.0.0.1/x"], "memory"),
        (["--cache", "memory", "--gateway-store", "postgres://127.0.0.1/x"], "memory"),
        (["--cache", "memcached://127.0.0.1"], "cache"),
        (["--cache", "sometimes"], "cache"),
        (["--gateway-store", "mysql://127.0.0.1/x"], "store"),
        (["--gateway-bus", "carrier-pigeon:"], "gateway-bus"),
        (["--gateway-window-unit", "0s"], "gateway-window-unit"),
        (["--gateway-window-unit", "soon"], "gateway-window-unit"),
        (["--roles", "gateway"], "sender"),
        (["--roles", "sender"], "gateway"),
        (["--roles", "counts,gateway"], "sender"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_work_is_refused_with_2_and_named(check, arguments, word):
    done = check(*arguments)
    assert done.returncode == 2, done
    assert word in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--roles", "gateway,sender"],
        ["--roles", "counts"],
        ["--roles", "counts,gateway,sender", "--cache", "none"],
        ["--cache", "redis://127.0.0.1:6379", "--store", "postgres://127.0.0.1/x"],
        ["--cache", "redis+sentinel://a,b:26379,c/quipu/1", "--store", "postgres://a,b:5433/x"],
        ["--cache", "memory", "--store", "postgres://127.0.0.1/x", "--gateway-store", "sqlite:", "--counters-store",
         "sqlite:"],
        ["--cache", "auto", "--gateway-window-unit", "200ms"],
    ],
    ids=" ".join,
)
def test_what_can_work_is_accepted(check, arguments):
    done = check(*arguments)
    assert done.returncode == 0, done.stderr


def test_print_config_hides_the_password_of_redis(binary, tmp_path):
    secret = {"QUIPU_CACHE": "redis://:s3cr3t@cache.example:6379"}
    done = quipu.run(binary, "serve", "--print-config", cwd=tmp_path, env=secret)
    assert done.returncode == 0, done.stderr
    assert "cache.example" in done.stdout
    assert "s3cr3t" not in done.stdout + done.stderr


@pytest.mark.parametrize("rest", ["://:s3cr3t@:x/y", "://:s3cr3t@a,b/0", "+sentinel://:s3cr3t@a,b", "+sentinel://:s3cr3t@a,/m",
                                  "+sentinel://:s3cr3t@a/m/x", "+sentinel://:s3cr3t@a,a,a,a,a,a,a,a,a/m"])
def test_a_redis_url_that_can_never_work_is_refused_at_start_without_showing_it(binary, tmp_path, rest):
    secret = {"QUIPU_CACHE": f"redis{rest}"}
    done = quipu.run(binary, "serve", "--listen", "127.0.0.1:0", cwd=tmp_path, env=secret)
    assert done.returncode in (1, 2), done
    assert done.stderr and "s3cr3t" not in done.stderr
    assert "listening" not in done.stdout


def test_migrate_prepares_the_tables_of_the_gateway(binary, database, tmp_path):
    done = quipu.run(binary, "migrate", "--store", database.url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    columns = database.query(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_name = 'rate_limit_store' ORDER BY ordinal_position"
    )
    assert columns == [
        ("user_id", "text", "NO"),
        ("rate_limit", "integer", "NO"),
        ("time_window", "integer", "NO"),
        ("current_count", "integer", "NO"),
        ("last_refresh_time", "timestamp with time zone", "NO"),
        ("reserved_count", "integer", "NO"),
        ("shadow", "boolean", "NO"),
        ("by_default", "boolean", "NO"),
    ]
    assert database.query("SELECT count(*) FROM sent_messages") == [(0,)]


def test_a_redis_that_is_not_there_at_start_is_no_reason_not_to_be_ready(serve, postgres_stack, free_port):
    server = serve(postgres_stack.beside(cache=f"redis://127.0.0.1:{free_port}"))
    entries = {entry["name"]: entry["status"] for entry in server.ask("GET", "/readyz").json()["dependencies"]}
    assert entries == {"gateway-store": "up", "gateway-bus": "up", "cache": "down"}
