"""One of three brokers is killed while messages are sent. Sends go on, and every message that was acknowledged is sent to
its user, once. What was refused as unchanged is not sent."""

import collections
import contextlib
import json

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from engines.kafka_cluster import KafkaCluster
from engines.nats_cluster import NatsCluster
from engines.rabbitmq_cluster import RabbitMQCluster
from harness.available import available
from harness.fixtures import show_on_failure
from harness.gateway import new_text, texts_sent
from harness.gateway_stacks import PostgresStack
from harness.kafka import kafka
from harness.nats import Nats, Wire
from harness.sends import Sends
from harness.waiting import HANG_S, wait_until

CLUSTERS = {"kafka": KafkaCluster, "nats": lambda: NatsCluster(Nats), "rabbitmq": RabbitMQCluster}
TOPIC, STREAM, QUEUE = "sms-outbound", "SMS_OUTBOUND", "sender-service"


class Stack(PostgresStack):
    def __init__(self, directory, database, bus):
        super().__init__(directory, "none", database)
        self._bus = bus

    def arguments(self):
        return [*super().arguments(), "--gateway-bus", self._bus]


@pytest.fixture
def cluster(request):
    with available(CLUSTERS[request.param]) as servers:
        for number, server in enumerate(servers.servers, 1):
            show_on_failure(request.node, f"log of broker {number}", server.log_tail)
        yield servers


def leader(cluster):
    """The broker on which the messages depend most. What Quipu has created has a replica on each of the three."""
    number, replicas = {KafkaCluster: kafka_leader, NatsCluster: nats_leader,
                        RabbitMQCluster: rabbitmq_leader}[type(cluster)](cluster)
    assert replicas == 3
    return cluster.servers[number]


def kafka_leader(cluster):
    admin = KafkaAdminClient(bootstrap_servers=addresses(cluster))
    partition = admin.describe_topics([TOPIC])[0]["partitions"][0]
    admin.close()
    return partition["leader"] - 1, len(partition["replicas"])


def nats_leader(cluster):
    with cluster.servers[0].wire() as wire:
        group = wire.ask(f"STREAM.INFO.{STREAM}")["cluster"]
    return int(group["leader"].removeprefix("n")) - 1, 1 + len(group.get("replicas", []))


def rabbitmq_leader(cluster):
    queues = cluster.servers[0].ctl("list_queues", "--formatter", "json", "name", "type", "leader", "members")
    [queue] = [queue for queue in json.loads(queues) if queue["name"] == QUEUE]
    assert queue["type"] == "quorum"
    return [server.node_name for server in cluster.servers].index(queue["leader"]), len(queue["members"])


@pytest.mark.parametrize("cluster", CLUSTERS, indirect=True)
def test_one_of_three_brokers_dies_under_load_and_no_acknowledged_message_is_lost(
    cluster, serve, gateway_client, database, tmp_path
):
    server = serve(Stack(tmp_path, database, cluster.url))
    server.wait_all_up()
    user = gateway_client(server).new_user(1_000_000)
    with Sends(user, server, threads=4) as sends:
        sends.wait_admitted(100)
        leader(cluster).kill()
        sends.wait_admitted(300, since=len(sends.admitted))
    assert sends.unexpected == []
    expect_sent(server, sends)


@pytest.mark.parametrize("cluster", ["rabbitmq"], indirect=True)
def test_the_node_of_a_classic_queue_dies_under_load_and_what_it_may_have_is_unknown(
    cluster, serve, gateway_client, database, tmp_path
):
    node, *others = [f"127.0.0.1:{server.port}" for server in cluster.servers]
    first = serve(Stack(tmp_path, database, f"amqp://{node}"))  # it declares the queue there
    first.wait_all_up()
    first.stop()
    server = serve(Stack(tmp_path, database, "amqp://" + ",".join([*others, node])))
    server.wait_all_up()
    user = gateway_client(server).new_user(1_000_000)
    for _ in range(3):
        with Sends(user, server, threads=24) as sends:
            sends.wait_admitted(300)
            cluster.servers[0].kill()
            sends.wait_failed(24)
            cluster.servers[0].start()
            sends.wait_admitted(1, since=len(sends.admitted))
        assert sends.unexpected == []
        expect_sent(server, sends)


@pytest.mark.parametrize("cluster", ["kafka"], indirect=True)
def test_a_partition_without_a_leader_does_not_hold_up_the_others(cluster, serve, database, tmp_path):
    create_topic_without_replicas(cluster)
    server = serve(Stack(tmp_path, database, cluster.url), "--roles", "gateway,sender")
    server.wait_all_up()
    for partition in range(len(cluster.servers)):
        expect_put_is_sent(cluster, server, partition)
    cluster.servers[2].kill()
    for _ in range(2):
        expect_put_is_sent(cluster, server, 0)
        expect_put_is_sent(cluster, server, 1)
        wait_until(lambda: leaders(cluster)[2] == -1, "the partition has no leader")
    cluster.servers[2].start()
    expect_put_is_sent(cluster, server, 2)


@pytest.mark.parametrize("cluster", ["nats"], indirect=True)
def test_a_stream_loses_its_end_while_the_connection_to_another_server_stays(
    cluster, serve, gateway_client, database, tmp_path
):
    first = serve(Stack(tmp_path, database, cluster.url.split("?")[0]))
    first.wait_all_up()
    first.stop()
    number, replicas = nats_leader(cluster)
    assert replicas == 1
    holder, other = cluster.servers[number], cluster.servers[(number + 1) % len(cluster.servers)]
    server = serve(Stack(tmp_path, database, other.url))
    server.wait_all_up()
    gateway = gateway_client(server)
    user = gateway.new_user(1000)
    holder.stop()
    holder.copy_messages()
    holder.start()
    expect_sent_in_turn(server, gateway, user, 3)
    wait_until(lambda: nothing_is_pending(holder), "the group has acknowledged all")
    holder.stop()  # it writes down what the group has acknowledged
    holder.put_messages_back()
    holder.start()
    wait_until(lambda: stream_answers(other), "the stream is back")  # no send fails, by which it would be noticed too
    expect_sent_in_turn(server, gateway, user, 6)


def stream_answers(server):
    """Nobody replies while the stream is away, so each attempt is short."""
    try:
        with Wire(server.port, timeout=1) as wire:
            return wire.ask(f"STREAM.INFO.{STREAM}")["state"]
    except (AssertionError, OSError, ValueError):
        return None


def nothing_is_pending(server):
    with server.wire() as wire:
        info = wire.ask(f"CONSUMER.INFO.{STREAM}.{QUEUE}")
    return info["num_pending"] == info["num_ack_pending"] == 0


def expect_sent_in_turn(server, gateway, user, count):
    texts = [new_text() for _ in range(count)]
    for text in texts:
        wait_until(lambda text=text: gateway.send(user, text).status == 200, "it is admitted")
    wait_until(lambda: set(texts) <= set(texts_sent(server)), "all are sent")


def create_topic_without_replicas(cluster):
    """Partition 0 is on broker 1, and so on."""
    places = {number: [number + 1] for number in range(len(cluster.servers))}
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=addresses(cluster))) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=-1, replication_factor=-1, replica_assignments=places,
                                      topic_configs={"min.insync.replicas": "1"})])
    wait_until(lambda: list(leaders(cluster).values()) == [1, 2, 3], "the topic is there")


def addresses(cluster):
    return [server.address for server in cluster.servers]


def leaders(cluster):
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=addresses(cluster))) as admin:
        partitions = admin.describe_topics([TOPIC])[0]["partitions"]
    return {entry["partition"]: entry["leader"] for entry in sorted(partitions, key=lambda entry: entry["partition"])}


def expect_put_is_sent(cluster, server, partition):
    text = new_text()
    value = json.dumps({"userId": "u", "message": text, "messageId": text}).encode()
    with contextlib.closing(kafka.KafkaProducer(bootstrap_servers=addresses(cluster), acks="all")) as producer:
        producer.send(TOPIC, partition=partition, value=value).get(HANG_S)
    wait_until(lambda: text in texts_sent(server), f"what is on partition {partition} is sent")


def expect_sent(server, sends):
    """Everything that was acknowledged is sent, nothing twice, and nothing that was refused as unchanged."""
    with Sends(sends.user, server, threads=1) as last:
        last.wait_admitted(1)  # whatever else is on the bus comes before it
    wanted = {*sends.admitted, *last.admitted}
    wait_until(lambda: wanted <= set(texts_sent(server)), "every acknowledged message is sent")
    sent = collections.Counter(texts_sent(server))
    assert [text for text, times in sent.items() if times > 1] == []
    assert [text for text in sends.unchanged if text in sent] == []
