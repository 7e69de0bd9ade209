"""The console for everybody: by keyboard, in every zone, with a small key, with names that are markup; and every button."""

import contextlib
import datetime
import json
import sqlite3
import zoneinfo

import pytest

from harness.browser import Browser, player
from harness.console import dead_letter, grant, new_count, new_pot, send, set_limit
from harness.keys import KeyFile
from harness.unread import new_user
from harness.waiting import wait_until

pytestmark = pytest.mark.full  # Chromium takes seconds for each story
PLANTED = "<img src=x onerror=\"window.planted = true\">"
POTS_OF_A_PAGE = 25

# Every button that a page offers, apart from the heads of tables and the names in their rows. A story presses each of them.
BUTTONS = {
    "Overview": [],
    "Counts": ["Create", "Decrease", "Delete", "Increase", "Reset to 0", "Search", "Set"],
    "Limits": ["Ask", "Change", "Delete", "Set limit"],
    "Entitlements": ["Grant", "Revoke", "Show"],
    "Events": ["Discard", "Replay", "Replay all"],
    "Pots": ["Add", "Create", "Draw at random"],
    "Dialogs": ["Mark all read", "Send", "Use these names"],
    "Verify": [f"Check {service}" for service in ("counts", "dialogs", "entitlements", "limits", "notifications", "pots", "unread")],
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return Browser(tmp_path_factory.mktemp("console"))


@pytest.fixture
def tell(browser):
    return player(browser, "console_care.js")


@pytest.fixture
def server(serve, sqlite_store):
    return serve(sqlite_store, "--roles", "all")


@pytest.fixture
def keys(binary, tmp_path):
    return KeyFile(binary, tmp_path / "api-keys")


# ---- counts


def test_the_rows_on_the_screen_are_live_and_cost_one_request(tell, server):
    for number in range(90):
        new_count(server, f"c{number:03}")
    seen = tell(server, "rows", changed="c001", deleted="c002")
    assert seen["loaded"] == 90
    assert seen["asked"] == [f"c{number:03}" for number in range(len(seen["asked"]))], "the first rows, in one request"
    assert 2 < len(seen["asked"]) < 60, "what does not fit on the screen is not asked for"
    assert seen["hidden"] == 0, "nobody sees the page, so nothing is asked"


def test_a_change_whose_answer_was_lost_is_sent_again_with_the_same_key(tell, server):
    new_count(server, "once")
    seen = tell(server, "again", item="once", mayFail=["ERR_FAILED"])
    first, second = seen["keys"]
    assert first == second and f"Idempotency-Key: {first}" in seen["line"]
    assert server.ask("GET", "/api/v1/internal/counts/once").json()["currentValue"] == 1


# ---- readers


def test_everything_can_be_done_without_a_mouse(tell, server):
    seen = tell(server, "keyboard", item="typed")
    assert seen == {"first": "Skip to the page", "opened": "main", "after": "New count", "messages": 0}


def test_times_are_the_readers_and_utc_on_hover(tell, server):
    new_count(server, "now")
    seen = tell(server, "zone", timezoneId="Asia/Kolkata")
    utc = datetime.datetime.fromisoformat(seen["utc"].replace("Z", "+00:00"))
    there = utc.astimezone(zoneinfo.ZoneInfo("Asia/Kolkata"))
    assert seen["shown"] == f"{there.day} {there:%b %Y, %H:%M:%S}"
    assert seen["hover"] == f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03}Z (UTC)"


# ---- keys


def test_a_small_key_leads_to_what_it_opens_and_the_page_says_what_is_missing(tell, serve, sqlite_store, keys):
    keys.new("ops", "admin")
    clerk = keys.new("clerk", "internal:counts")
    server = serve(sqlite_store, "--roles", "all", "--api-keys", keys.path)
    seen = tell(server, "key", key=clerk.shown)
    assert "This server asks for an API key." in seen["without"]
    assert (seen["title"], seen["offered"]) == ("Counts", ["Counts"])
    assert seen["missing"].startswith("Not shown: Overview, Limits, Entitlements, Events, Pots, Dialogs, Verify. The key may not")
    assert seen["connection"] == "no live figures"
    assert clerk.shown not in seen["stored"]
    assert seen["violations"] == []


def test_what_was_done_is_shown_with_who_and_when(tell, serve, sqlite_store, keys):
    ops = keys.new("night-shift", "admin")
    server = serve(sqlite_store, "--roles", "all", "--api-keys", keys.path)
    dead_letter(sqlite_store, "letter-1", b"{}")
    seen = tell(server, "operator", key=ops.shown, letter="letter-1", why="the hook is gone")
    _, who, what, target, detail = seen["done"]
    assert (who, what, target) == ("night-shift", "discard", "notification_dlq/letter-1")
    assert "the hook is gone" in detail
    at = datetime.datetime.fromisoformat(seen["at"].replace("Z", "+00:00"))
    assert abs(at - datetime.datetime.now(datetime.timezone.utc)) < datetime.timedelta(minutes=5)
    assert '-H "Authorization: Bearer $QUIPU_KEY"' in seen["line"]
    assert ops.shown not in seen["line"]


# ---- markup


def plant_letter(store):
    envelope = {"messageType": [PLANTED], "message": {PLANTED: PLANTED}}
    dead_letter(store, f"{PLANTED}letter", json.dumps(envelope).encode(), error=PLANTED, kind="poison", about=PLANTED)


def write(store, service, *statement):
    """Changes rows of a service behind the program's back."""
    with contextlib.closing(sqlite3.connect(store.data / f"{service}.db")) as connection, connection:
        connection.execute(*statement)


def test_markup_in_names_and_messages_stays_text(tell, server, sqlite_store):
    holder, other = f"{PLANTED}a", f"{PLANTED}b"
    new_count(server, PLANTED)
    new_count(server, f"{PLANTED}z")
    set_limit(server, holder)
    grant(server, holder, PLANTED, reason=PLANTED)
    new_pot(server, "holiday")
    write(sqlite_store, "pots", "UPDATE pot SET pot_name = ?", (PLANTED,))  # the server refuses such a name
    send(server, holder, other, PLANTED)
    plant_letter(sqlite_store)
    write(sqlite_store, "counts", "UPDATE count_values SET min_value = 1, max_value = 5 WHERE item_id = ?", (f"{PLANTED}z",))
    assert tell(server, "planted", markup=PLANTED, holder=holder, user=holder, other=other, letter=f"{PLANTED}letter",
                mayFail=["404"]) == []


# ---- buttons


def test_every_button_is_known_and_every_open_page_can_be_read_by_everybody(tell, server, sqlite_store):
    new_count(server, "visits")
    set_limit(server, 1001)
    grant(server, "u_123")
    new_pot(server, "holiday")
    letter = "0b9f5cb8-3b27-4a0e-9d5b-2f3c0c1a7a10"
    dead_letter(sqlite_store, letter, b'{"unit": "film"}', "hooks.example.com answered 410 Gone", about="u_123:season-2")
    seen = tell(server, "buttons", user="u_123", letter=letter, known=BUTTONS)
    assert seen["seen"] == BUTTONS
    assert seen["found"] == []


def test_a_limit_is_asked_about_and_changed(tell, server):
    set_limit(server, 1001)
    assert server.ask("POST", "/api/send", {"userId": 1001, "message": "hello"}).status == 200
    seen = tell(server, "limit", user="1001", nobody="4711", mayFail=["404"])
    assert seen["before"].startswith("yes, 4 left until")
    assert seen["filled"] == ["1001", "5"]
    assert seen["after"].startswith("yes, 9 left until")
    assert "4711" in seen["nobody"]


def test_pots_are_paged_through(tell, server):
    names = [f"pot {number:02}" for number in range(POTS_OF_A_PAGE + 3)]
    for name in names:
        new_pot(server, name)
    seen = tell(server, "potPages")
    assert (len(seen["first"]), len(seen["second"])) == (POTS_OF_A_PAGE, 3)
    assert sorted(seen["first"] + seen["second"]) == names
    assert seen["third"] == seen["first"]


def test_a_counter_that_differs_is_found_and_repaired(tell, serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "all")
    user = new_user()
    send(server, "alice", user)
    counter = f"/counters/user/{user}/UnreadMessages"
    wait_until(lambda: server.ask("GET", counter).json()["count"] == 1, "it is counted")
    server.stop()
    write(sqlite_store, "counters", "DELETE FROM counter_messages")
    write(sqlite_store, "counters", "UPDATE counters SET count = 0")
    server = serve(sqlite_store, "--roles", "all")
    seen = tell(server, "repair", user=user)
    assert seen["found"] == []
    assert f"/operator/verify/unread/{user}/repair" in seen["line"]
    assert server.ask("GET", counter).json()["count"] == 1
