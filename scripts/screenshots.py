#!/usr/bin/env python3
"""Makes the pictures of docs/CONSOLE.md: starts a server, gives it something to show, and opens every page in Chromium.

    scripts/screenshots.py build/quipu docs/images
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.request

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("tests/e2e", "tests")]

from harness.browser import Browser  # noqa: E402

TWIRP = "/twirp/pyggpot"


class Server:
    def __init__(self, program, folder):
        self.process = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "data")],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]

    def post(self, path, body, **headers):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def stop(self):
        self.process.terminate()
        self.process.wait()


def furnish(server):
    """A shop on an ordinary day."""
    for item, value in (("downloads", 182_340), ("likes:post-7", 4_021), ("likes:post-8", 311), ("signups", 9_876),
                        ("stock:lamp", 120), ("views:home", 7_204_113)):
        server.post("/api/v1/internal/counts", {"itemId": item, "initialValue": value})
    for user, limit in ((1001, 5), (1002, 10), (1003, 3)):
        server.post("/api/config", {"userId": user, "rateLimit": limit, "timeWindow": 60})
    for user in (1001, 1001, 1001, 1002, 1003, 1003, 1003):
        server.post("/api/send", {"userId": user, "message": "Your order has left"})
    for unit, purchase in (("film-pass", "p_1"), ("season-2", "p_2"), ("soundtrack", "p_3")):
        grant = {"user_id": "u_123", "stock_keeping_unit": unit, "reason": "purchase", "purchase_id": purchase}
        server.post("/v1/entitlements/grants", grant, **{"Idempotency-Key": purchase})
    for name, coins in (("holiday", [("GOLD", 12), ("BRONZE", 30)]), ("rainy day", [("SILVER", 45)]), ("party", [])):
        pot = server.post(f"{TWIRP}.pot.Pot/CreatePot", {"pot_name": name, "max_coins": 50})
        if coins:
            kinds = [{"kind": kind, "count": count} for kind, count in coins]
            server.post(f"{TWIRP}.coin.Coin/AddCoins", {"pot_id": pot["pot_id"], "coins": kinds})
    for text, sender, receiver in (("Did you see the new numbers?", "ana", "ben"), ("Not yet, are they good?", "ben", "ana"),
                                   ("They are exact.", "ana", "ben")):
        server.post("/dialogs/send", {"receiverId": receiver, "text": text}, **{"X-User-Id": sender})


def keep_busy(server, over):
    """Some clients at once, so that requests combine."""
    def work(item):
        while not over.is_set():
            server.post(f"/api/v1/counts/{item}/increase", {"amount": 1})

    for item in ("views:home", "views:home", "likes:post-7", "likes:post-8", "downloads", "signups") * 2:
        threading.Thread(target=work, args=(item,), daemon=True).start()


def main(program, pictures):
    folder = pathlib.Path(tempfile.mkdtemp())
    pathlib.Path(pictures).mkdir(parents=True, exist_ok=True)
    browser = Browser(folder)
    server = Server(program, folder)
    over = threading.Event()
    try:
        furnish(server)
        keep_busy(server, over)
        browser.run("console.js", story="screenshots", server=server.url, folder=str(pathlib.Path(pictures).resolve()))
    finally:
        over.set()
        server.stop()


main(*sys.argv[1:])
