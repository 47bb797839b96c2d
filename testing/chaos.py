"""Chaos: all faults of a broker or a cluster in one object, and random storms of them. Faults of one node of a cluster
take its number: `kafka_chaos.kill(2)`.

with kafka_chaos.storm(seed=7):
    ...                             # the software under test must tolerate these faults
"""

from collections.abc import Callable, Iterable
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from .fault_schedule import RETRIABLE
from .faults import APIS, Armed, ErrorName, Length, unknown

if TYPE_CHECKING:
    from .broker import Broker
    from .cluster import Cluster

SEEDS: Final = 1 << 32
RATE: Final = 0.1
MAX_FAULTS: Final = 100


class Storm:
    """A seeded series of faults, from the start of a block to its end, or until all are used up."""

    def __init__(
        self, broker: "Broker | Cluster", seed: int, rate: float, faults: int, apis: list[str], topic: str | None
    ) -> None:
        self.seed = seed
        self._broker = broker
        self._rate, self._faults, self._apis, self._topic = rate, faults, apis, topic

    def __repr__(self) -> str:
        return f"storm(seed={self.seed})"

    def start(self) -> "Storm":
        self._broker.call(
            "storm", seed=self.seed, rate=self._rate, most=self._faults, apis=self._apis, topic=self._topic
        )
        return self

    def stop(self) -> None:
        if self._broker.is_running:
            self._broker.call("stop_storm")

    def __enter__(self) -> "Storm":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def faults(self) -> list[str]:
        """The faults of the storm so far, one line each."""
        return list(self._broker.call("storm_log"))


class Chaos:
    def __init__(
        self, broker: "Broker | Cluster", choose_seed: Callable[[], int] = lambda: SystemRandom().randrange(SEEDS)
    ) -> None:
        self.broker: Any = broker
        self.storms: list[Storm] = []
        self._choose_seed = choose_seed

    def storm(
        self,
        seed: int | None = None,
        *,
        rate: float = RATE,
        faults: int = MAX_FAULTS,
        apis: Iterable[str] | None = None,
        topic: str | None = None,
    ) -> Storm:
        """Give one request in `1 / rate` a fault that clients must tolerate, chosen by the seed; at most `faults`.
        Without a seed, each storm has a new one; the pytest plugin prints it when a test fails.
        """
        wanted = list(RETRIABLE if apis is None else apis)
        for name in wanted:
            if name not in RETRIABLE:
                raise ValueError(unknown("API", name, APIS) if name not in APIS else f"a storm leaves {name} alone")
        if not 0 < rate <= 1 or faults < 1:
            raise ValueError(f"rate={rate}, faults={faults}: a storm has a rate of up to 1, and at least one fault")
        storm = Storm(self.broker, self._choose_seed() if seed is None else seed, rate, faults, wanted, topic)
        self.storms.append(storm)
        return storm

    def fail(self, api: str, error: ErrorName, *, topic: str | None = None, count: int | None = 1) -> Armed:
        armed: Armed = self.broker.fail(api, error, topic=topic, count=count)
        return armed

    def delay(self, api: str, by: Length, *, topic: str | None = None, count: int | None = 1) -> Armed:
        armed: Armed = self.broker.delay(api, by, topic=topic, count=count)
        return armed

    def drop(self, api: str, *, topic: str | None = None, count: int | None = 1, done: bool = False) -> Armed:
        armed: Armed = self.broker.drop(api, topic=topic, count=count, done=done)
        return armed

    def cut(self, *nodes: int) -> None:
        self.broker.cut(*nodes)

    def heal(self) -> None:
        self.broker.heal()

    def disk_full(self, *node: int) -> None:
        self.broker.disk_full(*node)

    def slow_disk(self, by: Length = "50ms") -> None:
        self.broker.slow_disk(by)

    def flip_bit(self, topic: str, partition: int = 0, *, byte: int = -1, bit: int = 0, **node: int) -> None:
        self.broker.flip_bit(topic, partition, byte=byte, bit=bit, **node)

    def tear(self, topic: str, partition: int = 0, *, lost: int = 1, **node: int) -> None:
        self.broker.tear(topic, partition, lost=lost, **node)

    def kill(self, *node: int) -> None:
        self.broker.kill(*node)

    def pause(self) -> None:
        self.broker.pause()

    def resume(self) -> None:
        self.broker.resume()

    @property
    def summary(self) -> str:
        """For the report of a failed test: how to reproduce its storms."""
        return "\n".join(f"kafka_chaos.storm(seed={storm.seed})" for storm in self.storms)
