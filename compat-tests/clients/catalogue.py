"""All clients by name, each started on first use and kept until the end, because most starts are slow."""

from collections.abc import Callable, Mapping

import toolchains

from .aio_kafka import AioKafka
from .client import Client
from .confluent import Confluent
from .kafka_python import KafkaPython
from .patience import patient
from .program import Program, ProgramClient

# Sarama's versions follow from a setting. Its own default speaks the oldest dialects that a Kafka of today understands.
SARAMA_DEFAULT_VERSION = "2.1.0"
END_FOR_NONE = {"no offset": "answers with the end of the log when no record is that late."}


def _java(bootstrap: str) -> Client:
    return ProgramClient("java", Program([*toolchains.java_client(), bootstrap]))


def _old_java(bootstrap: str) -> Client:
    return ProgramClient("java-2.8", Program([*toolchains.java_client(old=True), bootstrap]))


def _franz(bootstrap: str) -> Client:
    return ProgramClient("franz-go", Program([*toolchains.go_program("franz"), bootstrap]), lacks=END_FOR_NONE)


def _sarama(bootstrap: str) -> Client:
    return ProgramClient("sarama", Program([*toolchains.go_program("sarama"), bootstrap]))


def _sarama_default(bootstrap: str) -> Client:
    command = [*toolchains.go_program("sarama"), bootstrap, SARAMA_DEFAULT_VERSION]
    return ProgramClient("sarama-default", Program(command), alters_incrementally=False)


def _kafkajs(bootstrap: str) -> Client:
    command, environment = toolchains.kafkajs()
    program = Program([*command, bootstrap], environment)
    lacks = END_FOR_NONE | {
        "null headers": "fails on a header without a value.",
        "hear of offsets that are out of range": "looks at the offsets itself, and asks for nothing wrong.",
    }
    return ProgramClient("kafkajs", program, lacks=lacks, alters_incrementally=False)


STARTERS: Mapping[str, Callable[[str], Client]] = {
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "confluent-kafka": Confluent,
    "java": _java,
    "java-2.8": _old_java,
    "franz-go": _franz,
    "sarama": _sarama,
    "sarama-default": _sarama_default,
    "kafkajs": _kafkajs,
}


class Catalogue:
    """The clients of one broker. `is_late`: the broker confirms changes before they are visible."""

    def __init__(self, bootstrap: str, *, is_late: bool = False) -> None:
        self._bootstrap = bootstrap
        self._started: dict[str, Client] = {}
        self._observer = Confluent(bootstrap) if is_late else None

    def __getitem__(self, name: str) -> Client:
        if name in self._started and not self._started[name].is_alive:
            self._started.pop(name).close()
        if name not in self._started:
            client = STARTERS[name](self._bootstrap)
            self._started[name] = patient(client, self._observer) if self._observer else client
        return self._started[name]

    def close(self) -> None:
        while self._started:
            _, client = self._started.popitem()
            client.close()
        if self._observer:
            self._observer.close()
