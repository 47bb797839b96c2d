"""Two registries on three brokers that are killed one after the other: no id twice, and no acknowledged schema lost."""

import http.client
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.gateway import GatewayUnderTest
from support.registry import Registry

from trioka.testing.cluster import Cluster

WORDS = ("--registry", "--grpc", "off", "--override", "cluster.request.timeout.ms=2000")
ATTEMPTS = 40
COUNT = 12  # schemas of each writer between two kills


def text_of(writer: int, number: int) -> str:
    """Every third schema is one that both writers register."""
    name = "Shared" if number % 3 == 0 else f"Of{writer}"
    return f'{{"type":"fixed","name":"{name}","size":{number + 1}}}'


class Writer:
    """Registers schemas until each is answered."""

    def __init__(self, which: int, registry: Registry) -> None:
        self._which, self._registry = which, registry
        self._next = 0
        self.ids: dict[str, int] = {}  # by text
        self.failure: BaseException | None = None

    def write(self, half_done: Callable[[], None]) -> None:
        try:
            for step in range(COUNT):
                self._register(self._next)
                self._next += 1
                if step == COUNT // 2:
                    half_done()
        except BaseException as error:
            self.failure = error

    def _register(self, number: int) -> None:
        text, answers = text_of(self._which, number), []
        for _ in range(ATTEMPTS):
            try:
                status, found = self._registry("POST", f"/subjects/s{number}-{self._which}/versions", {"schema": text})
            except (OSError, http.client.HTTPException) as error:
                answers.append(str(error))
                continue
            if status == 200:
                assert self.ids.setdefault(text, found["id"]) == found["id"]
                return
            assert status >= 500, found
            answers.append(found)
        raise AssertionError(f"{text} was never registered: {answers[-3:]}")


def register_while_brokers_are_killed(kills: int) -> None:
    with Cluster() as kafka:
        kafka.create_topic("_schemas", 1, cleanup_policy="compact", min_insync_replicas=2)
        with (
            GatewayUnderTest(kafka.bootstrap_servers, *WORDS) as one,
            GatewayUnderTest(kafka.bootstrap_servers, *WORDS) as two,
        ):
            writers = [Writer(which, Registry(each.http)) for which, each in enumerate((one, two))]
            for _ in range(kills):
                victim = kafka.leader("_schemas")
                both = threading.Barrier(2, action=lambda number=victim: kafka.kill(number))  # type: ignore[misc]
                threads = [threading.Thread(target=each.write, args=(both.wait,)) for each in writers]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert [each.failure for each in writers] == [None, None]
                kafka.start(victim)
                kafka.wait_healthy()
            with GatewayUnderTest(kafka.bootstrap_servers, *WORDS) as fresh:
                check([Registry(each.http) for each in (one, two, fresh)], [each.ids for each in writers])


def check(registries: list[Registry], ids: list[dict[str, int]]) -> None:
    shared = ids[0].keys() & ids[1].keys()
    assert shared and all(ids[0][text] == ids[1][text] for text in shared)
    by_text = ids[0] | ids[1]
    assert len(set(by_text.values())) == len(by_text)
    listed: list[Any] = []
    for registry in registries:
        status, found = registry("GET", "/schemas")
        assert status == 200, found
        listed.append(found)
        assert {each["schema"]: each["id"] for each in found} == by_text
        assert len({(each["subject"], each["version"]) for each in found}) == len(found)
        assert {each["version"] for each in found} == {1}  # what was repeated was not registered twice
    assert listed[0] == listed[1] == listed[2]


@pytest.mark.nightly
def test_two_registries_lose_no_schema_and_give_no_id_twice_when_a_broker_is_killed() -> None:
    register_while_brokers_are_killed(1)


@pytest.mark.nightly
def test_two_registries_lose_no_schema_and_give_no_id_twice_when_brokers_are_killed_in_turn() -> None:
    register_while_brokers_are_killed(6)
