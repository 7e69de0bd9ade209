"""What a server of the previous version was used for before the upgrade, and what must be true of it afterwards.

`fill` uses only what version 0.1.0 had. tests/e2e/previous has what it left behind there, as SQL.
"""

import contextlib
import pathlib
import sqlite3
import subprocess
import time

from .waiting import HANG_S, wait_until

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "previous"
VERSION = "0.1.0"
COMMIT = "a67fcc4dcfaa753e698ba340ed6da8ab6c7faf21"  # the last one with its schema
KEYED = ("/api/v1/counts/visits/increase", {"amount": 3}, {"Idempotency-Key": "order-1"})
GRANT = ("/v1/entitlements/grants",
         {"user_id": "u_1", "stock_keeping_unit": "item1", "reason": "purchase", "purchase_id": "p_1"},
         {"Idempotency-Key": "p_1"})
DRAW = ("/twirp/pyggpot.coin.Coin/RemoveCoins", {"pot_id": 1, "count": 2}, {"Idempotency-Key": "first-draw"})
COINS = [{"kind": "GOLD", "count": 5}]


def post(server, path, body, headers=None):
    answer = server.ask("POST", path, body, headers)
    assert answer.status in (200, 201), answer
    return answer.json()


def get(server, path, headers=None):
    answer = server.ask("GET", path, headers=headers)
    assert answer.status == 200, answer
    return answer.json()


def unread(server, user):
    return get(server, f"/counters/user/{user}/UnreadMessages")["count"]


def inbox(server):
    entries = get(server, "/debug/notification/inbox/u_1")["notifications"]
    return [entry["event_type"] for entry in entries if entry["status"] == "SENT"]


def fill(server):
    post(server, "/api/v1/internal/counts", {"itemId": "visits", "initialValue": 4})
    assert post(server, *KEYED)["value"] == 7
    post(server, "/api/config", {"userId": 7, "rateLimit": 5, "timeWindow": 525600})  # a year
    assert post(server, "/api/send", {"userId": 7, "message": "before"})["remaining"] == 4
    post(server, *GRANT)
    post(server, "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "savings", "max_coins": 100})
    post(server, "/twirp/pyggpot.coin.Coin/AddCoins", {"pot_id": 1, "coins": COINS})
    post(server, *DRAW)
    for text in ("one", "two"):
        post(server, "/dialogs/send", {"receiverId": "dave", "text": text}, {"X-User-Id": "carol"})
    wait_until(lambda: unread(server, "dave") == 2, "the messages are counted")
    wait_until(lambda: inbox(server) == ["EntitlementGranted"], "the user is notified")


def check_answers_to_retries(server):
    """A retry of a change that was made before the upgrade gets its answer and changes nothing."""
    assert post(server, *KEYED)["value"] == 7
    assert post(server, *GRANT)["version"] == 1
    assert sum(entry["count"] for entry in post(server, *DRAW)["coins"]) == 2


def check_values(server):
    assert get(server, "/api/v1/internal/counts/visits")["currentValue"] == 7
    assert (get(server, "/api/config/7")["rateLimit"], get(server, "/api/config/7")["currentCount"]) == (5, 1)
    (held,) = get(server, "/v1/users/u_1/entitlements")["entitlements"]
    assert (held["stock_keeping_unit"], held["status"], held["version"]) == ("item1", "ACTIVE", 1)
    coins = post(server, "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": 1})["coins"]
    assert coins == [{"kind": "GOLD", "count": 3}]
    messages = get(server, "/dialogs/list?receiverId=carol", {"X-User-Id": "dave"})
    assert sorted(message["text"] for message in messages) == ["one", "two"]
    assert unread(server, "dave") == 2 and inbox(server) == ["EntitlementGranted"]


def go_on(server):
    """Everything can still be changed."""
    assert post(server, "/api/v1/counts/visits/increase", {})["value"] == 8
    assert post(server, "/api/send", {"userId": 7, "message": "after"})["remaining"] == 3
    body = {"user_id": "u_1", "stock_keeping_unit": "item1", "reason": "refund", "purchase_id": "p_1"}
    assert post(server, "/v1/entitlements/revokes", body, {"Idempotency-Key": "r_1"})["status"] == "REVOKED"
    post(server, "/twirp/pyggpot.coin.Coin/AddCoins", {"pot_id": 1, "coins": COINS})
    post(server, "/dialogs/send", {"receiverId": "dave", "text": "three"}, {"X-User-Id": "carol"})
    wait_until(lambda: unread(server, "dave") == 3, "the third message is counted")
    wait_until(lambda: sorted(inbox(server)) == ["EntitlementGranted", "EntitlementRevoked"], "the user is notified")


# ---- as SQL


def clock_then():
    """The environment in which a test build lives on the day after which nothing has expired: that of the fixtures."""
    made_at = int((FOLDER / VERSION / "made_at").read_text())
    return {"QUIPU_TEST_CLOCK_OFFSET": f"{made_at + 60 - int(time.time())}s"}


def dump_sqlite(data, folder):
    """Each database of a data folder as a script, with what .dump leaves out."""
    for path in sorted(data.glob("*.db")):
        with contextlib.closing(sqlite3.connect(path)) as file:
            lines = list(file.iterdump())
            (version,), (application,) = (file.execute(f"PRAGMA {name}").fetchone()
                                          for name in ("user_version", "application_id"))
        lines += [f"PRAGMA user_version = {version};", f"PRAGMA application_id = {application};"]
        (folder / f"{path.stem}.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


def restore_sqlite(data):
    data.mkdir(parents=True)
    scripts = sorted((FOLDER / VERSION / "sqlite").glob("*.sql"))
    assert len(scripts) > 5
    for script in scripts:
        with contextlib.closing(sqlite3.connect(data / f"{script.stem}.db")) as file, file:
            file.executescript(script.read_text(encoding="utf-8"))


def dump_postgres(database, path):
    done = subprocess.run(["pg_dump", "--no-owner", "--inserts", database.url], capture_output=True, text=True,
                          timeout=HANG_S, check=True)
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith(("--", "\\"))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def restore_postgres(database):
    database.query((FOLDER / VERSION / "postgres.sql").read_text(encoding="utf-8"))
