"""Chaos: every fault of a broker in one hand, and a storm of them.

with kafka_chaos.storm(seed=7):
    ...                             # the software under test gets through this, or has a bug
"""

from collections.abc import Callable, Iterable
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from .faults import APIS, Armed, ErrorName, Length, unknown
from .weather import RETRIABLE

if TYPE_CHECKING:
    from .broker import Broker

SEEDS: Final = 1 << 32
RATE: Final = 0.1
MOST: Final = 100


class Storm:
    """A seeded series of faults, from the start of a block to its end, or until all are used up."""

    def __init__(
        self, broker: "Broker", seed: int, rate: float, faults: int, apis: list[str], topic: str | None
    ) -> None:
        self.seed = seed
        self._broker = broker
        self._rate, self._faults, self._apis, self._topic = rate, faults, apis, topic

    def __repr__(self) -> str:
        return f"storm(seed={self.seed})"

    def start(self) -> "Storm":
        self._broker.tell(
            "storm", seed=self.seed, rate=self._rate, most=self._faults, apis=self._apis, topic=self._topic
        )
        return self

    def stop(self) -> None:
        if self._broker.is_running:
            self._broker.tell("calm")

    def __enter__(self) -> "Storm":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def faults(self) -> list[str]:
        """What it has done so far, one line for each fault."""
        return list(self._broker.tell("storm_log"))


class Chaos:
    def __init__(
        self, broker: "Broker", choose_seed: Callable[[], int] = lambda: SystemRandom().randrange(SEEDS)
    ) -> None:
        self.broker = broker
        self.storms: list[Storm] = []
        self._choose_seed = choose_seed

    def storm(
        self,
        seed: int | None = None,
        *,
        rate: float = RATE,
        faults: int = MOST,
        apis: Iterable[str] | None = None,
        topic: str | None = None,
    ) -> Storm:
        """One request in `1 / rate` meets a fault that clients must get over, chosen by the seed; `faults` at most. The
        pytest plugin prints the seed when a test fails; without one it is a new one each time."""
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
        return self.broker.fail(api, error, topic=topic, count=count)

    def delay(self, api: str, by: Length, *, topic: str | None = None, count: int | None = 1) -> Armed:
        return self.broker.delay(api, by, topic=topic, count=count)

    def drop(self, api: str, *, topic: str | None = None, count: int | None = 1, done: bool = False) -> Armed:
        return self.broker.drop(api, topic=topic, count=count, done=done)

    def cut(self) -> None:
        self.broker.cut()

    def heal(self) -> None:
        self.broker.heal()

    def disk_full(self) -> None:
        self.broker.disk_full()

    def slow_disk(self, by: Length = "50ms") -> None:
        self.broker.slow_disk(by)

    def flip_bit(self, topic: str, partition: int = 0, *, byte: int = -1, bit: int = 0) -> None:
        self.broker.flip_bit(topic, partition, byte=byte, bit=bit)

    def kill(self) -> None:
        self.broker.kill()

    def pause(self) -> None:
        self.broker.pause()

    def resume(self) -> None:
        self.broker.resume()

    @property
    def summary(self) -> str:
        """For the report of a test that fails: how to have the same storms again."""
        return "\n".join(f"kafka_chaos.storm(seed={storm.seed})" for storm in self.storms)
