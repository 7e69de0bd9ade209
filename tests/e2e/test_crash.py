"""kill -9 under load: every acknowledged change is there, and none is made twice when it is retried with its key."""

import pytest

from harness.load import Load


@pytest.mark.parametrize("acknowledged", [50, 400])
def test_after_kill_9_under_load_every_acknowledged_change_is_there_and_none_twice(serve, client, store, acknowledged):
    server = serve(store)
    counts = client(server)
    items = [counts.new_item() for _ in range(10)]
    with Load(server.port, items, threads=8) as load:
        load.wait_acknowledged(acknowledged)
        server.kill()
        load.join()
    load.assert_settled(client(serve(store)))


def test_a_store_survives_many_crashes_in_a_row(serve, client, store):
    server = serve(store)
    counts = client(server)
    items = [counts.new_item() for _ in range(3)]
    total = 0
    for _ in range(4):
        with Load(server.port, items, threads=4) as load:
            load.wait_acknowledged(30)
            server.kill()
            load.join()
        server = serve(store)
        counts = client(server)
        load.assert_nothing_unexpected()
        for change in load.unknown:
            assert counts.increase(change.item, key=change.key).status == 200
        total += len(load.acknowledged) + len(load.unknown)
        assert sum(counts.value(item) for item in items) == total


def test_one_of_two_processes_is_killed_and_the_other_goes_on(serve, client, postgres_store):
    doomed, other = serve(postgres_store), serve(postgres_store)
    counts = client(other)
    items = [counts.new_item() for _ in range(5)]
    with Load(doomed.port, items, threads=4) as first, Load(other.port, items, threads=4) as second:
        first.wait_acknowledged(50)
        doomed.kill()
        first.join()
        second.wait_acknowledged(50)
    second.assert_nothing_unexpected()
    assert second.unknown == [] and not second.refused
    for change in first.unknown:
        assert counts.increase(change.item, key=change.key).status == 200
    total = sum(counts.value(item) for item in items)
    assert total == len(first.acknowledged) + len(first.unknown) + len(second.acknowledged)


def test_a_restart_keeps_everything(serve, client, store):
    server = serve(store)
    counts = client(server)
    values = {counts.new_item(number): number for number in range(20)}
    before = {item: counts.get(item).json() for item in values}
    server.stop()
    counts = client(serve(store))
    assert {item: counts.get(item).json() for item in values} == before
