"""Pots: a coin too many or too few is found."""

import pytest

SUMS = "what a pot holds is what was added and not removed"
ANSWERS = "nothing else comes out than was asked for"
LISTS = "a list shows what was in the pot at that time"
NUMBERS = {"BRONZE": 1, "SILVER": 10, "GOLD": 100}


def coins(**counts):
    return {"coins": [{"kind": kind, "count": count} for kind, count in counts.items()]}


@pytest.fixture
def pot(story):
    story.tell("pots", "create", "s1pot0", 100, answer={"pot_id": 1})
    story.row("pots", "pot", id=1, pot_name="s1pot0", max_coins=100, create_time=0)
    return story


def holds(story, **counts):
    for kind, count in counts.items():
        story.row("pots", "coin", pot_id=1, denomination=NUMBERS[kind], coin_count=count)
    return story.judge("pots")


def test_what_was_added_and_not_removed_is_there(pot):
    pot.tell("pots", "add", 1, "5,0,2", answer=coins(BRONZE=5, GOLD=2))
    pot.tell("pots", "draw", 1, 3, answer=coins(BRONZE=2, GOLD=1))
    pot.tell("pots", "remove", 1, "1,0,0", answer=coins(BRONZE=1))
    pot.tell("pots", "list", 1, answer=coins(BRONZE=2, GOLD=1))
    assert holds(pot, BRONZE=2, GOLD=1) == {}


@pytest.mark.parametrize("count", [4, 6])
def test_coins_that_appear_or_disappear_are_found(pot, count):
    pot.tell("pots", "add", 1, "5,0,0", answer=coins(BRONZE=5))
    assert SUMS in holds(pot, BRONZE=count)


def test_coins_of_a_refused_addition_are_found(pot):
    pot.tell("pots", "add", 1, "5,0,0", status=503, answer={"code": "unavailable"})
    assert SUMS in holds(pot, BRONZE=5)


def test_more_coins_than_fit_are_found(pot):
    pot.tell("pots", "add", 1, "101,0,0", answer=coins(BRONZE=101))
    assert SUMS in holds(pot, BRONZE=101)


def test_a_draw_of_more_than_was_asked_is_found(pot):
    pot.tell("pots", "add", 1, "9,0,0", answer=coins(BRONZE=9))
    pot.tell("pots", "draw", 1, 3, answer=coins(BRONZE=4))
    assert ANSWERS in holds(pot, BRONZE=5)


def test_a_list_of_coins_that_were_not_there_yet_is_found(pot):
    pot.tell("pots", "list", 1, answer=coins(BRONZE=5), at=10, until=20)
    pot.tell("pots", "add", 1, "5,0,0", answer=coins(BRONZE=5), at=30, until=40)
    assert LISTS in holds(pot, BRONZE=5)


def test_a_stale_list_is_found(pot):
    pot.tell("pots", "add", 1, "5,0,0", answer=coins(BRONZE=5), at=10, until=20)
    pot.tell("pots", "list", 1, answer=coins(), at=30, until=40)
    assert LISTS in holds(pot, BRONZE=5)


def test_a_draw_that_is_drawn_anew_is_found(pot):
    pot.tell("pots", "add", 1, "9,9,0", answer=coins(BRONZE=9, SILVER=9))
    number = pot.tell("pots", "draw", 1, 3, answer=coins(BRONZE=3))
    pot.repeat("pots", number, coins(SILVER=3))
    assert "the same key gets the same answer" in holds(pot, BRONZE=6, SILVER=9)
