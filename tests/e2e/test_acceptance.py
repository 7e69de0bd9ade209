"""The acceptance list of the count service's specification, line by line, on both stores.

Where a line speaks of the database, the database is asked, with a client of its own.
"""

import pytest

from harness.counts import increase_request, new_id
from harness.http import ask_all
from harness.problems import assert_problem
from harness.stores import PostgresStore, SqliteStore


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(request, tmp_path_factory):
    """Of the server that all lines share; each has items of its own."""
    directory = tmp_path_factory.mktemp("acceptance")
    if request.param == "sqlite":
        yield SqliteStore(directory / "data")
        return
    fresh = request.getfixturevalue("postgres_server").create_database()
    yield PostgresStore(fresh, directory)
    fresh.drop()


@pytest.fixture(scope="module")
def module_server(store, module_serve):
    server = module_serve(store)
    yield server
    server.stop()


@pytest.fixture
def server(module_server):
    yield module_server
    module_server.check_alive()


@pytest.fixture
def counts(server, client):
    return client(server)


@pytest.fixture
def item():
    return new_id()


def test_acceptance_01_creating_a_count_returns_201_and_creates_the_record(counts, store, item):
    answer = counts.create(item, 7)
    assert answer.status == 201
    assert answer.json()["itemId"] == item
    assert answer.json()["currentValue"] == 7
    assert store.value(item) == 7


def test_acceptance_02_creating_a_count_that_exists_returns_409(counts, store, item):
    counts.create(item, 7)
    assert_problem(counts.create(item, 8), 409, "COUNT_EXISTS")
    assert store.value(item) == 7


def test_acceptance_03_increase_returns_200_and_the_incremented_value(counts, store, item):
    counts.create(item, 7)
    answer = counts.increase(item, 5)
    assert answer.status == 200
    assert answer.json() == {"itemId": item, "value": 12}
    assert store.value(item) == 12


def test_acceptance_04_increase_returns_404_for_an_item_that_does_not_exist(counts, store, item):
    assert_problem(counts.increase(item), 404, "COUNT_NOT_FOUND")
    assert store.value(item) is None


def test_acceptance_05_100_concurrent_increases_are_exactly_plus_100(server, counts, store, item):
    counts.create(item)
    answers = ask_all((server.port, increase_request(item)) for _ in range(100))
    assert [answer.status for answer in answers] == [200] * 100
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 101))
    assert store.value(item) == 100


def test_acceptance_05_100_concurrent_increases_on_two_processes_are_exactly_plus_100(
    serve, client, database, tmp_path, item
):
    store = PostgresStore(database, tmp_path)
    servers = [serve(store), serve(store)]
    client(servers[0]).create(item)
    answers = ask_all((servers[number % 2].port, increase_request(item)) for number in range(100))
    assert [answer.status for answer in answers] == [200] * 100
    assert sorted(answer.json()["value"] for answer in answers) == list(range(1, 101))
    assert store.value(item) == 100


def test_acceptance_06_decrease_returns_200_and_the_decremented_value(counts, store, item):
    counts.create(item, 7)
    answer = counts.decrease(item, 10)
    assert answer.status == 200
    assert answer.json() == {"itemId": item, "value": -3}
    assert store.value(item) == -3


def test_acceptance_07_reset_returns_200_and_the_value_becomes_0(counts, store, item):
    counts.create(item, 7)
    answer = counts.reset(item)
    assert answer.status == 200
    assert answer.json() == {"itemId": item, "value": 0}
    assert store.value(item) == 0


def test_acceptance_08_a_list_returns_the_current_values_of_both(counts):
    first, second = new_id(), new_id()
    counts.create(first, 1)
    counts.create(second, 2)
    counts.increase(second)
    answer = counts.ask("GET", f"/api/v1/internal/counts?itemIds={first}&itemIds={second}")
    assert answer.status == 200
    assert [(entry["itemId"], entry["currentValue"]) for entry in answer.json()] == [(first, 1), (second, 3)]


def test_acceptance_09_delete_removes_the_record(counts, store, item):
    counts.create(item, 7)
    assert counts.delete(item).status == 204
    assert store.value(item) is None
    assert_problem(counts.get(item), 404, "COUNT_NOT_FOUND")
