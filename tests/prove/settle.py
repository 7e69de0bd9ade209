"""What is still on its way: events in outboxes, messages in queues and topics, notifications.

`open_events` counts rows that wait to be published. `wait_settled` returns when nothing is on its way any more, which is
when the checks may look.
"""

import contextlib
import warnings

import psycopg2

from check.dialogs import streams_behind, uncounted
from check.tables import Tables
from fault import until
from harness.rabbitmq import NEW_QUEUE, READ_QUEUE

OUTBOXES = {"entitlements": ("entitlements", "outbox_events"), "dialogs": ("dialogs", "dialog_outbox_events")}
SETTLED_S = 150
STREAMS_S = 10  # how long an event stream may take to deliver what is in the table
GROUP, TOPIC = "sender-service", "sms-outbound"


def _open(place):
    """SQL for rows that wait: PostgreSQL has an index for this spelling."""
    return "status IN ('PENDING', 'IN_FLIGHT', 'PROCESSING')" if place.is_sqlite else "stage = 'OPEN'"


def open_events(place, services, created_by_us=None):
    """How many events wait in the outboxes, of those created by that time."""
    waiting = 0
    with Tables(place) as tables:
        for service, (store, table) in OUTBOXES.items():
            if service in services:
                older = f" AND {tables.time_us('created_at')} <= {created_by_us}" if created_by_us else ""
                waiting += tables.rows(store, f"SELECT count(*) FROM {table} WHERE {_open(place)}{older}")[0][0]
    return waiting


def first_published_us(place, service, since_us):
    """When the first event since then was published; None: none was."""
    store, table = OUTBOXES[service]
    with Tables(place) as tables:
        time = tables.time_us("published_at")
        return tables.rows(store, f"SELECT min({time}) FROM {table} WHERE {time} >= {since_us}")[0][0]


def _open_notifications(place):
    with Tables(place) as tables:
        return tables.rows("notifications", f"SELECT count(*) FROM notifications WHERE {_open(place)}")[0][0]


def _unread_events(cluster):
    return sum(cluster.host.depth(queue) or 0 for queue in (NEW_QUEUE, READ_QUEUE))


def _unsent_messages(cluster):
    """What the sender has not acknowledged yet, on Kafka."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kafka
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.engines["kafka"].address, group_id=GROUP,
                                   enable_auto_commit=False)
    with contextlib.closing(consumer):
        partitions = [kafka.TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC) or ()]
        ends = consumer.end_offsets(partitions)
        return sum(max(0, end - (consumer.committed(partition) or 0)) for partition, end in ends.items())


def _undelivered_events(cluster):
    """What the notifications' consumer has not acknowledged yet, on NATS."""
    with cluster.engines["nats"].wire() as wire:
        state = wire.ask("CONSUMER.INFO.ENTITLEMENTS.notifications")
        return state["num_pending"] + state["num_ack_pending"]


def on_its_way(cluster, place):
    """{what: how many}, of everything that is not zero."""
    found = {"events in outboxes": open_events(place, cluster.services)}
    if "entitlements" in cluster.services:
        found["notifications"] = _open_notifications(place)
    if "dialogs" in cluster.services:
        found["counters that are behind"] = uncounted(place)
    for engine, what, count in (("rabbitmq", "events in RabbitMQ", _unread_events), ("nats", "events in NATS",
                                _undelivered_events), ("kafka", "messages in Kafka", _unsent_messages)):
        if engine in cluster.engines:
            found[what] = count(cluster)
    return {what: number for what, number in found.items() if number}


def wait_settled(cluster, place, say):
    """Returns what is still on its way after a long time; normally nothing. `say` is told what it waits for."""
    left = {"nothing could be read": 1}

    def settled():
        nonlocal left
        with contextlib.suppress(psycopg2.Error, OSError):
            left = on_its_way(cluster, place)
        say("waiting for " + (", ".join(f"{number:,} {what}" for what, number in left.items()) or "nothing more"))
        return not left

    until(settled, SETTLED_S, interval=0.5)
    return left


def wait_streams(place, log_dir):
    """Waits until every event stream has delivered what is in the table now. Only the checks say that one has not."""
    until(lambda: streams_behind(log_dir, place) == 0, STREAMS_S, interval=0.2)
