"""Faults by API: the faults that a test arms, and the number of their strikes.

A fault is armed and then strikes the next `count` requests of its API (those that name its topic, if it has one).
Several may be armed for one API: the first that has strikes left strikes. This module is pure;
`testing/fault_injection.py` applies a strike to a request.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import timedelta
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from trioka.broker.api import SUPPORTED_APIS
from trioka.cli.terminal.failure import did_you_mean
from trioka.cli.terminal.time_parsing import parse_duration_ms
from trioka.protocol.errors import BY_CODE, KafkaError
from trioka.protocol.lazy_dataclass import frozen

if TYPE_CHECKING:
    from .api_faults import ApiFaults

Length = str | float | timedelta
"""A length of time: "200ms", "8d", seconds as a number, or a timedelta."""

ErrorName = str | int | type[KafkaError] | KafkaError
"""An error in a test: Kafka's name, its code, or its class."""

APIS: Final[Mapping[str, int]] = {
    "".join(word.capitalize() for word in served.name.split("_")): key for key, served in SUPPORTED_APIS.items()
}
"""Kafka's names of the APIs that a broker serves: Produce, ListOffsets, InitProducerId …"""

ERRORS: Final[Mapping[str, type[KafkaError]]] = {error.name: error for error in BY_CODE.values()}
"""Kafka's names of its errors: NOT_LEADER_OR_FOLLOWER …"""

WAIT_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.005


class Effect(Enum):
    FAIL = "answers"
    DELAY = "delays"
    DROP = "drops"


@frozen
class Fault:
    """`count` None: until it is disarmed. `is_done`: the request is executed, and only its response is dropped."""

    api: str
    effect: Effect
    topic: str | None = None
    count: int | None = 1
    error: str = ""
    delay_s: float = 0.0
    is_done: bool = False

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise ValueError(unknown("API", self.api, APIS))
        if self.effect is Effect.FAIL and self.error not in ERRORS:
            raise ValueError(unknown("error", self.error, ERRORS))
        if self.count is not None and self.count < 1:
            raise ValueError(f"count={self.count}: a fault strikes at least once; None is for ever")
        if self.delay_s < 0:
            raise ValueError("a delay is not negative")

    def __str__(self) -> str:
        what = {
            Effect.FAIL: f"fails with {self.error}",
            Effect.DELAY: f"waits for {self.delay_s:g} s",
            Effect.DROP: "is carried out, and its answer dropped" if self.is_done else "is dropped",
        }[self.effect]
        return f"{self.api}{f' of {self.topic}' if self.topic else ''} {what}"

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "effect": self.effect.name}

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "Fault":
        return cls(**{**said, "effect": Effect[said["effect"]]})


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence, with a suggestion if there is one."""
    near = did_you_mean(name, known)
    if not near:  # users may write a known name in another form
        plain = {each.replace("_", "").lower(): each for each in known}
        found = plain.get(name.replace("_", "").lower())
        near = [] if found is None else [f"did you mean: {found}?"]
    return f"there is no {kind} '{name}' here{f'; {near[0]}' if near else '.'}"


def error_name(error: ErrorName) -> str:
    """Kafka's name of an error."""
    if isinstance(error, bool | int):
        if error not in BY_CODE:
            raise ValueError(f"Kafka has no error {error}.")
        return BY_CODE[error].name
    return error if isinstance(error, str) else error.name


def seconds_of(length: Length) -> float:
    if isinstance(length, timedelta):
        return length.total_seconds()
    return parse_duration_ms(length) / 1000 if isinstance(length, str) else float(length)


class Faults:
    """The faults that are armed on one broker, by number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._armed: dict[int, Fault] = {}
        self._strikes: dict[int, int] = {}  # kept when a fault is disarmed: the test may still read it

    def __bool__(self) -> bool:
        return bool(self._armed)

    def arm(self, fault: Fault) -> int:
        number = next(self._numbers)
        self._armed[number] = fault
        self._strikes[number] = 0
        return number

    def disarm(self, number: int) -> None:
        self._armed.pop(number, None)

    def disarm_all(self) -> None:
        self._armed.clear()

    def strikes(self, number: int) -> int:
        return self._strikes[number]

    @property
    def keys(self) -> set[int]:
        """The APIs for which a fault is armed."""
        return {APIS[fault.api] for fault in self._armed.values()}

    @property
    def armed(self) -> list[tuple[Fault, int]]:
        """The armed faults, with their strikes."""
        return [(fault, self._strikes[number]) for number, fault in self._armed.items()]

    def meet(self, key: int, is_about: Callable[[str], bool]) -> tuple[int, Fault] | None:
        """The fault for a request of this API. It does not count the strike."""
        for number, fault in self._armed.items():
            if APIS[fault.api] == key and (fault.topic is None or is_about(fault.topic)):
                return number, fault
        return None

    def strike(self, number: int) -> bool:
        """Count a strike. False if the fault was used up or disarmed meanwhile."""
        fault = self._armed.get(number)
        if fault is None:
            return False
        self._strikes[number] += 1
        if fault.count is not None and self._strikes[number] >= fault.count:
            del self._armed[number]
        return True


class Armed:
    """A fault that a test has armed. As a context manager it disarms it at the end of the block."""

    def __init__(self, host: "ApiFaults", number: int, fault: Fault) -> None:
        self._host = host
        self._number = number
        self._fault = fault

    def __repr__(self) -> str:
        return f"<{self._fault}>"

    @property
    def strikes(self) -> int:
        """The number of requests it has struck so far."""
        return int(self._host.call("strikes", number=self._number))

    def disarm(self) -> None:
        self._host.call("disarm", number=self._number)

    def __enter__(self) -> "Armed":
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()
