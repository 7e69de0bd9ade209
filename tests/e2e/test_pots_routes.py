"""Every method of Pyggpot, in both encodings, on both stores: answers, rules and errors."""

import datetime

import pytest

from harness.pots import assert_error, coins, counts_of, new_name

INT32_MAX = 2**31 - 1


@pytest.fixture(params=["json", "protobuf"])
def pots(request, pots_server, pots_client):
    return pots_client(pots_server, request.param)


# ---- pots


def test_a_pot_is_made_and_seen_by_id_and_by_name(pots):
    name = new_name()
    before = datetime.datetime.now(datetime.timezone.utc)
    made = pots.get("CreatePot", {"pot_name": name, "max_coins": 100})
    assert made["pot_id"] > 0
    assert (made["pot_name"], made["max_coins"]) == (name, 100)
    created = datetime.datetime.fromisoformat(made["create_time"].replace("Z", "+00:00"))
    assert abs((created - before).total_seconds()) < 60
    assert pots.get("ViewPot", {"pot_id": made["pot_id"]}) == made
    assert pots.get("ViewPotByName", {"pot_name": name}) == made


def test_a_name_is_unique(pots):
    name = new_name()
    pots.get("CreatePot", {"pot_name": name, "max_coins": 100})
    assert_error(pots.call("CreatePot", {"pot_name": name, "max_coins": 7}), "already_exists", "POT_EXISTS")
    assert pots.get("ViewPotByName", {"pot_name": name})["max_coins"] == 100


@pytest.mark.parametrize("suffix", ["PP-P", "PPP", "PP P", "PP_P", "000", "a1-b2_c3 d4"])
def test_names_that_are_accepted(pots, suffix):
    name = suffix + new_name("Q").replace(" ", "")
    assert pots.get("CreatePot", {"pot_name": name, "max_coins": 6})["pot_name"] == name


@pytest.mark.parametrize("name", [
    "PP", "PP.", "PP.P", "PP-", "", "P", "-PP", "P-PP", " PPP", "PPP ", "PP--P", "PP\nP", "PPP\n", "PPé", "P" * 129,
])
def test_names_that_are_refused(pots, name):
    assert_error(pots.call("CreatePot", {"pot_name": name, "max_coins": 6}), "invalid_argument", argument="pot_name")


@pytest.mark.parametrize("max_coins", [5, 0, -1, -(2**31)])
def test_a_pot_must_hold_more_than_five_coins(pots, max_coins):
    answer = pots.call("CreatePot", {"pot_name": new_name(), "max_coins": max_coins})
    assert_error(answer, "invalid_argument", argument="max_coins")


def test_everything_that_is_wrong_is_told_together(pots):
    error = assert_error(pots.call("CreatePot", {}), "invalid_argument", "BAD_REQUEST", "pot_name")
    assert "pot_name" in error["msg"] and "max_coins" in error["msg"]


def test_pots_that_are_not_there(pots):
    assert_error(pots.call("ViewPot", {"pot_id": INT32_MAX}), "not_found", "POT_NOT_FOUND")
    assert_error(pots.call("ViewPotByName", {"pot_name": "nobody has this"}), "not_found", "POT_NOT_FOUND")
    assert_error(pots.call("ViewPotByName", {"pot_name": "x" * 5000}), "not_found", "POT_NOT_FOUND")
    assert_error(pots.call("ViewPotByName", {"pot_name": ""}), "invalid_argument", argument="pot_name")
    assert_error(pots.call("ListCoins", {"pot_id": INT32_MAX}), "not_found", "POT_NOT_FOUND")
    assert_error(pots.call("AddCoins", {"pot_id": INT32_MAX, "coins": coins(gold=1)}), "not_found", "POT_NOT_FOUND")
    assert_error(pots.call("RemoveCoins", {"pot_id": INT32_MAX, "count": 1}), "not_found", "POT_NOT_FOUND")


@pytest.mark.parametrize("pot_id", [0, -1, -(2**31)])
@pytest.mark.parametrize("method, rest", [
    ("ViewPot", {}), ("ListCoins", {}), ("AddCoins", {"coins": coins(gold=1)}), ("RemoveCoins", {"count": 1}),
])
def test_an_id_is_required_and_above_zero(pots, method, rest, pot_id):
    assert_error(pots.call(method, {"pot_id": pot_id, **rest}), "invalid_argument", argument="pot_id")


def test_pots_are_listed_page_by_page(pots):
    made = [pots.new_pot() for _ in range(7)]
    first = pots.get("ListPots", {"page": 1, "limit": 1})
    total = first["total_pot_count"]
    assert total >= 7
    assert first["request"] == {"page": 1, "limit": 1}
    listed = []
    for page in range(1, total // 3 + 2):
        answer = pots.get("ListPots", {"page": page, "limit": 3})
        assert len(answer["pots"]) <= 3
        listed += [pot["pot_id"] for pot in answer["pots"]]
    assert listed == sorted(set(listed)) and len(listed) == total
    assert set(made) <= set(listed)
    assert pots.get("ViewPot", {"pot_id": made[-1]}) in pots.get("ListPots", {"page": total})["pots"] + (
        pots.get("ListPots", {"page": (total + 99) // 100, "limit": 100})["pots"])


def test_the_default_page_has_25_pots(pots):
    for _ in range(26):
        pots.new_pot()
    for limit in ({}, {"limit": 0}):
        answer = pots.get("ListPots", {"page": 1, **limit})
        assert len(answer["pots"]) == 25
        assert answer["request"] == {"page": 1, "limit": 0}


def test_a_page_behind_the_last_pot_is_empty(pots):
    answer = pots.get("ListPots", {"page": INT32_MAX, "limit": 100})
    assert answer["pots"] == [] and answer["total_pot_count"] >= 0


@pytest.mark.parametrize("fields, argument", [
    ({}, "page"), ({"page": 0}, "page"), ({"page": -1}, "page"), ({"page": 1, "limit": -1}, "limit"),
    ({"page": 1, "limit": 101}, "limit"), ({"page": 1, "limit": INT32_MAX}, "limit"),
])
def test_pages_that_are_refused(pots, fields, argument):
    assert_error(pots.call("ListPots", fields), "invalid_argument", argument=argument)


# ---- coins


def test_coins_are_added_and_listed_in_the_order_of_their_kinds(pots):
    pot_id = pots.new_pot()
    assert pots.get("ListCoins", {"pot_id": pot_id}) == {"coins": []}
    added = pots.get("AddCoins", {"pot_id": pot_id, "coins": coins(gold=3, bronze=5)})
    assert added == {"coins": coins(bronze=5, gold=3)}
    added = pots.get("AddCoins", {"pot_id": pot_id, "coins": coins(silver=2) + coins(gold=1) + coins(silver=4)})
    assert added == {"coins": coins(silver=6, gold=1)}, "a kind that is named again adds up"
    assert pots.get("ListCoins", {"pot_id": pot_id}) == {"coins": coins(bronze=5, silver=6, gold=4)}


def test_more_coins_than_fit_are_refused_as_a_whole(pots):
    pot_id = pots.new_pot(max_coins=10, bronze=4)
    for request in (coins(gold=7), coins(silver=3, gold=4), coins(gold=INT32_MAX), coins(gold=INT32_MAX) * 3):
        answer = pots.call("AddCoins", {"pot_id": pot_id, "coins": request})
        assert_error(answer, "failed_precondition", "POT_FULL")
    assert pots.content(pot_id) == {"BRONZE": 4}
    pots.get("AddCoins", {"pot_id": pot_id, "coins": coins(gold=6)})
    assert_error(pots.call("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)}), "failed_precondition", "POT_FULL")
    assert pots.content(pot_id) == {"BRONZE": 4, "GOLD": 6}


def test_the_largest_pot(pots):
    pot_id = pots.new_pot(max_coins=INT32_MAX, gold=INT32_MAX)
    assert pots.content(pot_id) == {"GOLD": INT32_MAX}
    assert_error(pots.call("AddCoins", {"pot_id": pot_id, "coins": coins(bronze=1)}), "failed_precondition")
    assert counts_of(pots.get("RemoveCoins", {"pot_id": pot_id, "count": INT32_MAX})) == {"GOLD": INT32_MAX}


@pytest.mark.parametrize("entry, argument", [
    ({"count": 1}, "coins[1].kind"),
    ({"kind": "UNKNOWN", "count": 1}, "coins[1].kind"),
    ({"kind": 7, "count": 1}, "coins[1].kind"),
    ({"kind": -1, "count": 1}, "coins[1].kind"),
    ({"kind": "GOLD"}, "coins[1].count"),
    ({"kind": "GOLD", "count": 0}, "coins[1].count"),
    ({"kind": "GOLD", "count": -5}, "coins[1].count"),
])
@pytest.mark.parametrize("method", ["AddCoins", "RemoveCoins"])
def test_coins_that_are_refused(pots, method, entry, argument):
    pot_id = pots.new_pot(gold=5)
    answer = pots.call(method, {"pot_id": pot_id, "coins": [*coins(gold=1), entry]})
    assert_error(answer, "invalid_argument", argument=argument)
    assert pots.content(pot_id) == {"GOLD": 5}


def test_nothing_cannot_be_added(pots):
    pot_id = pots.new_pot()
    assert_error(pots.call("AddCoins", {"pot_id": pot_id}), "invalid_argument", argument="coins")


# The seed's rules of validation, as a table: what `coins` and `count` are, and whether that is a request.
@pytest.mark.parametrize("request_coins, count, valid", [
    (coins(gold=1), 0, True),  # coins not empty: count can be zero
    (coins(gold=1), None, True),
    (coins(gold=1), 5, True),  # ... and is not looked at
    (coins(gold=1), -5, True),
    ([], 1, True),  # coins empty: count must be greater than 0
    (None, 1, True),
    ([], 0, False),
    ([], -1, False),
    (None, None, False),
    (None, -(2**31), False),
])
def test_a_removal_names_coins_or_a_count(pots, request_coins, count, valid):
    pot_id = pots.new_pot(gold=10)
    fields = {"pot_id": pot_id}
    fields.update({} if request_coins is None else {"coins": request_coins})
    fields.update({} if count is None else {"count": count})
    answer = pots.call("RemoveCoins", fields)
    if valid:
        assert answer.status == 200, answer
        assert pots.content(pot_id) == {"GOLD": 9}, "one coin has come out"
    else:
        assert_error(answer, "invalid_argument", argument="count")
        assert pots.content(pot_id) == {"GOLD": 10}


def test_by_kind_no_more_comes_out_than_is_there(pots):
    pot_id = pots.new_pot(bronze=5, silver=2)
    asked = coins(bronze=3) + coins(silver=9) + coins(gold=4)
    assert pots.get("RemoveCoins", {"pot_id": pot_id, "coins": asked}) == {"coins": coins(bronze=3, silver=2)}
    assert pots.content(pot_id) == {"BRONZE": 2}
    assert pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(silver=1)}) == {"coins": []}
    assert pots.get("RemoveCoins", {"pot_id": pot_id, "coins": coins(bronze=INT32_MAX) * 2}) == {"coins": coins(bronze=2)}


def test_at_random_as_many_come_out_as_asked_at_most_all(pots):
    pot_id = pots.new_pot(bronze=5, silver=6, gold=7)
    before = pots.content(pot_id)
    removed = counts_of(pots.get("RemoveCoins", {"pot_id": pot_id, "count": 11}))
    after = pots.content(pot_id)
    assert sum(removed.values()) == 11
    assert {kind: removed.get(kind, 0) + after.get(kind, 0) for kind in before} == before
    assert sum(counts_of(pots.get("RemoveCoins", {"pot_id": pot_id, "count": 100})).values()) == 7
    assert pots.get("RemoveCoins", {"pot_id": pot_id, "count": 1}) == {"coins": []}


def test_a_draw_of_a_billion_coins_is_instant(pots):
    pot_id = pots.new_pot(max_coins=2_000_000_000, bronze=800_000_000, silver=700_000_000, gold=500_000_000)
    removed = counts_of(pots.get("RemoveCoins", {"pot_id": pot_id, "count": 1_000_000_000}))
    assert sum(removed.values()) == 1_000_000_000
    # Ten standard deviations from what every coin equally likely gives.
    assert abs(removed["BRONZE"] - 400_000_000) < 110_000 and abs(removed["GOLD"] - 250_000_000) < 100_000
