"""--trace-store: every call to a store is a line of the log, on either engine, and nothing else changes."""

import json

from harness.counts import action, record, COLLECTION, new_id, new_key
from harness.entitlements import GRANTS, change
from harness.waiting import wait_until

TRACED = ["--trace-store", "--log-level", "debug", "--log-format", "json"]
# What a store may answer when nothing is wrong; STORE_UNAVAILABLE is PostgreSQL before it is connected.
RESULTS = {"OK", "RERUN", "LOCK_BUSY", "STORE_UNAVAILABLE"}


def calls(server):
    """The traced calls so far, in order. A line that is still being written does not count."""
    lines = (json.loads(line) for line in server.log_text().splitlines() if line.endswith("}"))
    return [line for line in lines if line["part"] == "store" and "us" in line]


def named(server, message, store=None):
    return [call for call in calls(server)
            if call["message"] == message and store in (None, call["store"])]


def wait_for(server, *messages):
    """What workers do comes by itself, some time after the answer."""
    for message in messages:
        wait_until(lambda wanted=message: any(call.get("rows", "0") != "0" for call in named(server, wanted)),
                   f"{message} is traced with rows")


def ask(server, method, path, body=None, **headers):
    answer = server.ask(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status < 300, answer
    return answer


def test_calls_of_every_service_are_traced(serve, store):
    server = serve(store, "--roles", "all", *TRACED)
    item = new_id()
    ask(server, "POST", COLLECTION, {"itemId": item})
    ask(server, "POST", action(item, "increase"), {"amount": 3}, Idempotency_Key=new_key())
    assert ask(server, "GET", record(item)).json()["currentValue"] == 3
    ask(server, "POST", "/api/config", {"userId": "ann", "rateLimit": 5, "timeWindow": 3600})
    ask(server, "POST", "/api/send", {"userId": "ann", "message": "Hello!"})
    ask(server, "POST", GRANTS, change("ann", "item1", "purchase", "p_1"), Idempotency_Key=new_key())
    ask(server, "POST", GRANTS, change("ann", "item1", "purchase", "p_2"), Idempotency_Key=new_key())
    ask(server, "GET", "/v1/users/ann/entitlements")
    ask(server, "GET", "/v1/users/ann/entitlements/item1")
    ask(server, "POST", "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "Pot 1", "max_coins": 100})
    ask(server, "POST", "/dialogs/send", {"receiverId": "ann", "text": "Hello!"}, X_User_Id="bob")

    wait_for(server, "entitlement_outbox.claims.claim", "entitlement_outbox.claims.end", "outbound.put",
             "outbound.claims.end",
             "notifications.inbox.put", "notifications.put", "notifications.claims.end",
             "dialog_outbox.claims.end", "counters.put", "counters.add")
    for message in ("counts.edit", "counts.find", "limits.put", "limits.lock", "entitlements.put", "entitlements.find_sources",
                    "entitlements.list", "entitlements.look", "entitlement_outbox.put", "pots.create", "messages.put", "dialog_outbox.put",
                    "idempotency.find", "idempotency.put"):
        assert any(call["rows"] == "1" and call["result"] == "OK" for call in named(server, message)), message
    assert {call["store"] for call in named(server, "store.start")} == {
        f"{name}-store" for name in ("counts", "gateway", "entitlements", "notifications", "pots", "dialogs", "counters")}
    for call in calls(server):
        assert int(call["us"]) >= 0 and int(call.get("rows", 0)) >= 0
        assert call.get("result", "OK") in RESULTS, call


def test_the_order_of_a_transaction_can_be_read(serve, store):
    server = serve(store, *TRACED)
    item = new_id()
    ask(server, "POST", COLLECTION, {"itemId": item}, Idempotency_Key=new_key())
    wanted = ["session.begin", "idempotency.find", "counts.lock", "counts.edit", "idempotency.put", "session.commit"]
    messages = [call["message"] for call in calls(server) if call["message"] in wanted]
    assert messages == wanted


def test_the_engine_is_the_wrapped_one(serve, store):
    server = serve(store, *TRACED)
    assert [(entry["name"], entry["engine"]) for entry in server.ask("GET", "/readyz").json()["dependencies"]] == [
        ("counts-store", store.name)]


def test_nothing_is_traced_unless_it_is_asked_for(serve, store):
    for arguments in (["--log-level", "debug"], ["--trace-store"]):
        server = serve(store, *arguments, "--log-format", "json")
        ask(server, "POST", COLLECTION, {"itemId": new_id()})
        assert not calls(server)
        server.stop()


def test_values_are_not_traced(serve, store):
    server = serve(store, *TRACED)
    ask(server, "POST", COLLECTION, {"itemId": "s3cr3t"}, Idempotency_Key="k3y-s3cr3t")
    assert named(server, "counts.edit")
    assert not any("s3cr3t" in json.dumps(call) for call in calls(server))
