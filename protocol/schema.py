"""How messages are declared: one class for all versions of a message.

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = field("3+", default=None, nullable="3+")

The order of the fields is their order on the wire. A field without `field()` is present in every version. `field()`
declares the versions in which it is present, null or tagged, and its value in the other versions. `codec.py`
compiles these declarations; a compatibility test compares them, field by field, with Apache Kafka's.

Messages are slotted and, to the type checker, frozen and keyword-only. They are not frozen at run time: decoding
fills the slots of a new object one by one, which is half the price of calling a constructor. Fields are resolved on
first use, and constructors are written for classes of which more than a few objects are made, as those of data classes
are (`protocol/lazy_dataclass.py`): importing a hundred declarations stays cheap, and so does a start, which sends most
messages once.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple, Self, dataclass_transform, get_args, get_origin

from .lazy_dataclass import INTERPRETED_CALLS, frozen
from .primitives import WireType

OPEN: Final = 32767  # "3+" has no end


class VersionRange(NamedTuple):
    """A range of versions, both ends included. No versions at all: the first is above the last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), OPEN)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def covers(self, other: "VersionRange") -> bool:
        return self.first <= other.first and other.last <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == OPEN:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS: Final = VersionRange(0, -1)


class _Mark:
    """A marker that differs from every value of a field."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


REQUIRED: Final = _Mark("REQUIRED")  # no default: the field must be given
EMPTY: Final = _Mark("EMPTY")  # the default of a struct: one whose fields all have their defaults


class _Options(NamedTuple):
    versions: str
    default: object
    nullable: str | None
    tag: int | None
    tagged: str
    ignorable: bool
    flexible: str | None
    may_be_encoded: bool


def field(
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    flexible: str | None = None,
    may_be_encoded: bool = False,
) -> Any:
    """Declares properties of a field that its type does not show.

    versions    where it is present; elsewhere it has its default
    nullable    where null is allowed, for a type with `| None`; by default in every version
    tag         its number among the tagged fields, in the versions `tagged`
    ignorable   a version without it may drop its value; otherwise a value there is an error
    flexible    overrides the message's flexible versions for this one field
    may_be_encoded   of a list of structs: some of them may be `PreEncoded`
    """
    return _Options(versions, default, nullable, tag, tagged, ignorable, flexible, may_be_encoded)


@frozen
class Field:
    """One field as declared, with everything resolved."""

    name: str
    wire: WireType | None  # None: a struct
    struct: "type[Struct] | None"
    is_array: bool
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    default: object  # REQUIRED, EMPTY or the value; a list is made again for each object
    ignorable: bool
    flexible: VersionRange | None
    may_be_encoded: bool

    def fallback(self) -> object:
        """The value of a field that is absent: its default, or the zero value of its type."""
        if self.default is None:
            return None
        if self.is_array:
            return []
        if self.struct is not None:
            return self.struct.with_defaults()
        assert self.wire is not None
        return self.wire.zero if self.default is REQUIRED else self.default


def _resolve(name: str, annotation: Any, options: _Options) -> Field:
    versions = VersionRange.parse(options.versions)
    arguments = get_args(annotation)
    nullable = NO_VERSIONS
    if type(None) in arguments:
        (annotation,) = (a for a in arguments if a is not type(None))
        nullable = VersionRange.parse(options.nullable) if options.nullable is not None else versions
    is_array = get_origin(annotation) is list
    if is_array:
        (annotation,) = get_args(annotation)
    wire = next((m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, WireType)), None)
    struct = annotation if wire is None else None
    assert wire is not None or issubclass(annotation, Struct), f"{name}: {annotation!r} has no wire form"
    return Field(
        name=name,
        wire=wire,
        struct=struct,
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        tag=options.tag,
        tagged=VersionRange.parse(options.tagged),
        default=options.default,
        ignorable=options.ignorable,
        flexible=VersionRange.parse(options.flexible) if options.flexible is not None else None,
        may_be_encoded=options.may_be_encoded,
    )


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    if "__annotations__" in namespace:
        return dict(namespace["__annotations__"])
    # From Python 3.14 on a class body leaves a function that evaluates them.
    annotate = namespace.get("__annotate_func__") or namespace.get("__annotate__")
    return dict(annotate(1)) if annotate is not None else {}


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class _Declared(type):
    """Turns annotations into fields and slots."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> "_Declared":
        annotations = {n: a for n, a in _annotations(namespace).items() if get_origin(a) is not ClassVar}
        declared = [(n, annotation, namespace.pop(n, None)) for n, annotation in annotations.items()]
        namespace["__slots__"] = tuple(annotations)
        namespace["__fields__"] = _Fields(declared)
        return super().__new__(mcls, name, bases, namespace, **keywords)


class _Fields:
    """A placeholder for the fields of a class until they are first read."""

    def __init__(self, declared: list[tuple[str, Any, _Options | None]]) -> None:
        self._declared = declared

    def __get__(self, _: object, owner: "type[Struct]") -> tuple[Field, ...]:
        resolved = tuple(_resolve(name, annotation, options or field()) for name, annotation, options in self._declared)
        owner.__fields__ = resolved
        return resolved


class Struct(metaclass=_Declared):
    """A group of fields inside a message."""

    __fields__: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        # This one makes the first objects; then a constructor is written for the class, and takes its place.
        cls = type(self)
        _made[cls] += 1
        if _made[cls] > INTERPRETED_CALLS or not _fill(self, values):
            cls.__init__ = _write_constructor(cls)  # type: ignore[method-assign]
            cls.__init__(self, **values)

    @classmethod
    def with_defaults(cls) -> Self:
        """An object whose fields all have their defaults."""
        struct: Self = defaults_maker(cls)()
        return struct

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.__fields__)
        return f"{type(self).__qualname__}({fields})"


class PreEncoded:
    """A struct as encoded for one version of its message. A caller that sends the same struct often encodes it once
    (`encode_part` of codec.py) and puts this object into the list in its place, where the list `may_be_encoded`."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


_made: Counter[type[Struct]] = Counter()  # objects that were made without a constructor of the class's own


def _fill(struct: Struct, values: dict[str, Any]) -> bool:
    """Whether `values` are the fields of the struct; if not, a written constructor raises the TypeError."""
    given = 0
    for f in struct.__fields__:
        if f.name in values:
            value = values[f.name]
            given += 1
        elif f.default is REQUIRED:
            return False
        else:
            value = f.fallback()
        setattr(struct, f.name, value)
    return given == len(values)


@cache
def defaults_maker(cls: type[Struct]) -> Callable[[], Any]:
    """A function that makes an object of defaults. It is called for every tagged struct that is left out."""
    scope: dict[str, Any] = {"new": object.__new__, "cls": cls}
    body = ["    o = new(cls)"]
    for f in cls.__fields__:
        value = f.fallback()
        if isinstance(value, Struct):
            scope[f"make_{f.name}"] = defaults_maker(type(value))
            body.append(f"    o.{f.name} = make_{f.name}()")
        else:
            body.append(f"    o.{f.name} = {value!r}")
    exec("def make():\n" + "\n".join([*body, "    return o"]), scope)
    make: Callable[[], Any] = scope["make"]
    return make


def _write_constructor(cls: type[Struct]) -> Any:
    """`def __init__(self, *, a, b=default_b)`, as source, so that calling it costs what a hand-written one would."""
    scope: dict[str, Any] = {"EMPTY": EMPTY}
    parameters, body = [], []
    for f in cls.__fields__:
        value = f.name
        if f.default is REQUIRED:
            parameters.append(f.name)
        elif isinstance(f.default, list):
            parameters.append(f"{f.name}=EMPTY")
            value = f"[] if {f.name} is EMPTY else {f.name}"
        elif f.default is EMPTY:
            assert f.struct is not None
            parameters.append(f"{f.name}=EMPTY")
            scope[f"make_{f.name}"] = defaults_maker(f.struct)
            value = f"make_{f.name}() if {f.name} is EMPTY else {f.name}"
        else:
            parameters.append(f"{f.name}=default_{f.name}")
            scope[f"default_{f.name}"] = f.default
        body.append(f"    self.{f.name} = {value}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    exec(f"def __init__({signature}):\n" + "\n".join(body or ["    pass"]), scope)
    return scope["__init__"]


class Message(Struct):
    """A top-level message: a request, a response, a header, a record of an internal topic."""

    # Underscored, because fields are called `key` and `versions` too.
    __key__: ClassVar[int | None] = None
    __versions__: ClassVar[VersionRange] = NO_VERSIONS
    __flexible__: ClassVar[VersionRange] = NO_VERSIONS

    def __init_subclass__(cls, *, key: int | None = None, versions: str = "none", flexible: str = "none") -> None:
        cls.__key__ = key
        cls.__versions__ = VersionRange.parse(versions)
        cls.__flexible__ = VersionRange.parse(flexible)


class Request(Message):
    """A request of a client or another node. `key` is its API key."""


class Response(Message):
    """The response to a request."""


class Entry(Message):
    """A key or a value of a record in one of Kafka's internal topics. A key determines the kind of the entry."""
