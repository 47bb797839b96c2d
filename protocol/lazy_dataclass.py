"""Data classes whose methods are compiled on first use, so that declaring a class is cheap.

    @frozen
    class Marker:
        producer_id: int
        partitions: Sequence[int] = ()

`frozen` is `dataclass(frozen=True, slots=True, kw_only=True)`, and `mutable` the same without `frozen=True`: to the
type checker, to `dataclasses.replace`, `fields` and `asdict`, and in the behaviour of objects. Only the time of
compilation differs.
`dataclasses` writes six functions for each class where it is declared, and has Python compile them one by one; for the
80 classes of a broker's start that was 75 of 400 ms of CPU, for functions of which most are never called. Here
`__eq__` and `__hash__` are written when they are first called, and take the place of what stood in for them until then;
`__init__` when it is called for the fourth time, for of half of those classes a start makes three objects at the most.
From then on they are as fast as those of `dataclasses`; making a frozen object is faster by a quarter, because its
slots are set by their own descriptors and not by name. The constructors of messages do the same (`schema.py`).
What is called seldom (`__repr__`, copies, the refusal to be changed) is one function for all classes.

`python -m pytest tests/protocol/test_lazy_dataclass.py` compares them with those of `dataclasses`;
`python -X importtime -m trioka dev` shows what loading them costs, and
`python -m timeit -s "from trioka.protocol.primitives import WireType as W" "W(name='x', size=2, zero=0)"` one object.

Two objects are equal if the tuples of their fields are, on every Python; `dataclasses` compares field by field from
3.13 on, which differs only for a field that does not equal itself, as NaN does not.

Not supported, because trioka does not use them: positions, order, `InitVar`, fields without `__init__`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, field, make_dataclass
from itertools import count
from reprlib import recursive_repr
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform, get_origin

C = TypeVar("C")

_CLASS_VAR: Final[object] = ClassVar
INTERPRETED_CALLS: Final = 3  # objects of a class that are made without a constructor of its own
_UNSET: Final = object()  # in place of a default that is made again for each object


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[C]) -> type[C]:
    """A class whose objects do not change and are hashable."""
    made = _with_slots(
        cls,
        {
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
            "__getstate__": _values,
            "__setstate__": _set_values,
        },
    )
    if cls.__dict__.get("__hash__") is None:  # Python sets None, if a class defines only `__eq__`
        _write_when_called(made, "__hash__", _hash_source)
    return made


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def mutable(cls: type[C]) -> type[C]:
    """A class whose objects change, and so are not hashable."""
    return _with_slots(cls, {"__hash__": cls.__dict__.get("__hash__")})


def _with_slots(cls: type[C], methods: Mapping[str, object]) -> type[C]:
    """The class once more: slots must be there when a class is made, and this one has been."""
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    names = [name for name, kind in cls.__annotations__.items() if get_origin(kind) is not _CLASS_VAR]
    own = {name: body.pop(name, MISSING) for name in names}
    for name, default in own.items():
        assert type(default).__hash__ is not None, f"{cls.__name__}.{name}: objects would share it; use default_factory"
    inherited: dict[str, Any] = {}
    for ancestor in reversed(cls.__mro__[1:]):
        inherited |= ancestor.__dict__.get("__declared__", {})
    body |= {
        "__qualname__": cls.__qualname__,
        "__slots__": tuple(name for name in own if name not in inherited),
        "__declared__": inherited | own,
        "__dataclass_fields__": _StandardFields(),
        "__match_args__": (),
        **methods,
    }
    body.setdefault("__repr__", _text)
    metaclass: Any = type(cls)
    made: type[C] = metaclass(cls.__name__, cls.__bases__, body)
    if "__init__" not in cls.__dict__:
        _write_when_called(made, "__init__", _init_source)
        _fill_until_written(made)
    if "__eq__" not in cls.__dict__:
        _write_when_called(made, "__eq__", _eq_source)
    return made


# -- written when they are first called --------------------------------------------------------------------------------


def _write_when_called(cls: type, name: str, source: Callable[[Any, dict[str, Any]], str]) -> None:
    def placeholder(self: object, *arguments: object, **values: object) -> Any:
        scope: dict[str, Any] = {}
        exec(source(cls, scope), scope)
        written = scope[name]
        written.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, written)  # two threads may both do this; they write the same
        return written(self, *arguments, **values)

    setattr(cls, name, placeholder)


def _fill_until_written(cls: Any) -> None:
    """An `__init__` for the first objects. It leaves unexpected arguments to the written `__init__`."""
    written: Callable[..., None] = cls.__init__
    declared, calls = cls.__declared__, count(1)

    def __init__(self: Any, **values: object) -> None:
        if next(calls) > INTERPRETED_CALLS or not values.keys() <= declared.keys():
            return written(self, **values)
        for name, spec in declared.items():
            default = spec.default if isinstance(spec, Field) else spec
            if name in values:
                value = values[name]
            elif default is not MISSING:
                value = default
            elif isinstance(spec, Field) and spec.default_factory is not MISSING:
                value = spec.default_factory()
            else:
                return written(self, **values)
            object.__setattr__(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()
        return None

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = __init__


def _fields(cls: Any) -> dict[str, Field[Any]]:
    return {name: spec if isinstance(spec, Field) else field(default=spec) for name, spec in cls.__declared__.items()}


def _init_source(cls: Any, scope: dict[str, Any]) -> str:
    is_frozen = "__setattr__" in cls.__dict__
    scope["UNSET"] = _UNSET
    parameters, body = [], []
    for name, each in _fields(cls).items():
        value = name
        if each.default_factory is not MISSING:
            parameters.append(f"{name}=UNSET")
            scope[f"make_{name}"] = each.default_factory
            value = f"make_{name}() if {name} is UNSET else {name}"
        elif each.default is not MISSING:
            parameters.append(f"{name}=default_{name}")
            scope[f"default_{name}"] = each.default
        else:
            parameters.append(name)
        scope[f"set_{name}"] = getattr(cls, name).__set__
        body.append(f"set_{name}(self, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return (
        f"def __init__({', '.join(['self', *(['*'] if parameters else []), *parameters])}): {'; '.join(body) or 'pass'}"
    )


def _eq_source(cls: Any, scope: dict[str, Any]) -> str:
    compared = [name for name, each in _fields(cls).items() if each.compare]
    mine, others = (f"({''.join(f'{whose}.{name}, ' for name in compared)})" for whose in ("self", "other"))
    return (
        f"def __eq__(self, other): return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented"
    )


def _hash_source(cls: Any, scope: dict[str, Any]) -> str:
    hashed = [name for name, each in _fields(cls).items() if (each.compare if each.hash is None else each.hash)]
    return f"def __hash__(self): return hash(({''.join(f'self.{name}, ' for name in hashed)}))"


# -- the same for all --------------------------------------------------------------------------------------------------


@recursive_repr()
def _text(self: Any) -> str:
    spec = ", ".join(f"{name}={getattr(self, name)!r}" for name, each in _fields(type(self)).items() if each.repr)
    return f"{type(self).__qualname__}({spec})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _values(self: Any) -> list[object]:
    """What `copy` and `pickle` take along, which could not set it by themselves."""
    return [getattr(self, name) for name in self.__declared__]


def _set_values(self: Any, values: list[object]) -> None:
    for name, value in zip(self.__declared__, values, strict=True):
        object.__setattr__(self, name, value)


class _StandardFields:
    """The attribute that `dataclasses` looks for in a class, made by `dataclasses` on first access, without types."""

    def __get__(self, _: object, owner: Any) -> dict[str, Field[Any]]:
        described = [(name, object, each) for name, each in _fields(owner).items()]
        standard: Any = make_dataclass(owner.__name__, described, kw_only=True)
        found: dict[str, Field[Any]] = standard.__dataclass_fields__
        owner.__dataclass_fields__ = found
        return found
