"""The acceptance list of the count service's specification, line by line, on both stores.

Where a line speaks of the database, the database is asked, with a client of its own.
"""

from harness.counts import increase_request, new_id
from harness.http import ask_all
from harness.problems import assert_problem
from harness.stores import PostgresStore

import pytest


@pytest.fixture
def server(serve, store):
    return serve(store)


@pytest.fixture
def counts(server, client):
    return client(server)


def test_acceptance_01_creating_a_count_returns_201_and_creates_the_record(counts, store):
    answer = counts.create("a", 7)
    assert answer.status == 201
    assert answer.json()["itemId"] == "a"
    assert answer.json()["currentValue"] == 7
    assert store.value("a") == 7


def test_acceptance_02_creating_a_count_that_exists_returns_409(counts, store):
    counts.create("a", 7)
    assert_problem(counts.create("a", 8), 409, "COUNT_EXISTS")
    assert store.value("a") == 7


def test_acceptance_03_increase_returns_200_and_the_incremented_value(counts, store):
    counts.create("a", 7)
    answer = counts.increase("a", 5)
    assert answer.status == 200
    assert answer.json() == {"itemId": "a", "value": 12}
    assert store.value("a") == 12


def test_acceptance_04_increase_returns_404_for_an_item_that_does_not_exist(counts, store):
    assert_problem(counts.increase("a"), 404, "COUNT_NOT_FOUND")
    assert store.value("a") is None


def test_acceptance_05_100_concurrent_increases_are_exactly_plus_100(server, counts, store):
    counts.create("a")
    answers = ask_all((server.port, increase_request("a")) for _ in range(100))
    assert [answer.status for answer in answers] == [200] * 100
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 101))
    assert store.value("a") == 100


def test_acceptance_05_100_concurrent_increases_on_two_processes_are_exactly_plus_100(
    serve, client, database, tmp_path
):
    store = PostgresStore(database, tmp_path)
    servers = [serve(store), serve(store)]
    client(servers[0]).create("a")
    answers = ask_all((servers[number % 2].port, increase_request("a")) for number in range(100))
    assert [answer.status for answer in answers] == [200] * 100
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 101))
    assert store.value("a") == 100


def test_acceptance_06_decrease_returns_200_and_the_decremented_value(counts, store):
    counts.create("a", 7)
    answer = counts.decrease("a", 10)
    assert answer.status == 200
    assert answer.json() == {"itemId": "a", "value": -3}
    assert store.value("a") == -3


def test_acceptance_07_reset_returns_200_and_the_value_becomes_0(counts, store):
    counts.create("a", 7)
    answer = counts.reset("a")
    assert answer.status == 200
    assert answer.json() == {"itemId": "a", "value": 0}
    assert store.value("a") == 0


def test_acceptance_08_a_list_returns_the_current_values_of_both(counts):
    counts.create("A", 1)
    counts.create("B", 2)
    counts.increase("B")
    answer = counts.ask("GET", "/api/v1/internal/counts?itemIds=A&itemIds=B")
    assert answer.status == 200
    assert [(entry["itemId"], entry["currentValue"]) for entry in answer.json()] == [("A", 1), ("B", 3)]


def test_acceptance_09_delete_removes_the_record(counts, store):
    item = new_id()
    counts.create(item, 7)
    assert counts.delete(item).status == 204
    assert store.value(item) is None
    assert_problem(counts.get(item), 404, "COUNT_NOT_FOUND")
