"""Validation of schema ids: what a broker with a registry takes and refuses, and what it keeps in mind."""

from types import ModuleType
from typing import Any

import pytest
import trio
from confluent_kafka import KafkaError, Producer
from mutants.plant import Rule, assert_noticed
from support.registry import Registry

from trioka.broker.metadata import schema_ids
from trioka.protocol.batch import build
from trioka.protocol.errors import InvalidRecord, RequestTimedOut
from trioka.protocol.record import Record
from trioka.storage.append_validation import record_errors
from trioka.storage.log_config import SchemaIdRules
from trioka.testing import Broker

VALUES = SchemaIdRules(None, "topic")


def frame(number: int, data: bytes = b"x") -> bytes:
    return b"\0" + number.to_bytes(4) + data


def batch(*values: bytes | None, key: bytes | None = None) -> bytes:
    records = [
        Record(offset=index, timestamp=1, key=key, value=value, headers=()) for index, value in enumerate(values)
    ]
    return bytes(build(records))


class World:
    """A registry that a test controls, and the ids that it was asked for."""

    def __init__(self, module: ModuleType, **subjects: str) -> None:
        self.now = 0.0
        self.subjects = {int(number[1:]): frozenset(names.split()) for number, names in subjects.items()}
        self.asked: list[int] = []
        self.is_down = False
        self.module = module
        self.ids: Any = module.SchemaIds(self.lookup, lambda: self.now)

    async def lookup(self, number: int) -> frozenset[str]:
        self.asked.append(number)
        if self.is_down:
            raise self.module.LookupFailed("connection refused")
        return self.subjects.get(number, frozenset())

    def check(self, data: bytes, rules: SchemaIdRules = VALUES) -> None:
        """As the handler does it."""
        unknown = self.ids.unknown("orders", rules, data)
        if unknown:
            trio.run(self.ids.look_up, unknown)
        self.ids.check("orders", rules, data)

    def wrong(self, data: bytes, rules: SchemaIdRules = VALUES) -> list[int]:
        """The records that are refused."""
        with pytest.raises(InvalidRecord) as caught:
            self.check(data, rules)
        return [each.batch_index for each in record_errors(caught.value)]


@pytest.fixture
def module() -> ModuleType:
    return schema_ids


def test_each_record_without_a_registered_id_is_named(module: ModuleType) -> None:
    world = World(module, _1="orders-value", _2="other-value")
    world.check(batch(frame(1), None, frame(1)))  # a tombstone needs none
    assert world.wrong(batch(frame(1), b"no id", b"\0\0\0\0", frame(9), frame(2))) == [1, 2, 3, 4]


def test_keys_have_a_subject_of_their_own(module: ModuleType) -> None:
    world = World(module, _1="orders-value", _2="orders-key")
    rules = SchemaIdRules("topic", None)
    world.check(batch(b"any value", key=frame(2)), rules)
    world.check(batch(b"any value"), rules)
    assert world.wrong(batch(b"any value", key=frame(1)), rules) == [0]


def test_the_strategy_says_which_subjects_count(module: ModuleType) -> None:
    world = World(module, _1="shop.Order", _2="orders-shop.Order")
    world.check(batch(frame(1), frame(2)), SchemaIdRules(None, "record"))
    assert world.wrong(batch(frame(1), frame(2)), SchemaIdRules(None, "topic_record")) == [0]
    assert world.wrong(batch(frame(1), frame(2))) == [0, 1]


def test_a_known_id_is_requested_once_and_a_missing_one_again_after_a_while(module: ModuleType) -> None:
    world = World(module, _1="orders-value")
    for _ in range(3):
        world.check(batch(frame(1)))
        world.wrong(batch(frame(2)))
    assert world.asked == [1, 2]
    world.subjects[2] = frozenset(("orders-value",))
    world.wrong(batch(frame(2)))
    world.now += module.RETRY_S
    world.check(batch(frame(2)))
    assert world.asked == [1, 2, 2]


def test_an_id_is_not_taken_on_trust_while_the_registry_is_down(module: ModuleType) -> None:
    world = World(module, _1="orders-value")
    world.is_down = True
    with pytest.raises(RequestTimedOut, match="connection refused"):
        world.check(batch(frame(1)))
    world.is_down = False
    world.check(batch(frame(1)))
    world.is_down = True
    world.check(batch(frame(1)))


def test_the_cache_and_the_lookups_of_a_request_are_limited(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(module)
    with pytest.raises(RequestTimedOut):
        world.check(batch(*(frame(number) for number in range(1000))))
    assert len(world.asked) == module.MAX_LOOKUPS
    monkeypatch.setattr(module, "MAX_KNOWN", 10)
    world.wrong(batch(*(frame(number) for number in range(2000, 2050))))
    assert len(world.ids._known) <= module.MAX_LOOKUPS


def test_damaged_records_are_left_to_the_log(module: ModuleType) -> None:
    world = World(module)
    whole = batch(frame(1))
    for end in range(0, len(whole), 7):
        assert world.ids.unknown("orders", VALUES, whole[:end]) <= {1}


MISTAKES = [
    (
        'raise RequestTimedOut(f"the schema registry was not reached for id {number}: {self._failure}")',
        "return None",
        test_an_id_is_not_taken_on_trust_while_the_registry_is_down,
    ),
    ("record.value is not None", "True", test_each_record_without_a_registered_id_is_named),
    (
        "known is None or known.expires <= self._now()",
        "known is None",
        test_a_known_id_is_requested_once_and_a_missing_one_again_after_a_while,
    ),
    (
        "subject.startswith(self.prefix) if self.subject is None else subject == self.subject",
        "True",
        test_the_strategy_says_which_subjects_count,
    ),
    ('f"{topic}-{side}"', 'f"{topic}-value"', test_keys_have_a_subject_of_their_own),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(schema_ids, right, wrong, rule)


# -- a broker ----------------------------------------------------------------------------------------------------------


def send(servers: str, topic: str, value: bytes | None, **settings: Any) -> int:
    """The error code of one record; 0 if it was written."""
    results: list[int] = []
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 8000, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    producer.produce(topic, value, on_delivery=lambda error, _: results.append(0 if error is None else error.code()))
    producer.flush(30)
    if "transactional.id" in settings and results == [0]:
        producer.commit_transaction(30)
    (result,) = results
    return result


NO_REGISTRY = "http://127.0.0.1:1"


def test_a_broker_takes_only_registered_ids_on_topics_that_want_them() -> None:
    home = Broker().start()
    try:
        number = Registry(home.registry_url).register("orders-value", '"int"')
        with Broker(confluent_schema_registry_url=f"{NO_REGISTRY},{home.registry_url}") as kafka:
            kafka.create_topic("orders", confluent_value_schema_validation=True)
            kafka.create_topic("free")
            servers = kafka.bootstrap_servers
            for settings in ({}, {"enable.idempotence": True}, {"transactional.id": "t"}, {"compression.type": "lz4"}):
                assert send(servers, "orders", frame(number), **settings) == 0
                assert send(servers, "orders", b"no id", **settings) == KafkaError.INVALID_RECORD
            assert send(servers, "orders", frame(99)) == KafkaError.INVALID_RECORD
            assert send(servers, "orders", None) == 0
            assert send(servers, "free", b"no id") == 0
            home.close()
            assert send(servers, "orders", frame(number)) == 0  # the id is known, the registry not needed
            assert send(servers, "orders", frame(98), **{"message.timeout.ms": 500}) == KafkaError._MSG_TIMED_OUT
            assert len(kafka.records("orders", committed=True)) == 6
    finally:
        home.close()


def test_requests_that_repeat_the_one_before_them_are_checked() -> None:
    with Broker(confluent_schema_registry_url=NO_REGISTRY) as kafka:
        kafka.create_topic("free")
        kafka.create_topic("checked", confluent_value_schema_validation=True)
        errors: list[int] = []
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "acks": 1})

        def delivered(error: KafkaError | None, message: object) -> None:
            errors.append(0 if error is None else error.code())

        for topic in ("free", "checked"):
            for _ in range(50):
                producer.produce(topic, b"no id", on_delivery=delivered)
                producer.flush(30)
        assert errors == [0] * 50 + [KafkaError.INVALID_RECORD] * 50
        assert kafka.records("checked") == []


def test_a_broker_without_a_registry_refuses_what_it_cannot_check() -> None:
    with Broker() as kafka:
        kafka.create_topic("orders", confluent_value_schema_validation=True)
        assert send(kafka.bootstrap_servers, "orders", frame(1)) == KafkaError.INVALID_RECORD
        assert send(kafka.bootstrap_servers, "orders", None) == KafkaError.INVALID_RECORD
