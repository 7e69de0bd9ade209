"""A count never leaves its bounds, whoever changes it at the same moment, and PUT sets a count only as it was expected."""

import collections
import contextlib
import pathlib
import random
import sqlite3

import pytest

from harness.counts import COLLECTION, INT64_MAX, INT64_MIN, action, new_id, new_key, record
from harness.http import ask_all, ask_at_once, render
from harness.problems import assert_bad_request, assert_problem

ROOT = pathlib.Path(__file__).resolve().parents[2]


def change(item, verb, amount=None, key=None):
    headers = {"Idempotency-Key": key} if key else {}
    return render("POST", action(item, verb), None if amount is None else {"amount": amount}, headers)


def assert_out_of_bounds(answer, value, least, most):
    problem = assert_problem(answer, 409, "COUNT_OUT_OF_BOUNDS")
    assert (problem["value"], problem["minValue"], problem["maxValue"]) == (value, least, most)


def assert_sold_exactly(answers, seats):
    """Each seat was sold once, and everybody else was told that none is left."""
    sold = [answer.json()["value"] for answer in answers if answer.status == 200]
    assert sorted(sold) == list(range(seats))
    for answer in answers:
        if answer.status != 200:
            assert_out_of_bounds(answer, 0, 0, None)


# ---- never more than there are


def test_of_500_decreases_of_a_count_of_100_exactly_100_succeed(counts, shared_server):
    item = counts.new_bounded(100, 0)
    answers = ask_all((shared_server.port, change(item, "decrease")) for _ in range(500))
    assert_sold_exactly(answers, 100)
    assert counts.value(item) == 0


def test_of_500_decreases_in_one_batch_exactly_100_succeed(serve, client, store):
    """All of them wait before the first is looked at, so the batch that crosses the bound is a large one."""
    server = serve(store, "--deadline", "1h")
    counts = client(server)
    item = counts.new_bounded(100, 0)
    assert_sold_exactly(ask_at_once(server, [change(item, "decrease")] * 500), 100)
    assert counts.value(item) == 0


def test_of_500_decreases_on_two_processes_exactly_100_succeed(serve, client, database, postgres_store):
    servers = [serve(postgres_store, "--deadline", "1h") for _ in range(2)]
    item = client(servers[0]).new_bounded(100, 0)
    answers = ask_all((servers[number % 2].port, change(item, "decrease")) for number in range(500))
    assert_sold_exactly(answers, 100)
    assert database.value(item) == 0


def test_of_500_decreases_with_keys_exactly_100_succeed_and_retries_change_nothing(counts, shared_server):
    item = counts.new_bounded(100, 0)
    requests = [(shared_server.port, change(item, "decrease", key=new_key())) for _ in range(500)]
    first = ask_all(requests)
    assert_sold_exactly(first, 100)
    counts.increase(item, 1000)
    again = ask_all(requests)
    assert [answer.body for answer in again] == [answer.body for answer in first]
    assert {answer.header("idempotent-replayed") for answer in again} == {"true"}
    assert counts.value(item) == 1000


def test_increases_stop_at_the_upper_bound(counts, shared_server):
    item = counts.new_bounded(-10, None, 20)
    answers = ask_all((shared_server.port, change(item, "increase")) for _ in range(100))
    assert sorted(answer.json()["value"] for answer in answers if answer.status == 200) == list(range(-9, 21))
    for answer in answers:
        if answer.status != 200:
            assert_out_of_bounds(answer, 20, None, 20)


def test_a_burst_of_any_amounts_is_exact_and_refuses_only_what_does_not_fit(serve, client, store):
    """A refusal names the value it met, and with that value the change did not fit; the rest adds up."""
    server = serve(store, "--deadline", "1h")
    counts, choose = client(server), random.Random(7)
    item, free = counts.new_bounded(50, 0, 60), counts.new_item()
    steps = [choose.choice([-1, 1]) * choose.randint(1, 30) for _ in range(300)]
    requests = [change(item, "increase" if step > 0 else "decrease", abs(step)) for step in steps]
    answers = ask_at_once(server, [*requests, *[change(free, "decrease")] * 100])
    done = 50
    for step, answer in zip(steps, answers):
        if answer.status == 200:
            done += step
            assert 0 <= answer.json()["value"] <= 60
        else:
            problem = assert_problem(answer, 409, "COUNT_OUT_OF_BOUNDS")
            assert 0 <= problem["value"] <= 60 and not 0 <= problem["value"] + step <= 60
    assert collections.Counter(answer.status for answer in answers[:300]).keys() == {200, 409}
    assert counts.value(item) == done
    assert {answer.status for answer in answers[300:]} == {200} and counts.value(free) == -100


def test_a_refusal_changes_nothing_not_even_the_time(counts):
    item = counts.new_bounded(3, 0, 5)
    before = counts.get(item).json()
    assert_out_of_bounds(counts.decrease(item, 4), 3, 0, 5)
    assert_out_of_bounds(counts.increase(item, 3), 3, 0, 5)
    assert counts.get(item).json() == before


@pytest.mark.parametrize("value, least, most", [(7, 1, None), (-7, None, -1), (7, 7, 7)])
def test_a_reset_to_a_value_outside_the_bounds_is_refused(counts, value, least, most):
    item = counts.new_bounded(value, least, most)
    before = counts.get(item).json()
    assert_out_of_bounds(counts.reset(item), value, least, most)
    assert counts.get(item).json() == before


def test_a_reset_to_a_bound_is_done(counts):
    item = counts.new_bounded(7, 0, 9)
    assert counts.reset(item).json() == {"itemId": item, "value": 0}


@pytest.mark.parametrize(
    "verb, start, least, most, amount, value",
    [
        ("increase", INT64_MAX - 1, INT64_MIN, INT64_MAX, 1, INT64_MAX),
        ("decrease", INT64_MIN + 1, INT64_MIN, INT64_MAX, 1, INT64_MIN),
        ("increase", 0, None, INT64_MAX, INT64_MAX, INT64_MAX),
        ("increase", INT64_MAX, INT64_MIN, INT64_MAX, 1, None),
        ("increase", INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, None),
        ("decrease", INT64_MAX, INT64_MAX, INT64_MAX, 1, None),
        ("decrease", INT64_MIN, INT64_MIN, INT64_MIN, INT64_MAX, None),
        ("increase", INT64_MIN, INT64_MIN, INT64_MIN, 1, None),
        ("decrease", -2, INT64_MIN, None, INT64_MAX, None),
        ("decrease", INT64_MIN, None, INT64_MIN, 1, "COUNT_OVERFLOW"),
        ("increase", INT64_MAX, INT64_MAX, None, 1, "COUNT_OVERFLOW"),
    ],
)
def test_bounds_at_the_ends_of_int64_are_bounds_like_any_other(counts, verb, start, least, most, amount, value):
    item = counts.new_bounded(start, least, most)
    answer = counts.ask("POST", action(item, verb), {"amount": amount})
    if value is None:
        assert_out_of_bounds(answer, start, least, most)
    elif isinstance(value, str):
        assert_problem(answer, 409, value)
    else:
        assert answer.json() == {"itemId": item, "value": value}
    assert counts.value(item) == (value if isinstance(value, int) else start)


# ---- creating and reading


@pytest.mark.parametrize("least, most", [(None, None), (0, None), (None, 9), (0, 9), (5, 5), (INT64_MIN, INT64_MAX)])
def test_bounds_are_shown_where_they_are_set(counts, least, most):
    item = new_id()
    body = {"itemId": item, "initialValue": 5, "minValue": least, "maxValue": most}
    created = counts.ask("POST", COLLECTION, body)
    assert created.status == 201
    told = created.json()
    assert {name: told[name] for name in ("minValue", "maxValue") if name in told} == {
        name: bound for name, bound in (("minValue", least), ("maxValue", most)) if bound is not None}
    assert counts.get(item).json() == told
    assert counts.list(item).json() == [told]


@pytest.mark.parametrize(
    "body, field",
    [
        ({"initialValue": 5, "minValue": 6}, "initialValue"),
        ({"initialValue": 5, "maxValue": 4}, "initialValue"),
        ({"minValue": 1}, "initialValue"),
        ({"maxValue": -1}, "initialValue"),
        ({"initialValue": 5, "minValue": 6, "maxValue": 4}, "maxValue"),
        ({"minValue": "0"}, "minValue"),
        ({"maxValue": 1.5}, "maxValue"),
        ({"maxValue": True}, "maxValue"),
        ({"minValue": [0]}, "minValue"),
        ({"minValue": INT64_MIN - 1}, None),
        ({"maxValue": INT64_MAX + 1}, None),
    ],
)
def test_a_count_outside_its_bounds_is_not_created(counts, body, field):
    item = new_id()
    assert_bad_request(counts.ask("POST", COLLECTION, {"itemId": item, **body}), field=field)
    assert counts.get(item).status == 404


def test_a_count_that_was_deleted_leaves_no_bounds_behind(counts):
    item = counts.new_bounded(0, 0, 0)
    counts.delete(item)
    counts.create(item)
    assert counts.decrease(item, 5).json()["value"] == -5


# ---- PUT


def test_put_sets_what_it_names_and_leaves_the_rest(counts):
    item = counts.new_bounded(5, 0, 9)
    answer = counts.put(item, {"value": 7})
    assert answer.status == 200
    assert answer.json() == counts.get(item).json()
    assert (answer.json()["currentValue"], answer.json()["minValue"], answer.json()["maxValue"]) == (7, 0, 9)
    told = counts.put(item, {"minValue": -3}).json()
    assert (told["currentValue"], told["minValue"], told["maxValue"]) == (7, -3, 9)
    told = counts.put(item, {"value": 40, "minValue": 10, "maxValue": 50}).json()
    assert (told["currentValue"], told["minValue"], told["maxValue"]) == (40, 10, 50)


def test_put_removes_a_bound_that_is_null_and_only_that(counts):
    item = counts.new_bounded(5, 0, 9)
    told = counts.put(item, {"value": 7, "expectedValue": 5, "minValue": 0, "maxValue": None}).json()
    assert told["currentValue"] == 7 and told["minValue"] == 0 and "maxValue" not in told
    assert counts.increase(item, 100).json()["value"] == 107
    assert "minValue" not in counts.put(item, {"minValue": None}).json()
    assert counts.decrease(item, 200).json()["value"] == -93


def test_put_takes_null_for_a_value_as_absent(counts):
    item = counts.new_item(5)
    told = counts.put(item, {"value": None, "expectedValue": None, "maxValue": 6}).json()
    assert (told["currentValue"], told["maxValue"]) == (5, 6)


def test_put_with_another_expected_value_is_refused_and_says_the_value(counts):
    item = counts.new_bounded(5, 0, 9)
    before = counts.get(item).json()
    body = {"value": 7, "expectedValue": 4, "maxValue": None}
    assert assert_problem(counts.put(item, body), 409, "COUNT_VALUE_CONFLICT")["value"] == 5
    assert counts.get(item).json() == before


def test_the_expected_value_is_judged_before_the_bounds(counts):
    item = counts.new_bounded(5, 0, 9)
    assert_problem(counts.put(item, {"value": 10, "expectedValue": 4}), 409, "COUNT_VALUE_CONFLICT")
    assert_out_of_bounds(counts.put(item, {"value": 10, "expectedValue": 5}), 5, 0, 9)


@pytest.mark.parametrize(
    "body",
    [{"value": 10}, {"value": -1}, {"minValue": 6}, {"maxValue": 4}, {"minValue": 10}, {"value": 10, "maxValue": 8},
     {"value": INT64_MIN}, {"value": INT64_MAX, "maxValue": INT64_MAX - 1}],
)
def test_put_never_leaves_a_value_outside_the_bounds(counts, body):
    item = counts.new_bounded(5, 0, 9)
    before = counts.get(item).json()
    assert_out_of_bounds(counts.put(item, body), 5, 0, 9)
    assert counts.get(item).json() == before


@pytest.mark.parametrize(
    "body, field",
    [
        (None, "value"),
        ({}, "value"),
        ({"expectedValue": 5}, "value"),
        ({"value": None}, "value"),
        ({"value": "7"}, "value"),
        ({"value": 7.0}, "value"),
        ({"value": 7, "expectedValue": "5"}, "expectedValue"),
        ({"minValue": False}, "minValue"),
        ({"maxValue": {}}, "maxValue"),
        ({"minValue": 9, "maxValue": 0}, "maxValue"),
        ({"value": INT64_MAX + 1}, None),
        (b"[]", None),
        (b'{"value":7', None),
    ],
)
def test_a_put_that_cannot_be_understood_is_refused(counts, body, field):
    item = counts.new_bounded(5, 0, 9)
    before = counts.get(item).json()
    assert_bad_request(counts.put(item, body), field=field)
    assert counts.get(item).json() == before


def test_put_of_an_unknown_count_is_404_and_creates_nothing(counts):
    item = new_id()
    assert_problem(counts.put(item, {"value": 1}), 404, "COUNT_NOT_FOUND")
    assert counts.get(item).status == 404


def test_a_repeated_put_is_replayed_and_has_no_second_effect(counts):
    item, key, late = counts.new_bounded(5, 0, 9), new_key(), new_key()
    first = counts.put(item, {"value": 7, "expectedValue": 5}, key=key)
    refused = counts.put(item, {"value": 8, "expectedValue": 5}, key=late)
    assert (first.status, refused.code) == (200, "COUNT_VALUE_CONFLICT")
    counts.put(item, {"value": 5})
    for answer, body, used in ((first, {"value": 7, "expectedValue": 5}, key),
                               (refused, {"value": 8, "expectedValue": 5}, late)):
        again = counts.put(item, body, key=used)
        assert (again.status, again.body, again.header("idempotent-replayed")) == (answer.status, answer.body, "true")
    assert_problem(counts.put(item, {"value": 7}, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert counts.value(item) == 5


def take_turns(item, value):
    return render("PUT", record(item), {"value": value + 1, "expectedValue": value})


def test_of_many_that_expect_the_same_value_one_succeeds(counts, shared_server):
    item = counts.new_item(0)
    for value in range(5):
        answers = ask_all((shared_server.port, take_turns(item, value)) for _ in range(40))
        assert sorted(answer.status for answer in answers) == [200] + [409] * 39
    assert counts.value(item) == 5


def test_of_many_that_expect_the_same_value_on_two_processes_one_succeeds(serve, client, postgres_store):
    servers = [serve(postgres_store, "--deadline", "1h") for _ in range(2)]
    counts = client(servers[0])
    item = counts.new_item(0)
    for value in range(10):
        answers = ask_all((servers[number % 2].port, take_turns(item, value)) for number in range(20))
        assert sorted(answer.status for answer in answers) == [200] + [409] * 19
    assert counts.value(item) == 10


def test_no_sum_is_lost_while_bounds_are_moved(serve, client, store):
    """Bounds change in the midst of a burst; whatever was answered with 200 is in the value, and nothing else."""
    server = serve(store, "--deadline", "1h")
    counts = client(server)
    item = counts.new_bounded(0, 0)
    requests = [change(item, "increase") for _ in range(200)]
    for place, most in ((50, 100), (101, 120), (152, None)):
        requests.insert(place, render("PUT", record(item), {"maxValue": most}))
    answers = ask_at_once(server, requests)
    increased = [answer for answer in answers if answer.status == 200 and "value" in answer.json()]
    assert counts.value(item) == len(increased)


# ---- from an older version

OLD_SCHEMA = [("common", 1, "base"), ("common", 2, "operator_actions"), ("counts", 1, "count_values")]
OLD_ROWS = [("low", INT64_MIN), ("seven", 7), ("top", INT64_MAX)]


def old_script(engine, component, version, name):
    return (ROOT / f"sql/{engine}/{component}/{version:04}_{name}.sql").read_text(encoding="utf-8")


def write_old_file(store):
    store.data.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(store.data / "counts.db")) as file:
        for migration in OLD_SCHEMA:
            file.executescript(old_script("sqlite", *migration))
        file.execute("CREATE TABLE schema_migrations (component TEXT NOT NULL, version INTEGER NOT NULL, "
                     "name TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (component, version)) "
                     "STRICT, WITHOUT ROWID")
        file.executemany("INSERT INTO schema_migrations VALUES (?, ?, ?, 0)", OLD_SCHEMA)
        file.executemany("INSERT INTO count_values VALUES (?, ?, 1)", OLD_ROWS)
        file.commit()


def write_old_database(store):
    for migration in OLD_SCHEMA:
        store.database.query(old_script("postgres", *migration))
    store.database.query("CREATE TABLE schema_migrations (component text NOT NULL, version integer NOT NULL, "
                         "name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), "
                         "PRIMARY KEY (component, version))")
    for migration in OLD_SCHEMA:
        store.database.query("INSERT INTO schema_migrations (component, version, name) VALUES (%s, %s, %s)", migration)
    for row in OLD_ROWS:
        store.database.query("INSERT INTO count_values (item_id, current_value) VALUES (%s, %s)", row)


def test_counts_of_an_older_version_have_no_bounds_and_may_get_them(serve, client, store):
    (write_old_file if store.name == "sqlite" else write_old_database)(store)
    counts = client(serve(store))
    told = counts.list(*[item for item, _ in OLD_ROWS]).json()
    assert [(entry["itemId"], entry["currentValue"]) for entry in told] == OLD_ROWS
    assert all(entry.keys() == {"itemId", "currentValue", "lastUpdatedAt"} for entry in told)
    assert counts.decrease("seven", 10).json()["value"] == -3
    assert counts.put("seven", {"minValue": -3}).status == 200
    assert_out_of_bounds(counts.decrease("seven"), -3, -3, None)
