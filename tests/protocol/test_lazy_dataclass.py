"""Our data classes behave as those of `dataclasses` do.

Each class body of a table is made by both. What can be done with a class and its objects is done with both, and every
answer is kept, be it a value or an exception with its words: the two transcripts must be the same.
"""

import copy
import dataclasses
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from itertools import product
from math import nan
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from trioka.protocol.lazy_dataclass import INTERPRETED_CALLS, frozen, mutable

T = TypeVar("T")

METHODS = ("__init__", "__eq__", "__hash__")

Decorate = Callable[[Any], Any]
Body = Callable[[Decorate], Any]


def several(decorate: Decorate) -> Any:
    @decorate
    class Several:
        """With words."""

        KIND: ClassVar[int] = 7
        name: str
        port: int = 9092
        rack: "str | None" = None

        def twice(self) -> int:
            return self.port * 2

    return Several


def none_at_all(decorate: Decorate) -> Any:
    @decorate
    class Nothing:
        pass

    return Nothing


def only_one(decorate: Decorate) -> Any:
    @decorate
    class One:
        value: object

    return One


def special_fields(decorate: Decorate) -> Any:
    @decorate
    class Special:
        first: int = 1
        salt: str = field(repr=False, default="s")
        epoch: int = field(default=0, compare=False)
        seen: int = field(default=0, hash=False)
        owned: list[int] = field(default_factory=lambda: [1])

    return Special


def checks_itself(decorate: Decorate) -> Any:
    @decorate
    class Checked:
        first: int
        last: int = 10

        def __post_init__(self) -> None:
            if self.first > self.last:
                raise ValueError(f"{self.first} > {self.last}")

    return Checked


def generic(decorate: Decorate) -> Any:
    @decorate
    class Box(Generic[T]):
        content: T
        count: int = 0

    return Box


def inherits(decorate: Decorate) -> Any:
    @decorate
    class Parent:
        name: str
        port: int = 1

    @decorate
    class Child(Parent):
        port: int = 2
        host: str = "h"

    return Child


def inherits_without_a_word(decorate: Decorate) -> Any:
    class Silent(several(decorate)):  # type: ignore[misc]
        def __init__(self, **values: Any) -> None:
            super().__init__(**{"rack": "silent", **values})

    return Silent


def has_its_own(decorate: Decorate) -> Any:
    @decorate
    class Own:
        name: str = "n"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int)

        def __repr__(self) -> str:
            return "own"

    return Own


def has_its_own_hash(decorate: Decorate) -> Any:
    @decorate
    class Hashed:
        name: str = "n"

        def __hash__(self) -> int:
            return 5

    return Hashed


NAMED: Sequence[Mapping[str, Any]] = [
    {"name": "a"},
    {"name": "a", "port": 2},
    {"name": "b"},
    {},
    {"name": "a", "no": 1},
]
# From Python 3.13 on, `dataclasses` compares field by field, so that two objects with the same NaN differ. Ours compare
# tuples on every Python, as `dataclasses` did before.
NOT_A_NUMBER: list[dict[str, Any]] = [{"value": nan}] if sys.version_info < (3, 13) else []

TABLE: Sequence[tuple[Body, Sequence[Mapping[str, Any]]]] = [
    (several, [*NAMED, {"name": "a", "rack": "r"}]),
    (none_at_all, [{}, {"no": 1}]),
    (only_one, [{"value": 1}, *NOT_A_NUMBER, {"value": (1,)}, {"value": [1]}]),
    (
        special_fields,
        [{}, {"first": 2}, {"salt": "t"}, {"epoch": 5}, {"seen": 5}, {"owned": ()}, {"owned": (), "seen": 5}],
    ),
    (checks_itself, [{"first": 1}, {"first": 11}, {"first": 11, "last": 12}]),
    (generic, [{"content": 1}, {"content": "1", "count": 3}]),
    (inherits, NAMED),
    (inherits_without_a_word, NAMED),
    (has_its_own, [{}, {"name": "m"}]),
    (has_its_own_hash, [{}, {"name": "m"}]),
]


def outcome(act: Callable[..., Any], *arguments: Any, **values: Any) -> Any:
    """The result: a value, or an exception and its words. Objects are compared by their text."""
    try:
        found = act(*arguments, **values)
    except Exception as error:
        return type(error), str(error)
    return found if isinstance(found, bool | type(NotImplemented)) else repr(found)


def transcript(cls: Any, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What the class says of itself; then its objects, alone and in pairs."""
    result: list[Any] = [cls.__name__, cls.__qualname__, cls.__module__, getattr(cls, "__match_args__", None)]
    result += [(f.name, f.default, f.repr, f.compare, f.hash, f.kw_only) for f in dataclasses.fields(cls)]
    result += [outcome(cls, 1), *(outcome(cls, **call) for call in calls)]
    possible = [call for call in calls if not isinstance(outcome(cls, **call), tuple)]
    objects = [cls(**call) for call in possible]
    for one, other in product([*objects, 1], [*objects, subclassed(cls, possible[0]), None, 1]):
        result += [one == other, one != other]
        if isinstance(one, cls):  # of anything else it is not asked, and what it says depends on the version of Python
            result.append(outcome(cls.__eq__, one, other))
        result.append(outcome(lambda one, other: hash(one) == hash(other), one, other))
    for each in objects:
        result += [
            hasattr(each, "__dict__"),
            outcome(dataclasses.asdict, each),
            outcome(dataclasses.replace, each, no=1),
        ]
        result += [outcome(copy.copy, each), outcome(copy.deepcopy, each), copy.copy(each) == each]
        for name in [f.name for f in dataclasses.fields(each)]:
            result.append(outcome(dataclasses.replace, each, **{name: 11}))
            result += [outcome(setattr, each, name, 12), outcome(repr, each), outcome(delattr, each, name)]
            result += [outcome(getattr, each, name), outcome(setattr, each, name, 13)]
    return result


def subclassed(cls: Any, call: Mapping[str, Any]) -> Any:
    """Equal in all fields, and of another class."""
    return type("Subclass", (cls,), {})(**call)


@pytest.mark.parametrize(("body", "calls"), TABLE, ids=[body.__name__ for body, _ in TABLE])
def test_a_frozen_class_does_what_a_frozen_dataclass_does(body: Body, calls: Sequence[Mapping[str, Any]]) -> None:
    standard = dataclass(frozen=True, slots=True, kw_only=True)
    assert transcript(body(frozen), calls) == transcript(body(standard), calls)


@pytest.mark.parametrize(("body", "calls"), TABLE, ids=[body.__name__ for body, _ in TABLE])
def test_a_mutable_class_does_what_a_dataclass_does(body: Body, calls: Sequence[Mapping[str, Any]]) -> None:
    standard = dataclass(slots=True, kw_only=True)
    assert transcript(body(mutable), calls) == transcript(body(standard), calls)


def test_the_transcript_tells_the_two_kinds_apart() -> None:
    calls = [{"name": "a"}]
    assert transcript(several(frozen), calls) != transcript(several(mutable), calls)


@frozen
class Address:
    """A class with a docstring."""

    host: str
    port: int = 9092
    tags: tuple[str, ...] = ()


def test_what_was_pickled_comes_back_equal_and_frozen() -> None:
    back = pickle.loads(pickle.dumps(Address(host="h", tags=("a",))))
    assert back == Address(host="h", tags=("a",))
    with pytest.raises(FrozenInstanceError):
        back.port = 1


def test_a_frozen_object_gets_no_new_attribute_either() -> None:
    # That of `dataclasses` stumbles here, over the class that it has replaced by one with slots.
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'unknown'"):
        Address(host="h").unknown = 1  # type: ignore[attr-defined]


def test_a_class_keeps_its_docstring() -> None:
    assert Address.__doc__ == "A class with a docstring."


def test_each_object_gets_a_new_default_and_a_shared_one_is_refused() -> None:
    made = special_fields(mutable)
    made().owned.append(2)
    assert made().owned == [1]
    with pytest.raises(AssertionError, match="default_factory"):

        @frozen
        class Shared:
            owned: list[int] = []  # noqa: RUF012 - that is the mistake


def test_an_object_that_holds_itself_has_a_text() -> None:
    one = only_one(mutable)(value=None)
    one.value = [one]
    assert repr(one).endswith("One(value=[...])")


def test_methods_are_written_once_and_not_before_they_are_needed() -> None:
    made: Any = several(frozen)
    before = [made.__dict__[name] for name in METHODS]
    first, *_ = [made(name="a") for _ in range(INTERPRETED_CALLS)]
    assert [made.__dict__[name] for name in METHODS] == before
    assert first == made(name="a") and hash(first) == hash(made(name="a"))
    after = [made.__dict__[name] for name in METHODS]
    assert not set(before) & set(after)
    assert first == made(name="a") and hash(first) == hash(made(name="a"))
    assert [made.__dict__[name] for name in METHODS] == after


@pytest.mark.parametrize(("body", "calls"), TABLE, ids=[body.__name__ for body, _ in TABLE])
def test_the_first_objects_are_like_all_others(body: Body, calls: Sequence[Mapping[str, Any]]) -> None:
    for call in calls:
        made = body(mutable)
        assert len({str(outcome(made, **call)) for _ in range(INTERPRETED_CALLS + 2)}) == 1
        assert outcome(made, 1) == outcome(body(mutable), 1)


def test_threads_that_make_the_first_objects_at_once_all_get_one() -> None:
    for _ in range(20):
        made: Any = several(frozen)
        found: list[Any] = []
        start = threading.Barrier(8)

        def make(made: Any = made, found: list[Any] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append(made(name="a"))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [made(name="a")] * 8
