"""Writes decoders.

Of a Heartbeat request, version 4, this is the whole decoder (`diagnostic` adds a line `at = "..."` before each step):

    def HeartbeatRequest_v4(buffer, p, budget):
        end = len(buffer)
        o = new(HeartbeatRequest)
        n1 = buffer[p]
        p += 1
        if n1 > 127:
            n1, p = read_uvarint(buffer, p - 1)
        ...

Bounds. Fixed widths and single bytes are bounded by the buffer itself (`struct.error`, `IndexError`). The rest is
checked before anything is made: a string or blob by the bytes that are left; an array by the bytes that are left over
the least an element takes, and by a budget of elements that the whole message shares; tagged fields by number and size.
"""

import struct
from typing import Any, Final

from .errors import ProtocolError
from .primitives import MAX_STRING_BYTES, read_uvarint
from .schema import Field, Message, Struct, defaults_maker
from .source_writer import Source

MAX_ELEMENTS: Final = 200_000  # of all arrays of one message together
MAX_TAGGED_FIELDS: Final = 64  # of one struct
MAX_TAGGED_BYTES: Final = 64 * 1024  # of one unknown tagged field


def write_decoder(cls: type[Message], version: int, *, diagnostic: bool = False) -> Any:
    return _DecoderWriter(cls, version, diagnostic).write()


def min_encoded_size(struct_type: type[Struct], version: int, flexible: bool) -> int:
    """How many bytes a struct takes at the least."""
    size = 1 if flexible else 0  # the count of tagged fields
    for f in struct_type.__fields__:
        if version in f.versions and version not in f.tagged:
            size += _min_field_size(f, version, flexible)
    return size


def _min_field_size(f: Field, version: int, flexible: bool) -> int:
    if f.flexible is not None:
        flexible = version in f.flexible
    if f.is_array:
        return 1 if flexible else 4
    if f.struct is not None:
        return 1 if version in f.nullable else min_encoded_size(f.struct, version, flexible)
    assert f.wire is not None
    if f.wire.format:
        return f.wire.size
    return 1 if flexible else 2 if f.wire.name == "string" else 4


def skip_tags(buffer: Any, p: int, count: int) -> int:
    """Steps over tagged fields of which none is known."""
    if count > 127:
        count, p = read_uvarint(buffer, p - 1)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields, more than {MAX_TAGGED_FIELDS}")
    previous = -1
    for _ in range(count):
        tag, p = read_uvarint(buffer, p)
        if tag <= previous:
            raise ProtocolError(f"tag {tag} comes after tag {previous}")
        previous = tag
        p = _skip_tag(buffer, p)
    return p


def _skip_tag(buffer: Any, p: int) -> int:
    size, p = read_uvarint(buffer, p)
    if size > MAX_TAGGED_BYTES:
        raise ProtocolError(f"a tagged field of {size} bytes, more than {MAX_TAGGED_BYTES}")
    if size > len(buffer) - p:
        raise ProtocolError(f"a tagged field of {size} bytes where {len(buffer) - p} are left")
    return p + size


class _DecoderWriter:
    def __init__(self, cls: type[Message], version: int, diagnostic: bool) -> None:
        self._cls = cls
        self._version = version
        self._diagnostic = diagnostic
        self._flexible = version in cls.__flexible__
        self._source = Source(
            diagnostic,
            new=object.__new__,
            skip_tags=skip_tags,
            skip_tag=_skip_tag,
            read_uvarint=read_uvarint,
            unpack_from=struct.unpack_from,
        )
        # Fixed-width reads that wait to be done together: (format, target).
        self._pending: list[tuple[str, str]] = []

    def write(self) -> Any:
        line = self._source
        title = f"{self._cls.__name__} v{self._version}"
        line("end = len(buffer)")
        if self._diagnostic:
            line("at = 'the first byte'")
            line("try:")
            line.depth += 1
        self._struct("o", self._cls, "")
        self._flush()
        line("return o, p")
        if self._diagnostic:
            line.depth -= 1
            line("except ProtocolError as problem:")
            line(f"    raise ProtocolError(f'{title}: {{at}}: {{problem}}') from None")
            line("except UnicodeDecodeError:")
            line(f"    raise ProtocolError(f'{title}: {{at}}: it is not UTF-8') from None")
            line("except Exception:")
            line(f"    raise ProtocolError(f'{title}: {{at}}: the bytes end too early, at {{end}}') from None")
        name = f"{self._cls.__name__}_v{self._version}"
        kind = "careful decoder" if self._diagnostic else "decoder"
        return line.function(f"{name}(buffer, p, budget)", f"<trioka {kind} {name}>")

    # -- fixed widths -------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Emits the pending reads of fixed width, as one call."""
        if not self._pending:
            return
        line, pending = self._source, self._pending
        self._pending = []
        if len(pending) == 1 and pending[0][0] == "B":
            line(f"{pending[0][1]} = buffer[p]")
            line("p += 1")
            return
        packing = struct.Struct(">" + "".join(f for f, _ in pending))
        unpack = self._source.name("unpack_")
        self._source.scope[unpack] = packing.unpack_from
        comma = "," if len(pending) == 1 else ""
        line(f"{', '.join(target for _, target in pending)}{comma} = {unpack}(buffer, p)")
        line(f"p += {packing.size}")

    def _at(self, where: str) -> None:
        if self._diagnostic:
            self._flush()
            self._source(f"at = {where!r}")

    def _length(self, format: str, flexible: bool) -> str:
        """Reads a length into a name: null is -1. The first byte of a varint joins the fixed widths before it."""
        line, n = self._source, self._source.name("n")
        self._pending.append(("B" if flexible else format, n))
        self._flush()
        if flexible:
            # Lengths below 2¹⁴ take at most two bytes, and are put together here: a call would cost more than the rest.
            line(f"if {n} > 127:")
            line("    b = buffer[p]")
            line(f"    if b > 127: {n}, p = read_uvarint(buffer, p - 1)")
            line("    else:")
            line("        p += 1")
            line(f"        {n} += (b << 7) - 128")
            line(f"{n} -= 1")
        return n

    # -- structs and fields -------------------------------------------------------------------------------------------

    def _struct(self, target: str, struct_type: type[Struct], path: str) -> None:
        cls = self._source.constant(struct_type.__name__, struct_type)
        self._source(f"{target} = new({cls})")
        tagged = []
        for f in struct_type.__fields__:
            slot = f"{target}.{f.name}"
            if self._version not in f.versions:
                self._fallback(slot, f)
            elif self._version in f.tagged:
                self._fallback(slot, f)
                tagged.append(f)
            else:
                self._field(slot, f, f"{path}{f.name}")
        if self._flexible:
            self._tags(target, tagged, path)

    def _fallback(self, slot: str, f: Field) -> None:
        """The value of a field that is absent from the message."""
        value = f.fallback()
        if isinstance(value, list):
            self._source(f"{slot} = []")
        elif isinstance(value, Struct):
            self._source(f"{slot} = {self._source.constant('nothing', defaults_maker(type(value)))}()")
        else:
            self._source(f"{slot} = {value!r}")

    def _field(self, slot: str, f: Field, path: str) -> None:
        self._at(path)
        flexible = self._flexible if f.flexible is None else self._version in f.flexible
        if f.is_array:
            self._array(slot, f, flexible, path)
        elif f.struct is not None:
            self._nested(slot, f, path)
        else:
            assert f.wire is not None
            if f.wire.format:
                self._pending.append((f.wire.format, slot))
            else:
                self._variable(slot, f.wire.name, self._version in f.nullable, flexible)

    def _nested(self, slot: str, f: Field, path: str) -> None:
        assert f.struct is not None
        line, inner = self._source, self._source.name("o")
        if self._version not in f.nullable:
            self._struct(inner, f.struct, f"{path}.")
            line(f"{slot} = {inner}")
            return
        # Null is -1, and among the tagged fields 0.
        present = line.name("n")
        is_tagged = self._version in f.tagged
        self._pending.append(("B" if is_tagged else "b", present))
        self._flush()
        line(f"if {present} == 0:" if is_tagged else f"if {present} < 0:")
        line(f"    {slot} = None")
        line("else:")
        line.depth += 1
        self._struct(inner, f.struct, f"{path}.")
        self._flush()
        line(f"{slot} = {inner}")
        line.depth -= 1

    def _variable(self, slot: str, wire: str, nullable: bool, flexible: bool) -> None:
        line = self._source
        n = self._length("h" if wire == "string" else "i", flexible)
        line(f"if {n} < 0:")
        if nullable:
            line(f"    {n} == -1 or {line.refusal('its length is {}', n)}")
            line(f"    {slot} = None")
        else:
            if self._diagnostic:
                line(f"    {n} < -1 or {line.refusal('it is null')}")
            line(f"    {line.refusal('its length is {}', n)}")
        line("else:")
        line.depth += 1
        q = line.name("q")
        line(f"{q} = p + {n}")
        line(f"if {q} > end: {line.refusal('its length is {} where {} bytes are left', n, 'end - p')}")
        if wire == "string":
            if flexible:
                too_long = line.refusal(f"its length is {{}}, more than {MAX_STRING_BYTES}", n)
                line(f"if {n} > {MAX_STRING_BYTES}: {too_long}")
            line(f"{slot} = str(buffer[p:{q}], 'utf-8')")
        elif wire == "bytes":
            line(f"{slot} = buffer[p:{q}].tobytes()")
        else:
            line(f"{slot} = buffer[p:{q}]")
        line(f"p = {q}")
        line.depth -= 1

    def _array(self, slot: str, f: Field, flexible: bool, path: str) -> None:
        line = self._source
        n = self._length("i", flexible)
        line(f"if {n} < 0:")
        if self._version in f.nullable:
            line(f"    {n} == -1 or {line.refusal('its length is {}', n)}")
            line(f"    {slot} = None")
        else:
            if self._diagnostic:
                line(f"    {n} < -1 or {line.refusal('it is null')}")
            line(f"    {line.refusal('its length is {}', n)}")
        line("else:")
        line.depth += 1
        element = self._min_element_size(f, flexible)
        too_many = line.refusal("it announces {} elements where {} bytes are left", n, "end - p")
        line(f"if {n} > (end - p) // {element}: {too_many}")
        line(f"budget -= {n}")
        line(f"if budget < 0: {line.refusal('with its {} elements the message has too many', n)}")
        if f.wire is not None and f.wire.format:
            self._fixed_elements(slot, n, f.wire.format, f.wire.size)
        else:
            self._elements(slot, n, f, flexible, path)
        line.depth -= 1

    def _min_element_size(self, f: Field, flexible: bool) -> int:
        if f.struct is not None:
            # A struct may have no field at all in some versions: then its elements take no bytes, and count as one.
            return max(1, min_encoded_size(f.struct, self._version, self._flexible))
        assert f.wire is not None
        return f.wire.size or (1 if flexible else 2 if f.wire.name == "string" else 4)

    def _fixed_elements(self, slot: str, n: str, format: str, size: int) -> None:
        line = self._source
        if format == "16s":  # `n * "16s"` would be a new format, and a new compilation of it, for every length
            line(f"{slot} = [buffer[q:q + 16].tobytes() for q in range(p, p + {n} * 16, 16)]")
        else:
            line(f"{slot} = list(unpack_from(f'>{{{n}}}{format}', buffer, p))")
        line(f"p += {n} * {size}")

    def _elements(self, slot: str, n: str, f: Field, flexible: bool, path: str) -> None:
        line, element = self._source, self._source.name("o")
        items = line.name("items")
        line(f"{slot} = {items} = []")
        line(f"for _ in range({n}):")
        line.depth += 1
        if f.struct is not None:
            self._struct(element, f.struct, f"{path}[].")
        else:
            assert f.wire is not None
            self._at(f"{path}[]")
            self._variable(element, f.wire.name, False, flexible)
        self._flush()
        line(f"{items}.append({element})")
        line.depth -= 1

    # -- tagged fields ------------------------------------------------------------------------------------------------

    def _tags(self, target: str, tagged: list[Field], path: str) -> None:
        """The tagged fields that close a struct: how many, then for each its tag, its size, its value."""
        self._at(f"{path}tagged fields")
        line, count = self._source, self._source.name("n")
        self._pending.append(("B", count))
        self._flush()
        if not tagged:
            line(f"if {count}: p = skip_tags(buffer, p, {count})")
            return
        line(f"if {count}:")
        line.depth += 1
        line(f"if {count} > 127: {count}, p = read_uvarint(buffer, p - 1)")
        too_many = line.refusal(f"{{}} tagged fields, more than {MAX_TAGGED_FIELDS}", count)
        line(f"if {count} > {MAX_TAGGED_FIELDS}: {too_many}")
        tag, previous, size, stop = (line.name(stem) for stem in ("tag", "previous", "size", "stop"))
        line(f"{previous} = -1")
        line(f"for _ in range({count}):")
        line.depth += 1
        line(f"{tag}, p = read_uvarint(buffer, p)")
        line(f"if {tag} <= {previous}: {line.refusal('tag {} comes after tag {}', tag, previous)}")
        line(f"{previous} = {tag}")
        for number, f in enumerate(tagged):
            line(f"{'el' if number else ''}if {tag} == {f.tag}:")
            line.depth += 1
            line(f"{size}, p = read_uvarint(buffer, p)")
            line(f"{stop} = p + {size}")
            line(f"if {stop} > end: {line.refusal('a tagged field of {} bytes where {} are left', size, 'end - p')}")
            self._field(f"{target}.{f.name}", f, f"{path}{f.name}")
            self._flush()
            other_size = line.refusal("it takes {} bytes, and announces {}", f"p - {stop} + {size}", size)
            line(f"if p != {stop}: {other_size}")
            line.depth -= 1
        line("else:")
        line("    p = skip_tag(buffer, p)")
        line.depth -= 2
