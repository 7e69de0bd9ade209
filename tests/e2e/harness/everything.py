"""A request or two to every service, for tests of what happens to all data of a server at once."""

from .verify import walk
from .waiting import wait_until


def post(server, target, body, key=None, user="alice"):
    headers = {"X-User-Id": user, **({"Idempotency-Key": key} if key else {})}
    answer = server.ask("POST", target, body, headers)
    assert answer.status in (200, 201), answer
    return answer


def use_every_service(server):
    """Requests whose repetition would change something, by their keys: [(target, body, key)]."""
    post(server, "/api/v1/internal/counts", {"itemId": "visits", "initialValue": 40, "maxValue": 1000})
    post(server, "/api/config", {"userId": "1001", "rateLimit": 5, "timeWindow": 60})
    post(server, "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "savings", "max_coins": 100})
    post(server, "/twirp/pyggpot.coin.Coin/AddCoins", {"pot_id": 1, "coins": [{"kind": "GOLD", "count": 50}]})
    keyed = [
        ("/api/v1/counts/visits/increase", {"amount": 2}, "k-count"),
        ("/api/send", {"userId": "1001", "message": "Grüße\tan alle"}, "k-send"),
        ("/v1/entitlements/grants",
         {"user_id": "u", "stock_keeping_unit": "item", "reason": "purchase", "purchase_id": "p_1"}, "k-grant"),
        ("/twirp/pyggpot.coin.Coin/RemoveCoins", {"pot_id": 1, "count": 7}, "k-draw"),
        ("/dialogs/send", {"receiverId": "bob", "text": "Hello \"Bob\" \\ ünïcode"}, "k-message"),
    ]
    for request in keyed:
        post(server, *request)
    wait_until(lambda: server.metric("quipu_outbox_pending") == 0, "everything is published")
    wait_until(lambda: walk(server, "unread", 1000)[0] == [], "everything is counted")
    wait_until(lambda: inbox(server)[:1] == ["SENT"], "the notification is sent")
    wait_until(lambda: "SMS SENT" in server.output.read_text(), "the message is sent")
    return keyed


def inbox(server):
    return [one["status"] for one in server.ask("GET", "/debug/notification/inbox/u").json()["notifications"]]
