"""Every route of the count service and every answer of its table, on both stores."""

import datetime

import pytest

from harness.counts import COLLECTION, INT64_MAX, INT64_MIN, action, new_id, record
from harness.problems import assert_problem
from harness.waiting import wait_until


def moment(answer):
    return datetime.datetime.fromisoformat(answer.json()["lastUpdatedAt"].replace("Z", "+00:00"))


def test_create_without_a_value_starts_at_zero(counts):
    answer = counts.create(new_id())
    assert answer.status == 201
    assert answer.json()["currentValue"] == 0


def test_create_with_null_as_value_starts_at_zero(counts):
    answer = counts.ask("POST", COLLECTION, {"itemId": new_id(), "initialValue": None})
    assert (answer.status, answer.json()["currentValue"]) == (201, 0)


@pytest.mark.parametrize("value", [INT64_MIN, -1, 0, 1, INT64_MAX])
def test_create_takes_any_int64(counts, value):
    item = new_id()
    assert counts.create(item, value).json()["currentValue"] == value
    assert counts.value(item) == value


def test_create_says_where_the_count_is(counts):
    item = new_id("größe 日本")
    answer = counts.create(item, 3)
    assert answer.header("location") == record(item)
    assert counts.ask("GET", answer.header("location")).json() == answer.json()


def test_create_of_what_exists_is_refused_and_changes_nothing(counts):
    item = counts.new_item(5)
    before = counts.get(item).json()
    assert_problem(counts.create(item, 9), 409, "COUNT_EXISTS")
    assert counts.get(item).json() == before


def test_a_deleted_count_can_be_created_again(counts):
    item = counts.new_item(5)
    counts.delete(item)
    assert counts.create(item, 6).status == 201
    assert counts.value(item) == 6


@pytest.mark.parametrize("verb, value", [("increase", 11), ("decrease", 9)])
@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"amount":null}', b" { }\n"])
def test_a_change_without_an_amount_changes_by_one(counts, verb, value, body):
    item = counts.new_item(10)
    answer = counts.ask("POST", action(item, verb), body)
    assert answer.status == 200
    assert answer.json() == {"itemId": item, "value": value}


@pytest.mark.parametrize("verb, value", [("increase", 52), ("decrease", -32)])
def test_a_change_takes_its_amount(counts, verb, value):
    item = counts.new_item(10)
    assert counts.ask("POST", action(item, verb), {"amount": 42}).json() == {"itemId": item, "value": value}
    assert counts.value(item) == value


def test_a_count_may_go_below_zero(counts):
    item = counts.new_item(0)
    assert counts.decrease(item, 5).json()["value"] == -5
    assert counts.increase(item, 3).json()["value"] == -2


def test_reset_sets_zero_from_either_side(counts):
    for value in (INT64_MIN, -7, 0, 7, INT64_MAX):
        item = counts.new_item(value)
        assert counts.reset(item).json() == {"itemId": item, "value": 0}
        assert counts.value(item) == 0


@pytest.mark.parametrize("verb", ["increase", "decrease", "reset"])
def test_a_change_of_an_unknown_item_is_404_and_creates_nothing(counts, verb):
    item = new_id()
    problem = assert_problem(counts.ask("POST", action(item, verb)), 404, "COUNT_NOT_FOUND")
    assert item in problem["detail"]
    assert counts.get(item).status == 404


def test_get_of_an_unknown_item_is_404(counts):
    assert_problem(counts.get(new_id()), 404, "COUNT_NOT_FOUND")


def test_delete_answers_204_once_and_404_after(counts):
    item = counts.new_item(1)
    answer = counts.delete(item)
    assert (answer.status, answer.body) == (204, b"")
    assert_problem(counts.delete(item), 404, "COUNT_NOT_FOUND")
    assert_problem(counts.increase(item), 404, "COUNT_NOT_FOUND")


def test_the_ends_of_int64_can_be_reached(counts):
    top = counts.new_item(INT64_MAX - 1)
    assert counts.increase(top).json()["value"] == INT64_MAX
    bottom = counts.new_item(INT64_MIN + 1)
    assert counts.decrease(bottom).json()["value"] == INT64_MIN
    span = counts.new_item(0)
    assert counts.increase(span, INT64_MAX).json()["value"] == INT64_MAX
    assert counts.decrease(span, INT64_MAX).json()["value"] == 0


@pytest.mark.parametrize(
    "verb, start, amount",
    [
        ("increase", INT64_MAX, 1),
        ("increase", 1, INT64_MAX),
        ("increase", INT64_MAX, INT64_MAX),
        ("decrease", INT64_MIN, 1),
        ("decrease", -2, INT64_MAX),
        ("decrease", INT64_MIN, INT64_MAX),
    ],
)
def test_a_change_past_int64_is_refused_and_changes_nothing(counts, verb, start, amount):
    item = counts.new_item(start)
    before = counts.get(item).json()
    assert_problem(counts.ask("POST", action(item, verb), {"amount": amount}), 409, "COUNT_OVERFLOW")
    assert counts.get(item).json() == before


def test_every_write_moves_the_time_of_the_last_update(counts):
    item = new_id()
    before = datetime.datetime.now(datetime.timezone.utc)
    previous = moment(counts.create(item))
    assert before <= previous <= datetime.datetime.now(datetime.timezone.utc)
    for write in (counts.increase, counts.decrease, counts.reset):
        wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) > previous, "the clock ticks")
        assert write(item).status == 200
        current = moment(counts.get(item))
        assert current > previous
        previous = current


def test_reading_does_not_move_the_time_of_the_last_update(counts):
    item = counts.new_item()
    before = counts.get(item).json()
    counts.list(item)
    assert counts.get(item).json() == before


def test_a_list_comes_in_the_order_asked(counts):
    items = [counts.new_item(number) for number in range(5)]
    order = [items[3], items[0], items[4], items[1]]
    assert [entry["itemId"] for entry in counts.list(*order).json()] == order


@pytest.mark.parametrize("name", ["itemIds", "itemIds[]", "itemIds%5B%5D"])
def test_a_list_takes_either_spelling_of_its_parameter(counts, name):
    first, second = counts.new_item(1), counts.new_item(2)
    answer = counts.list(first, second, name=name)
    assert [entry["currentValue"] for entry in answer.json()] == [1, 2]


def test_a_list_has_the_shape_of_a_single_read(counts):
    item = counts.new_item(3)
    assert counts.list(item).json() == [counts.get(item).json()]


def test_a_list_has_an_id_that_is_asked_twice_once(counts):
    first, second = counts.new_item(), counts.new_item()
    answer = counts.list(first, second, first, first)
    assert [entry["itemId"] for entry in answer.json()] == [first, second]


def test_a_list_leaves_unknown_ids_out(counts):
    item = counts.new_item()
    assert [entry["itemId"] for entry in counts.list(new_id(), item, new_id()).json()] == [item]
    assert counts.list(new_id()).json() == []


def test_a_list_decodes_its_ids_once(counts):
    for item in (new_id("a b&c=d+e"), new_id("100%25"), new_id("größe")):
        counts.create(item, 1)
        assert [entry["itemId"] for entry in counts.list(item).json()] == [item]


def test_a_list_of_a_thousand_ids_is_answered(counts):
    item = counts.new_item(9)
    ids = [f"u{number}" for number in range(999)] + [item]
    answer = counts.list(*ids)
    assert answer.status == 200
    assert [entry["itemId"] for entry in answer.json()] == [item]


@pytest.mark.parametrize("query", ["?itemIds", "?itemIds=", "?itemIds[]="])
def test_a_list_of_nothing_is_refused(counts, query):
    assert_problem(counts.ask("GET", COLLECTION + query), 400, "BAD_REQUEST", field="itemIds")


def test_a_list_of_1001_ids_is_refused(counts):
    answer = counts.list(*[f"u{number}" for number in range(1001)])
    assert_problem(answer, 400, "BAD_REQUEST", field="itemIds")


@pytest.mark.parametrize("id_", ["%00", "a%0Ab", "%FF", "%ZZ", "x" * 129])
def test_a_list_with_a_bad_id_is_refused(counts, id_):
    assert_problem(counts.ask("GET", f"{COLLECTION}?itemIds=a&itemIds={id_}"), 400, "BAD_REQUEST")
