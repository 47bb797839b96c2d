"""`trioka pipeline new --topic T`: a file in the short form, with the schema that samples of the topic have."""

from pathlib import Path

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from .declaration.inference import NotJson, infer
from .errors import InvalidPipeline
from .installation.cache import Unreachable
from .sources.broker_view import BrokerView
from .sources.brokers import Brokers

SAMPLES = 200
SAMPLE_TIMEOUT_MS = 3000
TEXT = """\
# Written by `trioka pipeline new` from {count} records. Check it: trioka pipeline check {file}
name = "{name}"

[source]
topics = ["{topic}"]
bootstrap = "{bootstrap}"

[decode]
format = "json"
schema = \"\"\"
{schema}
\"\"\"

# [validate]
# "an amount is above zero" = "amount > 0"

[sink]
kind = "iceberg"
warehouse = "warehouse"
table = "main.{table}"

[dead_letters]
kind = "iceberg"
warehouse = "warehouse"
table = "main.{table}_refused"
"""


def new_pipeline(topic: str, bootstrap: str, file: Path) -> str:
    """Write the file; returns its text. An existing file is not changed."""
    if file.exists():
        raise InvalidPipeline(f"{file} exists already; name another file by --output.")
    values = sampled(topic, bootstrap)
    try:
        schema = infer(values)
    except NotJson as reason:
        raise InvalidPipeline(
            f"No schema can be inferred from the topic '{topic}': {reason}. For Avro and Protobuf, write [decode] by "
            "hand: see docs/PIPELINES.md."
        ) from None
    table = "".join(letter if letter.isalnum() else "_" for letter in topic.lower())
    text = TEXT.format(
        count=len(values), file=file.name, name=topic, topic=topic, bootstrap=bootstrap, schema=schema, table=table
    )
    try:
        file.write_text(text)
    except OSError as error:
        raise InvalidPipeline(f"{file} cannot be written: {error.strerror}.") from None
    return text


def sampled(topic: str, bootstrap: str) -> list[bytes | None]:
    """The newest records of each partition, a few hundred in all."""
    with BrokerView(Brokers(bootstrap=bootstrap)) as view:
        there = view.partitions()
        if topic not in there:
            raise InvalidPipeline(view.missing(topic, there))
    places = [TopicPartition(topic, one) for one in there[topic]]
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","), group_id=None, consumer_timeout_ms=SAMPLE_TIMEOUT_MS
        )
        try:
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            begins = consumer.beginning_offsets(places)
            each = max(1, SAMPLES // len(places))
            waiting = {}
            for place in places:
                begin = max(begins[place], ends[place] - each)
                consumer.seek(place, begin)
                if begin < ends[place]:
                    waiting[place] = ends[place]
            found: list[bytes | None] = []
            # The last offset may be a marker of a transaction, so the timeout ends the loop, too.
            for record in consumer:
                place = TopicPartition(record.topic, record.partition)
                found.append(record.value)
                if record.offset + 1 >= waiting.get(place, 0):
                    waiting.pop(place, None)
                if not waiting or len(found) >= SAMPLES:
                    break
        finally:
            consumer.close()
    except KafkaError as error:
        raise Unreachable(f"The topic '{topic}' cannot be read from {bootstrap}: {error}.") from None
    if not found:
        raise InvalidPipeline(f"The topic '{topic}' has no records, so there is nothing to infer a schema from.")
    return found
