"""The topic `_schemas` under failures: lost responses, a restart, a takeover, a deleted topic."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from trioka.gateway.registry.changes import delete_subject
from trioka.gateway.registry.errors import RegistryError
from trioka.gateway.registry.register import Registered, SchemaRequest, register
from trioka.gateway.registry.state import RegistryState
from trioka.gateway.registry.store import SchemaStore
from trioka.testing import Broker


@contextmanager
def store_on(kafka: Broker, timeout_s: float = 30.0) -> Iterator[SchemaStore]:
    store = SchemaStore(kafka.client_config("confluent-kafka"), "_schemas", replicas=3, timeout_s=timeout_s)
    store.start()
    try:
        yield store
    finally:
        store.stop()


def add(store: SchemaStore, subject: str, kind: str = "int") -> Registered:
    return store.write(lambda state: register(state, subject, SchemaRequest(f'"{kind}"')))


def subjects(store: SchemaStore) -> list[str]:
    store.catch_up()
    return store.read(RegistryState.subjects)


def test_a_write_whose_commit_is_not_answered_is_made_once(kafka: Broker) -> None:
    with store_on(kafka, timeout_s=2.0) as store:
        add(store, "before")
        kafka.drop("EndTxn", done=True)
        assert add(store, "a").schema.version == 1
        kafka.drop("EndTxn", done=True)
        change = store.write(lambda state: delete_subject(state, "a", permanent=False))
        assert change.body == [1]  # and not the refusal of a second deletion
        assert subjects(store) == ["before"]


def test_a_store_that_was_overtaken_takes_over_again(kafka: Broker) -> None:
    with store_on(kafka) as one, store_on(kafka) as two:
        assert [add(each, f"subject-{number}", "int" if number % 2 else "long").schema.id for number, each in
                enumerate((one, two, one, two, one))] == [1, 2, 1, 2, 1]  # fmt: skip
        assert subjects(one) == subjects(two) == [f"subject-{number}" for number in range(5)]


def test_a_decision_is_made_on_what_the_other_store_has_written(kafka: Broker) -> None:
    with store_on(kafka) as one, store_on(kafka) as two:
        add(one, "a")
        two.catch_up()
        one.write(lambda state: delete_subject(state, "a", permanent=False))
        with pytest.raises(RegistryError) as caught:
            two.write(lambda state: delete_subject(state, "a", permanent=False))
        assert caught.value.code == 40404


def test_a_store_outlives_a_restart_of_the_broker(kafka: Broker) -> None:
    with store_on(kafka) as store:
        add(store, "a")
        kafka.restart()
        assert add(store, "b", "long").schema.id == 2
        assert subjects(store) == ["a", "b"]


def test_records_that_are_none_are_skipped(kafka: Broker) -> None:
    kafka.create_topic("_schemas", cleanup_policy="compact")
    kafka.produce("_schemas", b"no JSON", key=b"no JSON")
    kafka.produce("_schemas", None, key=b'{"keytype":"NOOP","magic":0}')
    with store_on(kafka) as store:
        assert add(store, "a").schema.id == 1


def test_the_last_offset_of_the_topic_is_a_record_and_no_marker(kafka: Broker) -> None:
    """Karapace writes nothing before it has read the last offset."""
    with store_on(kafka) as store:
        add(store, "a")
        add(store, "b", "long")
    offsets = [each.offset for each in kafka.records("_schemas", 0)]
    consumer = Consumer({**kafka.client_config("confluent-kafka"), "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition("_schemas", 0), 30) == (0, offsets[-1] + 1)
    consumer.close()


def test_a_topic_with_several_partitions_is_refused(kafka: Broker) -> None:
    kafka.create_topic("_schemas", 2, cleanup_policy="compact")
    with store_on(kafka, timeout_s=1.0) as store:
        with pytest.raises(RegistryError) as caught:
            subjects(store)
        assert caught.value.code == 50002
        assert "2 partitions" in str(store.not_ready())


def test_a_topic_that_is_deleted_does_not_become_an_empty_registry(kafka: Broker) -> None:
    with store_on(kafka, timeout_s=1.0) as store:
        add(store, "a")
        admin = AdminClient(kafka.client_config("confluent-kafka"))
        admin.delete_topics(["_schemas"])["_schemas"].result(30)
        while "deleted" not in str(store.not_ready()):
            with suppress(RegistryError):
                store.catch_up()
        with pytest.raises(RegistryError):
            add(store, "b", "long")


def test_an_id_is_not_given_again_when_a_record_was_not_read_back_in_time(kafka: Broker) -> None:
    """Such a write fails for its client, and yet the schema may be in the topic."""

    def write(subject: str, number: int) -> Registered:
        request = SchemaRequest(f'{{"type":"fixed","name":"F","size":{number}}}')
        return store.write(lambda state: register(state, subject, request))

    with store_on(kafka, timeout_s=1.0) as store:
        write("before", 1)
        refused = 0
        with kafka.delay("Fetch", "2s", count=None):
            for number in range(2, 6):
                try:
                    write(f"subject-{number}", number)
                except RegistryError:
                    refused += 1
        assert refused
        found: dict[int, Registered] = {}
        while len(found) < 4:
            with suppress(RegistryError):
                found[len(found) + 2] = write(f"subject-{len(found) + 2}", len(found) + 2)
        assert len({each.schema.id for each in found.values()} | {1}) == 5


def test_a_schema_that_another_store_has_deleted_is_not_found_registered(kafka: Broker) -> None:
    may_read = threading.Event()
    may_read.set()

    class HeldStore(SchemaStore):
        def _poll(self, consumer: Consumer) -> None:
            may_read.wait()
            super()._poll(consumer)

    held = HeldStore(kafka.client_config("confluent-kafka"), "_schemas", replicas=3, timeout_s=30.0)
    held.start()
    with ExitStack() as stack:
        stack.callback(held.stop)
        other, pool = stack.enter_context(store_on(kafka)), stack.enter_context(ThreadPoolExecutor(1))
        add(held, "a")
        may_read.clear()
        other.write(lambda state: delete_subject(state, "a", permanent=False))
        added = pool.submit(add, held, "a")
        wait([added], timeout=0.5)  # it must not end yet
        may_read.set()
        assert added.result(30).schema.version == 2
