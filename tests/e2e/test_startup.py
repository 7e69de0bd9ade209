"""Starting: configuration and its precedence, refusals that say why, migrations of several processes at once."""

import pathlib
import re
import shutil
import socket
import subprocess

import pytest

from engines import process
from harness import quipu
from harness.keys import KeyFile
from harness.tls import Certificate
from harness.tokens import Issuer
from harness.waiting import HANG_S


@pytest.fixture
def run(binary, tmp_path):
    """Runs a command of the program that ends by itself, in the test's folder."""

    def command(*arguments, env=None):
        return quipu.run(binary, *arguments, cwd=tmp_path, env=env)

    return command


def setting(done, name):
    """A value as --print-config shows it."""
    assert done.returncode == 0, done.stderr
    found = re.search(rf"^{re.escape(name)}\s*=\s*(.*?)\s*(;.*)?$", done.stdout, re.MULTILINE)
    assert found, f"{name} is not in:\n{done.stdout}"
    return found.group(1)


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(run, tmp_path):
    file = tmp_path / "quipu.ini"
    file.write_text("batch-max = 7\n")
    default = run("serve", "--print-config")
    assert setting(default, "batch-max") == "1024"
    in_file = run("serve", "--config", file, "--print-config")
    assert setting(in_file, "batch-max") == "7"
    in_environment = run("serve", "--config", file, "--print-config", env={"QUIPU_BATCH_MAX": "8"})
    assert setting(in_environment, "batch-max") == "8"
    flag = run("serve", "--config", file, "--batch-max", "9", "--print-config", env={"QUIPU_BATCH_MAX": "8"})
    assert setting(flag, "batch-max") == "9"


def test_print_config_shows_every_setting_and_starts_nothing(run, tmp_path):
    data = tmp_path / "never-made"
    done = run("serve", "--data", data, "--print-config")
    for name in ["listen", "data", "roles", "batch-max", "loops", "lane-depth", "deadline", "drain-timeout"]:
        assert setting(done, name)
    assert setting(done, "listen") == "127.0.0.1:8080"
    assert not data.exists()


def test_print_config_hides_secrets(run):
    done = run("serve", "--print-config", env={"QUIPU_STORE": "postgres://someone:s3cr3t@db.example/counts"})
    assert "db.example" in setting(done, "store")
    assert "s3cr3t" not in done.stdout + done.stderr


def test_check_config_only_checks(run, tmp_path):
    data = tmp_path / "never-made"
    assert run("serve", "--data", data, "--check-config").returncode == 0
    assert not data.exists()


@pytest.fixture(scope="module")
def good_files(binary, tmp_path_factory):
    """{option: a good file}, of all that a start reads."""
    folder = tmp_path_factory.mktemp("good")
    keys, certificate = KeyFile(binary, folder / "keys"), Certificate(folder / "tls")
    keys.new("shop")
    return {"--api-keys": keys.path, "--jwt-key": Issuer(folder, "RS256").file, "--tls-cert": certificate.file,
            "--tls-key": certificate.key}


@pytest.fixture
def files(good_files, tmp_path):
    """Copies of them, which a test may spoil."""
    return {option: pathlib.Path(shutil.copy(file, tmp_path)) for option, file in good_files.items()}


def flat(options):
    return [word for pair in options.items() for word in pair]


def test_check_config_takes_good_files_and_listens_nowhere(run, files, tmp_path):
    data = tmp_path / "never-made"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", "--check-config", "--listen", address, "--data", data, *flat(files))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done
    assert f"the certificate {files['--tls-cert']} is valid for" in done.stderr
    assert not data.exists()


@pytest.mark.parametrize("content", ["nonsense\n", None], ids=["broken", "missing"])
@pytest.mark.parametrize("option", ["--api-keys", "--jwt-key", "--tls-cert", "--tls-key"])
def test_check_config_refuses_a_file_in_the_words_of_a_start(run, files, tmp_path, option, content):
    files[option].unlink()
    if content:
        files[option].write_text(content)
    arguments = ["--listen", "127.0.0.1:0", "--data", tmp_path / "data", *flat(files)]
    started, checked = run("serve", *arguments), run("serve", *arguments, "--check-config")
    assert (checked.returncode, checked.stdout, checked.stderr) == (1, "", started.stderr)
    assert started.returncode == 1
    assert option in checked.stderr or str(files[option]) in checked.stderr
    assert checked.stderr.count("\n") == 1


def test_print_config_shows_the_names_of_files_that_are_not_there(run, tmp_path):
    done = run("serve", "--print-config", "--api-keys", tmp_path / "missing")
    assert setting(done, "api-keys") == str(tmp_path / "missing")
    assert run("serve", "--print-config", "--check-config", "--api-keys", tmp_path / "missing").returncode == 1


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["--batch-max", "0"], "batch-max"),
        (["--batch-max", "many"], "batch-max"),
        (["--batch-max", "99999999999999999999"], "batch-max"),
        (["--batch-max"], "batch-max"),
        (["--deadline", "soon"], "deadline"),
        (["--deadline", "-5s"], "deadline"),
        (["--listen", "nonsense"], "listen"),
        (["--listen", "127.0.0.1:99999"], "listen"),
        (["--roles", "counts,kings"], "kings"),
        (["--store", "mysql://localhost/x"], "store"),
        (["--log-format", "poem"], "log-format"),
        (["--log-level", "loud"], "log-level"),
        (["--no-such-flag"], "no-such-flag"),
        (["extra"], "extra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_setting_is_refused_with_2_and_named(run, arguments, word):
    for check in ([], ["--check-config"]):
        done = run("serve", *check, *arguments)
        assert done.returncode == 2, done
        assert word in done.stderr
        assert done.stdout == ""


def test_a_bad_setting_in_the_environment_or_the_file_is_refused_and_named(run, tmp_path):
    done = run("serve", "--check-config", env={"QUIPU_BATCH_MAX": "none"})
    assert (done.returncode, "batch" in done.stderr.lower()) == (2, True), done
    file = tmp_path / "quipu.ini"
    file.write_text("batch-max = 5\nbach-max = 6\n")
    done = run("serve", "--config", file, "--check-config")
    assert done.returncode == 2
    assert "bach-max" in done.stderr
    done = run("serve", "--config", tmp_path / "missing.ini", "--check-config")
    assert done.returncode == 2
    assert "missing.ini" in done.stderr


def test_an_unknown_command_is_refused_with_2(run):
    done = run("sing")
    assert done.returncode == 2
    assert "sing" in done.stderr


def test_help_and_version_explain_themselves(run):
    assert "serve" in run("help").stdout
    assert re.search(r"quipu \d+\.\d+", run("version").stdout)
    assert run("help").returncode == run("version").returncode == 0


def test_settings_from_the_environment_are_used(serve, database, sqlite_store, client):
    server = serve(sqlite_store, env={"QUIPU_STORE": database.url})
    item = client(server).new_item(7)
    assert database.value(item) == 7


def test_an_address_in_use_is_a_clear_error(serve, run, sqlite_store, tmp_path):
    server = serve(sqlite_store)
    done = run("serve", "--listen", f"127.0.0.1:{server.port}", "--data", tmp_path / "other")
    assert done.returncode == 1
    assert f"127.0.0.1:{server.port}" in done.stderr and "in use" in done.stderr
    assert "listening" not in done.stdout
    assert server.ready()


def test_a_second_process_on_the_same_data_folder_is_refused(serve, run, client, sqlite_store):
    server = serve(sqlite_store)
    item = client(server).new_item(3)
    done = run("serve", "--listen", "127.0.0.1:0", "--data", sqlite_store.data)
    assert done.returncode == 1
    assert str(sqlite_store.data) in done.stderr
    assert re.search("lock|in use|another", done.stderr)
    assert "listening" not in done.stdout
    assert client(server).value(item) == 3


def test_a_data_folder_that_cannot_be_made_is_a_clear_error(run, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    done = run("serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "file" / "data")
    assert done.returncode == 1
    assert str(tmp_path / "file" / "data") in done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_public_address_is_refused_unless_asked_for(run, tmp_path, address):
    done = run("serve", "--listen", address, "--data", tmp_path / "data")
    assert done.returncode in (1, 2)
    assert "--insecure" in done.stderr
    assert "listening" not in done.stdout


def test_a_public_address_is_served_with_insecure(serve, sqlite_store):
    server = serve(sqlite_store, "--listen", "0.0.0.0:0", "--insecure")
    assert server.host == "0.0.0.0"
    assert server.ask("GET", "/healthz").status == 200


def test_a_fixed_port_is_taken_again_right_after_the_end(serve, client, sqlite_store, free_port):
    for _ in range(3):
        server = serve(sqlite_store, "--listen", f"127.0.0.1:{free_port}")
        assert server.port == free_port
        client(server).new_item()
        server.stop()


def test_migrate_prepares_an_empty_database_and_may_be_repeated(run, database, serve, client, postgres_store):
    for _ in range(2):
        done = run("migrate", "--store", database.url)
        assert done.returncode == 0, done.stderr
    assert database.query("SELECT count(*) FROM count_values") == [(0,)]
    columns = database.query(
        "SELECT column_name, data_type, collation_name, is_nullable FROM information_schema.columns "
        "WHERE table_name = 'count_values' ORDER BY ordinal_position"
    )
    assert columns == [
        ("item_id", "text", "C", "NO"),
        ("current_value", "bigint", None, "NO"),
        ("last_updated_at", "timestamp with time zone", None, "NO"),
        ("min_value", "bigint", None, "YES"),
        ("max_value", "bigint", None, "YES"),
    ]
    assert client(serve(postgres_store)).create("a", 1).status == 201


def test_migrate_without_a_server_is_a_clear_error_without_the_password(run, free_port):
    done = run("migrate", "--deadline", "50ms", env={"QUIPU_STORE": f"postgres://postgres:s3cr3t@127.0.0.1:{free_port}/x"})
    assert done.returncode == 1
    assert done.stderr
    assert "s3cr3t" not in done.stderr


def test_a_migrate_that_gives_up_ends_its_connections_first(run, database):
    """At any moment of a connection: a library that is taken down while a thread still uses it aborts the process."""
    for deadline_ms in range(1, 31):
        done = run("migrate", "--deadline", f"{deadline_ms}ms", "--store", database.url)
        assert done.returncode in (0, 1), done.stderr
        database.query("DROP SCHEMA public CASCADE")
        database.query("CREATE SCHEMA public")


def test_a_start_that_is_refused_ends_its_connections_first(run, database, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for _ in range(10):
        done = run("serve", "--listen", "127.0.0.1:0", "--roles", "counts,pots", "--counts-store", database.url,
                   "--pots-store", "sqlite:", "--data", tmp_path / "file")
        assert done.returncode == 1, done.stderr


def test_several_processes_may_migrate_at_once(binary, database):
    running = [
        process.start([binary, "migrate", "--store", database.url], env=quipu.environment(), stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True)
        for _ in range(5)
    ]
    ended = [(one.communicate(timeout=HANG_S)[0], one.returncode) for one in running]
    assert [code for _, code in ended] == [0] * 5, ended
    assert database.query("SELECT count(*) FROM count_values") == [(0,)]


def test_two_processes_may_start_on_an_empty_database_at_once(serve, client, postgres_store):
    servers = [serve(postgres_store, ready=False) for _ in range(2)]
    for server in servers:
        server.wait_ready()
    item = client(servers[0]).new_item(5)
    assert client(servers[1]).value(item) == 5
