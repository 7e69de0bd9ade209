"""Counts: what no order explains is found, and what one explains is not."""

import random

import pytest

LINEAR = "every acknowledged value has its place in one order"
SUMS = "the table has what was acknowledged, no more and no less"
SEEN = "every value that was read was the value at that time"
TRANSFERS = "transfers leave the sum as it was"


@pytest.fixture
def item(story):
    """One item; `item.add(5, 105)` is an increase by 5 that was answered 105."""
    return Item(story)


class Item:
    def __init__(self, story, name="s1m0", initial=100, low="-", high="-"):
        self.story, self.name = story, name
        story.tell("counts", "create", name, initial, low, high, status=201)

    def add(self, amount, value, **more):
        verb = "increase" if amount > 0 else "decrease"
        return self.story.tell("counts", verb, self.name, abs(amount), answer={"itemId": self.name, "value": value}, **more)

    def reset(self, **more):
        return self.story.tell("counts", "reset", self.name, answer={"itemId": self.name, "value": 0}, **more)

    def get(self, value, **more):
        return self.story.tell("counts", "get", self.name, answer={"itemId": self.name, "currentValue": value}, key=False,
                               **more)

    def ends(self, value):
        self.story.row("counts", "count_values", item_id=self.name, current_value=value, last_updated_at=0)
        return self.story.judge("counts")


def test_a_history_that_one_order_explains_is_fine(item):
    item.add(7, 112, at=20, until=90)
    item.add(5, 105, at=21, until=80)
    item.add(-40, 72, at=100, until=110)
    item.get(112, at=95, until=99)
    assert item.ends(72) == {}


def test_an_update_that_was_lost_is_found(item):
    item.add(5, 105)
    item.add(7, 107)
    assert LINEAR in item.ends(107)


def test_a_value_that_was_answered_twice_is_found(item):
    item.add(5, 105)
    item.add(5, 105)
    assert LINEAR in item.ends(105)


def test_a_value_that_nothing_leads_to_is_found(item):
    item.add(5, 105)
    item.add(7, 113)
    assert LINEAR in item.ends(113)


def test_an_acknowledged_change_that_is_gone_from_the_table_is_found(item):
    item.add(5, 105)
    item.add(7, 112)
    assert SUMS in item.ends(105)


def test_a_change_that_was_refused_and_happened_is_found(item):
    item.add(5, 105)
    item.story.tell("counts", "increase", item.name, 7, status=503, answer={"code": "STORE_UNAVAILABLE"})
    assert SUMS in item.ends(112)


def test_a_change_that_happened_twice_is_found(item):
    item.add(5, 105, doubtful=True)
    assert SUMS in item.ends(110)


def test_an_order_that_real_time_forbids_is_found(item):
    item.add(5, 112, at=20, until=30)
    item.add(7, 107, at=40, until=50)
    assert LINEAR in item.ends(112)


def test_an_unknown_change_may_or_may_not_have_happened(item):
    item.add(5, 105)
    item.story.tell("counts", "increase", item.name, 1000, status=None)
    item.add(7, 1112)
    item.story.tell("counts", "increase", item.name, 50, status=None)
    assert item.ends(1112) == {}


def test_an_item_that_is_not_in_the_table_is_found(item):
    item.story.database("counts")
    assert SUMS in item.story.judge("counts")


def test_a_stale_read_is_found(item):
    item.add(5, 105, at=20, until=30)
    item.get(100, at=40, until=50)
    assert SEEN in item.ends(105)


def test_a_value_that_never_was_is_found_when_it_is_read(item):
    item.add(5, 105)
    item.get(103)
    assert SEEN in item.ends(105)


def test_a_refusal_without_reason_is_found(story):
    item = Item(story, "s1b0", low=0, high=200)
    problem = {"code": "COUNT_OUT_OF_BOUNDS", "value": 100}
    story.tell("counts", "increase", item.name, 50, status=409, answer=problem)
    assert SEEN in item.ends(100)


def test_a_value_beyond_the_bounds_is_found(story):
    item = Item(story, "s1b0", low=0, high=200)
    item.add(150, 250)
    item.add(-150, 100)
    assert LINEAR in item.ends(100)


def test_a_refusal_with_reason_is_fine(story):
    item = Item(story, "s1b0", low=0, high=200)
    problem = {"code": "COUNT_OUT_OF_BOUNDS", "value": 100}
    story.tell("counts", "increase", item.name, 101, status=409, answer=problem)
    assert item.ends(100) == {}


@pytest.fixture
def reset_item(story):
    return Item(story, "s1r0", initial=0)


def test_resets_begin_a_history_anew(reset_item):
    reset_item.add(5, 5)
    reset_item.add(7, 12)
    reset_item.reset()
    reset_item.add(9, 9)
    assert reset_item.ends(9) == {}


def test_a_reset_that_did_nothing_is_found(reset_item):
    reset_item.add(5, 5, at=10, until=20)
    reset_item.reset(at=30, until=40)
    reset_item.add(7, 12, at=50, until=60)
    assert LINEAR in reset_item.ends(12)


def test_two_histories_from_zero_need_a_reset_between_them(reset_item):
    reset_item.add(5, 5)
    reset_item.add(7, 7)
    assert LINEAR in reset_item.ends(7)


def test_a_reset_that_was_forgotten_in_the_table_is_found(reset_item):
    reset_item.add(5, 5)
    reset_item.reset()
    reset_item.add(9, 9)
    assert SUMS in reset_item.ends(14)


def test_a_batch_is_many_changes(item):
    item.story.tell("counts", "batch", f"increase:{item.name}:5,decrease:{item.name}:2",
                    answer={"results": [{"itemId": item.name, "value": 105}, {"itemId": item.name, "value": 103}]})
    assert item.ends(103) == {}


def test_half_a_transfer_is_found(story):
    names = ["s1t0", "s1t1"]
    for name in names:
        story.tell("counts", "create", name, 100, 0, "-", status=201)
    story.tell("counts", "atomic", "increase:s1t0:10,decrease:s1t1:10",
               answer={"results": [{"itemId": "s1t0", "value": 110}, {"itemId": "s1t1", "value": 90}]})
    story.row("counts", "count_values", item_id="s1t0", current_value=110, last_updated_at=0)
    story.row("counts", "count_values", item_id="s1t1", current_value=100, last_updated_at=0)
    found = story.judge("counts")
    assert TRANSFERS in found and SUMS in found


def test_another_answer_under_the_same_key_is_found(item):
    number = item.add(5, 105)
    item.story.repeat("counts", number, {"itemId": item.name, "value": 106})
    assert "the same key gets the same answer" in item.ends(105)


@pytest.mark.parametrize("status, answer", [(500, {}), (400, {}), (404, {}), (409, {"code": "IDEMPOTENCY_KEY_CONFLICT"})])
def test_answers_that_make_no_sense_are_found(item, status, answer):
    item.story.tell("counts", "increase", item.name, 5, status=status, answer=answer)
    assert "no answer that a client should not get" in item.ends(100)


# ---- many unknown changes --------------------------------------------------------------------------------------------


class Unkeyed(Item):
    """An item whose clients have no keys: some of their increases stay unknown, and some of those have happened."""

    def __init__(self, story, unknown, share=0.5):
        super().__init__(story, "s1u0", initial=0)
        self.value, self._random = 0, random.Random(7)
        for _ in range(unknown):
            for _ in range(self._random.randrange(3)):
                self.known()
            self.unknown(self._random.random() < share)
        self.known()

    def amount(self):
        return self._random.randrange(1, 1 << 40)

    def known(self):
        amount = self.amount()
        self.value += amount
        self.add(amount, self.value, key=False)

    def unknown(self, happens):
        amount = self.amount()
        self.story.tell("counts", "increase", self.name, amount, status=None, key=False)
        self.value += amount if happens else 0

    def judged(self):
        """Invariants by name; the table has the value."""
        self.ends(self.value)
        return self.story.invariants("counts")


@pytest.mark.parametrize("unknown", [25, 100, 400])
def test_hundreds_of_unknown_changes_are_told_apart(story, unknown):
    item = Unkeyed(story, unknown)
    for _ in range(4):
        item.unknown(True)
    judged = item.judged()
    assert all(invariant.holds and not invariant.note for name, invariant in judged.items() if name in (LINEAR, SUMS))
    assert judged[LINEAR].covered == judged[SUMS].covered > unknown / 2


@pytest.mark.parametrize("unknown", [25, 100])
def test_a_refused_change_that_happened_is_found_among_many_unknown_ones(story, unknown):
    item = Unkeyed(story, unknown)
    amount = item.amount()
    story.tell("counts", "increase", item.name, amount, status=503, answer={"code": "STORE_UNAVAILABLE"}, key=False)
    item.value += amount
    item.known()
    assert LINEAR in item.ends(item.value)


def test_a_wrong_end_is_found_behind_many_unknown_changes(story):
    item = Unkeyed(story, 100)
    assert SUMS in item.ends(item.value + item.amount())


def test_an_unknown_change_that_was_sent_later_explains_nothing(story):
    item = Item(story, "s1u0", initial=0)
    item.add(5, 1005, at=20, until=30, key=False)
    story.tell("counts", "increase", item.name, 1000, status=None, at=40, until=50, key=False)
    assert LINEAR in item.ends(1005)


def test_an_unknown_change_happens_once_at_most(story):
    item = Item(story, "s1u0", initial=0)
    story.tell("counts", "increase", item.name, 1000, status=None, key=False)
    item.add(5, 1005, key=False)
    item.add(7, 2012, key=False)
    assert LINEAR in item.ends(2012)


def test_another_choice_of_unknown_changes_is_tried_if_the_first_leads_nowhere(story):
    """The first step may be 300 or 100 + 200, and only the second leaves what the next step needs."""
    item = Item(story, "s1u0", initial=0)
    for amount in (100, 200, 300):
        story.tell("counts", "increase", item.name, amount, status=None, key=False)
    item.add(5, 305, key=False)
    item.add(7, 612, key=False)
    assert item.ends(612) == {}


def test_unknown_changes_that_go_down_are_told_apart_too(item):
    item.story.tell("counts", "decrease", item.name, 1000, status=None)
    item.add(5, 105)
    item.add(7, -888)
    item.story.tell("counts", "increase", item.name, 4000, status=None)
    item.add(-2, 3110)
    assert item.ends(3110) == {}


def test_what_takes_too_long_is_undecided_and_neither_broken_nor_covered(story):
    """A step of a hundred unknown changes at once, and of one that was refused."""
    item = Unkeyed(story, 0)
    for _ in range(100):
        item.unknown(True)
    item.value += item.amount()
    item.known()
    judged = item.judged()
    assert judged[LINEAR].holds and judged[SUMS].holds
    assert "1 items undecided" in judged[LINEAR].note and "1 items undecided" in judged[SUMS].note
    assert judged[LINEAR].covered == judged[SUMS].covered == 0


def test_a_history_with_resets_and_unknown_changes_is_undecided(reset_item):
    reset_item.add(5, 5)
    reset_item.reset()
    reset_item.story.tell("counts", "increase", reset_item.name, 1000, status=None)
    reset_item.add(9, 1009)
    reset_item.ends(1009)
    judged = reset_item.story.invariants("counts")
    assert judged[LINEAR].holds and "undecided" in judged[LINEAR].note and judged[LINEAR].covered == 0
