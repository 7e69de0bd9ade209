"""Starting pots: its role, its options, its tables as the seed has them."""

import pytest

from harness.pots import coins, tables_of
from harness.quipu import run
from harness.routes import list_routes, names

TWIRP = {
    "POST /twirp/pyggpot.pot.Pot/CreatePot", "POST /twirp/pyggpot.pot.Pot/ViewPot",
    "POST /twirp/pyggpot.pot.Pot/ViewPotByName", "POST /twirp/pyggpot.pot.Pot/ListPots",
    "POST /twirp/pyggpot.coin.Coin/AddCoins", "POST /twirp/pyggpot.coin.Coin/RemoveCoins",
    "POST /twirp/pyggpot.coin.Coin/ListCoins",
}


def test_the_role_pots_serves_pots_and_nothing_else(serve, store, binary, tmp_path):
    routes = names(list_routes(binary, "--roles", "pots", cwd=tmp_path))
    assert {route for route in routes if "/twirp/" in route} == TWIRP
    assert not [route for route in routes if "/api/" in route]
    server = serve(store, "--roles", "pots")
    ready = server.ask("GET", "/readyz").json()
    assert [dependency["name"] for dependency in ready["dependencies"]] == ["pots-store"]
    assert set(server.ask("GET", "/openapi.json").json()["paths"]) >= {route.split()[1] for route in TWIRP}


def test_pots_can_have_a_store_of_their_own(serve, pots_client, database, sqlite_store):
    server = serve(sqlite_store, "--roles", "counts,pots", "--pots-store", database.url)
    pot_id = pots_client(server).new_pot(gold=3)
    assert database.query("SELECT coin_count FROM coin WHERE pot_id = %s", (pot_id,)) == [(3,)]
    assert database.query("SELECT to_regclass('count_values')") == [(None,)]


@pytest.mark.parametrize("option, value", [
    ("--pots-store", "mysql://x"), ("--pots-lock-wait", "0"), ("--pots-lock-wait", "soon"), ("--pots-lock-retries", "-1"),
    ("--pots-lock-retries", "many"), ("--pots-lock-ttl", "0"),
])
def test_options_that_are_refused(binary, tmp_path, option, value):
    done = run(binary, "serve", "--roles", "pots", option, value, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("quipu: ")


def test_the_options_are_shown_with_their_defaults(binary, tmp_path):
    shown = run(binary, "serve", "--print-config", cwd=tmp_path).stdout
    for line in ("pots-lock-wait = 20ms", "pots-lock-retries = 50", "pots-lock-ttl = 10s"):
        assert line in shown


def test_the_tables_are_the_seeds(serve, store):
    serve(store, "--roles", "pots").stop()
    tables = tables_of(store)
    if store.name == "postgres":
        columns = "SELECT column_name FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position"
        index = "SELECT indexdef FROM pg_indexes WHERE indexname = 'pot_lock'"
        kind = tables.query("SELECT data_type FROM information_schema.columns WHERE table_name = 'pot' AND column_name = 'lock'")
        assert kind == [("uuid",)]
    else:
        columns = "SELECT name FROM pragma_table_info(?)"
        index = "SELECT sql FROM sqlite_master WHERE name = 'pot_lock'"
    pot = [row[0] for row in tables.query(columns, ("pot",))]
    assert pot == ["id", "pot_name", "max_coins", "create_time", "lock", "lock_expire_time"]
    assert {row[0] for row in tables.query(columns, ("coin",))} == {"id", "denomination", "coin_count", "pot_id"}
    assert "(id, lock)" in tables.query(index)[0][0]


def test_a_restart_keeps_everything(serve, pots_client, store):
    server = serve(store, "--roles", "pots")
    pots = pots_client(server)
    pot_ids = [pots.new_pot(bronze=number, gold=1) for number in range(1, 6)]
    before = [pots.get("ViewPot", {"pot_id": pot_id}) for pot_id in pot_ids]
    server.stop()
    pots = pots_client(serve(store, "--roles", "pots"))
    assert [pots.get("ViewPot", {"pot_id": pot_id}) for pot_id in pot_ids] == before
    assert [pots.content(pot_id) for pot_id in pot_ids] == [{"BRONZE": number, "GOLD": 1} for number in range(1, 6)]
    assert pots.new_pot() > max(pot_ids)
    assert pots.get("AddCoins", {"pot_id": pot_ids[0], "coins": coins(silver=1)}) == {"coins": coins(silver=1)}
