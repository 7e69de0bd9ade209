"""A private Kafka (of tests/engines: a real broker, or librdkafka's mock) and python3-kafka on its wire."""

import contextlib
import uuid
import warnings

with warnings.catch_warnings():  # from the copy of six that comes with python3-kafka
    warnings.simplefilter("ignore")
    import kafka

from engines import kafka as engine
from engines.waiting import HANG_S

TOPIC = "sms-outbound"
DLQ = "sms-outbound.dlq"


class Kafka(engine.Kafka):
    def read(self, topic=TOPIC, wait_s=HANG_S):
        """Returns everything that is on a topic now, as python3-kafka's records."""
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.address, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
        )
        with contextlib.closing(consumer):
            partitions = [kafka.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
            ends = consumer.end_offsets(partitions) if partitions else {}
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            records = []
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                fetched = consumer.poll(timeout_ms=int(wait_s * 1000))
                assert fetched, f"{topic} ends at {ends}, and nothing more came"
                records += [record for batch in fetched.values() for record in batch]
            return records

    def partitions(self, topic=TOPIC):
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.address)
        with contextlib.closing(consumer):
            return consumer.partitions_for_topic(topic) or set()

    def group(self, name):
        """Returns the state of a consumer group, and how many members it has."""
        with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=self.address)) as admin:
            (described,) = admin.describe_consumer_groups([name])
            return described.state, len(described.members)

    def write(self, *values, topic=TOPIC, key=None):
        """Writes as a foreign producer would: no headers, no message id."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.address, acks="all", max_request_size=4_000_000)
        with contextlib.closing(producer):
            for value in values:
                producer.send(topic, value=value, key=key or uuid.uuid4().bytes).get(HANG_S)
