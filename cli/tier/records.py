"""Reads `__remote_log_metadata` to its end, over the Kafka protocol, and replays it as brokers do."""

from collections.abc import Iterable
from typing import Final

from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.cluster.remote_log.codec import decode_record, read_epoch
from trioka.cluster.remote_log.metadata import RemoteLogMetadata, RemotePartition
from trioka.protocol import batch
from trioka.protocol.errors import NONE, ProtocolError, UnknownTopicOrPartition
from trioka.protocol.messages.fetch import FetchRequest

from .. import problems
from ..client.cluster_client import Kafka, TopicPartition
from ..client.offsets import BY_NAME, EARLIEST, LATEST, fetch_topics, offsets_or_fail
from ..terminal.failure import Exit, Failure
from ..terminal.output import write_stderr

READ_BYTES: Final = 4 << 20
WAIT_MS: Final = 500


def read_metadata(kafka: Kafka) -> RemoteLogMetadata:
    """The image as of now: every record that was committed when this was called."""
    topic = next(each for each in kafka.metadata([REMOTE_LOG_METADATA_TOPIC]).topics)
    if topic.error_code not in (NONE, UnknownTopicOrPartition.code):
        raise problems.from_error_code(topic.error_code, f"{REMOTE_LOG_METADATA_TOPIC} cannot be read")
    if topic.error_code != NONE:
        raise Failure(
            f"there is no topic {REMOTE_LOG_METADATA_TOPIC}: no topic of this cluster is tiered",
            exit_code=Exit.NOT_FOUND,
            hints=["trioka topics create NAME --config remote.storage.enable=true"],
        )
    places = [TopicPartition(REMOTE_LOG_METADATA_TOPIC, each.partition_index) for each in topic.partitions]
    offsets = offsets_or_fail(kafka, dict.fromkeys(places, EARLIEST))
    ends = offsets_or_fail(kafka, dict.fromkeys(places, LATEST))
    image = RemoteLogMetadata()
    while behind := [place for place in places if offsets[place] < ends[place]]:
        before = dict(offsets)
        for leader, led in kafka.leaders(behind).items():
            request = _fetch(led, offsets)
            for found in kafka.ask_node(leader, request, at_most=BY_NAME["fetch"]).responses:
                for result in found.partitions:
                    place = TopicPartition(found.topic, result.partition_index)
                    if result.error_code != NONE:
                        raise problems.from_error_code(result.error_code, f"{place} cannot be read")
                    offsets[place] = _replay(image, bytes(result.records or b""), offsets[place])
        if offsets == before:
            raise Failure(f"{REMOTE_LOG_METADATA_TOPIC} cannot be read to its end: {behind[0]} ends early")
    return image


def _fetch(places: Iterable[TopicPartition], offsets: dict[TopicPartition, int]) -> FetchRequest:
    return FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, topics=fetch_topics(places, offsets, READ_BYTES))


def _replay(image: RemoteLogMetadata, data: bytes, offset: int) -> int:
    """Returns the offset behind the last record."""
    for header in batch.headers(data, partial_tail=True):
        for record in () if header.is_control else batch.records(data, header):
            if record.offset >= offset:
                try:
                    image.replay(decode_record(record.value or b""), read_epoch(record.headers))
                except ProtocolError as error:
                    write_stderr(f"the record at {record.offset} is skipped: {error}")
        offset = max(offset, header.next_offset)
    return offset


def of_topics(image: RemoteLogMetadata, names: Iterable[str]) -> list[RemotePartition]:
    """The partitions of these topics, of all without names; ordered. Failure for a topic without records."""
    wanted = set(names)
    found = [partition for partition in image if not wanted or partition.id.topic in wanted]
    for name in sorted(wanted - {partition.id.topic for partition in found}):
        raise Failure(f"the object store has nothing of a topic {name}", exit_code=Exit.NOT_FOUND)
    return sorted(found, key=lambda partition: (partition.id.topic, partition.id.topic_id, partition.id.partition))
