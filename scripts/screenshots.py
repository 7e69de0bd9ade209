#!/usr/bin/env python3
"""Takes the pictures of docs/CONSOLE.md: starts a server, gives it something to do, and opens pages in Chromium.

    scripts/screenshots.py build/quipu docs/images          what the documents show
    scripts/screenshots.py build/quipu FOLDER --all         every page in the light, in the dark and on a phone
"""
import contextlib
import itertools
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("tests/e2e", "tests")]

from harness.browser import Browser  # noqa: E402

TWIRP = "/twirp/pyggpot"
PAGES = ["Overview", "Counts", "Limits", "Entitlements", "Events", "Pots", "Dialogs", "Verify"]
IN_DOCUMENTS = [
    ("console-overview", "Overview", "light", "wide"), ("console-counts", "Counts", "light", "wide"),
    ("console-events", "Events", "light", "wide"), ("console-dialogs", "Dialogs", "light", "wide"),
    ("console-dark", "Overview", "dark", "wide"), ("console-phone", "Limits", "light", "phone"),
]


class Server:
    def __init__(self, program, folder):
        self.data = folder / "data"
        self.process = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1:0", "--data", str(self.data)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        # the sender prints every message, and would wait for somebody to read it
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def post(self, path, body, **headers):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def stop(self):
        self.process.terminate()
        self.process.wait()


def grant(server, user, unit, purchase):
    body = {"user_id": user, "stock_keeping_unit": unit, "reason": "purchase", "purchase_id": purchase}
    server.post("/v1/entitlements/grants", body, **{"Idempotency-Key": purchase})


def say(server, sender, receiver, text):
    server.post("/dialogs/send", {"receiverId": receiver, "text": text}, **{"X-User-Id": sender})


def put_aside(server):
    """Two notifications whose receiver has gone."""
    payload = json.dumps({"user": "u_877", "unit": "season-2", "status": "ACTIVE"})
    with contextlib.closing(sqlite3.connect(server.data / "notifications.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO notification_dlq (id, kind, event_type, aggregate_key, position, last_error, payload, attempt_count,"
            " created_at) VALUES (?, 'notification', 'EntitlementGranted', ?, ?, ?, ?, 10, unixepoch() * 1000000)",
            [(f"0b9f5cb8-3b27-4a0e-9d5b-2f3c0c1a7a1{n}", f"u_87{n}:season-2", f"at {n}",
              "hooks.example.com answered 410 Gone", payload.encode()) for n in (1, 2)])


def furnish(server):
    """A shop on an ordinary day."""
    for item, value in (("downloads", 182_340), ("likes:post-7", 4_021), ("likes:post-8", 311), ("signups", 9_876),
                        ("stock:lamp", 120), ("views:home", 7_204_113)):
        server.post("/api/v1/internal/counts", {"itemId": item, "initialValue": value})
    for user, limit in ((1001, 5), (1002, 10), (1003, 3), (2001, 9_000)):
        server.post("/api/config", {"userId": user, "rateLimit": limit, "timeWindow": 60})
    for user in (1001, 1001, 1001, 1002, 1003, 1003, 1003):
        server.post("/api/send", {"userId": user, "message": "Your order has left"})
    for unit, purchase in (("film-pass", "p_1"), ("season-2", "p_2"), ("soundtrack", "p_3")):
        grant(server, "u_123", unit, purchase)
    for name, coins in (("holiday", [("GOLD", 12), ("BRONZE", 30)]), ("rainy day", [("SILVER", 45)]), ("party", [])):
        pot = server.post(f"{TWIRP}.pot.Pot/CreatePot", {"pot_name": name, "max_coins": 50})
        if coins:
            kinds = [{"kind": kind, "count": count} for kind, count in coins]
            server.post(f"{TWIRP}.coin.Coin/AddCoins", {"pot_id": pot["pot_id"], "coins": kinds})
    say(server, "ana", "ben", "Did you see the new numbers?")
    say(server, "ben", "ana", "Not yet, are they good?")
    say(server, "ana", "ben", "They are exact.")
    put_aside(server)


def keep_busy(server, over):
    """Some clients at once, so that requests combine, and something of every service."""
    def repeat(work):
        for number in itertools.count():
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                work(number)
            if over.is_set():
                return

    def increase(item):
        return lambda _: server.post(f"/api/v1/counts/{item}/increase", {"amount": 1})

    def shop(number):
        over.wait(0.05)
        grant(server, f"u_{number % 400}", "season-2", f"s_{number}")
        server.post("/api/send", {"userId": 2001, "message": "Your order has left"})
        say(server, f"seller-{number % 20}", f"buyer-{number % 300}", "It has left.")

    items = ("views:home", "views:home", "likes:post-7", "likes:post-8", "downloads", "signups") * 2
    for work in [*map(increase, items), shop]:
        threading.Thread(target=repeat, args=(work,), daemon=True).start()


def pictures_for(folder, everything):
    wanted = [(f"{title.lower()}-{scheme}-{size}", title, scheme, size) for scheme, size in (
        ("light", "wide"), ("dark", "wide"), ("light", "phone")) for title in PAGES] if everything else IN_DOCUMENTS
    return [{"file": f"{folder.resolve()}/{name}.png", "title": title, "scheme": scheme, "size": size}
            for name, title, scheme, size in wanted]


def main(program, pictures, everything=None):
    pictures = pathlib.Path(pictures)
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        browser = Browser(folder)
        server = Server(program, folder)
        over = threading.Event()
        try:
            furnish(server)
            keep_busy(server, over)
            browser.run("console_pictures.js", limit_s=900, story="take", server=server.url,
                        pictures=pictures_for(pictures, everything == "--all"))
        finally:
            over.set()
            server.stop()


main(*sys.argv[1:])
