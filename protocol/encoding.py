"""Writes encoders: `decoding.py` the other way round.

An encoder appends to one bytearray. Where the message holds records it stops, hands the bytearray on as a piece, hands
the records on as the next piece, untouched, and goes on with a new bytearray: the connection sends the pieces with one
`sendmsg`, or a range of a file by `sendfile`. Record bytes are never looked at here.

A field that a version does not have must hold its default there, or be declared `ignorable`: to drop it silently would
change the meaning of the message.
"""

import struct
from typing import Any

from .primitives import MAX_STRING_BYTES, uvarint
from .schema import NO_VERSIONS, Field, Message, PreEncoded, Struct
from .source_writer import Source


def write_encoder(
    cls: type[Message], version: int, *, part: type[Struct] | None = None, diagnostic: bool = False
) -> Any:
    """Of the message, or of a `part` of it."""
    return _EncoderWriter(cls, version, part or cls, diagnostic).write()


class _EncoderWriter:
    def __init__(self, cls: type[Message], version: int, part: type[Struct], diagnostic: bool) -> None:
        self._part = part
        self._name = cls.__name__ if part is cls else f"{cls.__name__}.{part.__name__}"
        self._version = version
        self._diagnostic = diagnostic
        self._flexible = version in cls.__flexible__
        self._source = Source(diagnostic, uvarint=uvarint, pack=struct.pack, PreEncoded=PreEncoded)
        self._out = "out"  # the bytearray that is being written; tagged fields have their own
        self._pending: list[tuple[str, str]] = []  # (format, value) to be packed together

    def write(self) -> Any:
        line = self._source
        title = f"{self._name} v{self._version}"
        line("pieces = []")
        if self._diagnostic:
            line("at = 'the message'")
            line("try:")
            line.depth += 1
        self._struct("m", self._part, "")
        self._flush()
        if self._diagnostic:
            line.depth -= 1
            line("except ProtocolError as problem:")
            line(f"    raise ProtocolError(f'{title}: {{at}}: {{problem}}') from None")
            line("except Exception as problem:")
            line(f"    raise ProtocolError(f'{title}: {{at}}: {{problem}}') from problem")
        line("pieces.append(out)")
        line("return pieces")
        name = f"{self._name.replace('.', '_')}_v{self._version}"
        kind = "careful encoder" if self._diagnostic else "encoder"
        return line.function(f"{name}(m, out)", f"<trioka {kind} {name}>")

    def _flush(self) -> None:
        """Emits the pending fields of fixed width, as one call."""
        if not self._pending:
            return
        pending = self._pending
        self._pending = []
        values = ", ".join(value for _, value in pending if value)
        if not values:
            self._source(f"{self._out} += {bytes(len(pending))!r}")
            return
        pack = self._source.name("pack_")
        self._source.scope[pack] = struct.Struct(">" + "".join(f for f, _ in pending)).pack
        self._source(f"{self._out} += {pack}({values})")

    def _at(self, where: str) -> None:
        if self._diagnostic:
            self._flush()
            self._source(f"at = {where!r}")

    def _length(self, value: str, format: str, flexible: bool, most: int) -> None:
        """Writes the length in the name `value`."""
        line = self._source
        too_long = line.refusal(f"its length is {{}}, more than {most}", value)
        line(f"if {value} > {most}: {too_long}")
        if flexible:
            self._flush()
            line(f"if {value} < 127: {self._out}.append({value} + 1)")
            line(f"else: {self._out} += uvarint({value} + 1)")
        else:
            self._pending.append((format, value))

    def _null(self, format: str, flexible: bool) -> None:
        self._pending.append(("x", "") if flexible else (format, "-1"))
        self._flush()

    # -- structs and fields -------------------------------------------------------------------------------------------

    def _struct(self, value: str, struct_type: type[Struct], path: str) -> None:
        tagged = []
        for f in struct_type.__fields__:
            slot = f"{value}.{f.name}"
            if self._version not in f.versions:
                if not f.ignorable:
                    self._at(f"{path}{f.name}")
                    refusal = self._source.refusal("this version has no such field")
                    self._source(f"if {self._differs(slot, f)}: {refusal}")
            elif self._version in f.tagged:
                tagged.append(f)
            else:
                self._field(slot, f, f"{path}{f.name}")
        if self._flexible:
            self._tags(value, tagged, path)

    def _differs(self, slot: str, f: Field) -> str:
        """A condition: the field differs from its default."""
        nothing = f.fallback()
        if nothing is None:
            return f"{slot} is not None"
        if isinstance(nothing, Struct):
            # Written out field by field: comparing two objects would cost more than all the rest.
            fields = " or ".join(self._differs(f"{slot}.{inner.name}", inner) for inner in nothing.__fields__)
            return f"{slot} is None or {fields}" if f.nullable != NO_VERSIONS else fields
        return f"{slot} != {nothing!r}"

    def _field(self, slot: str, f: Field, path: str) -> None:
        self._at(path)
        flexible = self._flexible if f.flexible is None else self._version in f.flexible
        nullable = self._version in f.nullable
        if f.is_array:
            self._array(slot, f, nullable, flexible, path)
        elif f.struct is not None:
            self._nested(slot, f, nullable, path)
        else:
            assert f.wire is not None
            if f.wire.format == "16s":
                refusal = self._source.refusal("a uuid has 16 bytes, not {}", f"len({slot})")
                self._source(f"if len({slot}) != 16: {refusal}")
            if f.wire.format:
                self._pending.append((f.wire.format, slot))
            else:
                self._variable(slot, f.wire.name, nullable, flexible)

    def _nested(self, slot: str, f: Field, nullable: bool, path: str) -> None:
        assert f.struct is not None
        line, inner = self._source, self._source.name("m")
        line(f"{inner} = {slot}")
        if not nullable:
            self._struct(inner, f.struct, f"{path}.")
            return
        self._flush()
        line(f"if {inner} is None:")
        line(f"    {self._out}.append({0 if self._version in f.tagged else 255})")
        line("else:")
        line.depth += 1
        line(f"{self._out}.append(1)")
        self._struct(inner, f.struct, f"{path}.")
        self._flush()
        line.depth -= 1

    def _variable(self, slot: str, wire: str, nullable: bool, flexible: bool) -> None:
        line, value, size = self._source, self._source.name("v"), self._source.name("n")
        format, most = ("h", MAX_STRING_BYTES) if wire == "string" else ("i", 0x7FFFFFFE)
        line(f"{value} = {slot}")
        if nullable:
            self._flush()
            line(f"if {value} is None:")
            line.depth += 1
            self._null(format, flexible)
            line.depth -= 1
            line("else:")
            line.depth += 1
        if wire == "string":
            line(f"{value} = {value}.encode()")
        line(f"{size} = len({value})")
        self._length(size, format, flexible, most)
        self._flush()
        if wire == "records":
            assert self._out == "out", "a tagged field cannot hold records"
            line(f"pieces += (out, {value})")
            line("out = bytearray()")
        else:
            line(f"{self._out} += {value}")
        if nullable:
            line.depth -= 1

    def _array(self, slot: str, f: Field, nullable: bool, flexible: bool, path: str) -> None:
        line, items, count = self._source, self._source.name("items"), self._source.name("n")
        line(f"{items} = {slot}")
        if nullable:
            self._flush()
            line(f"if {items} is None:")
            line.depth += 1
            self._null("i", flexible)
            line.depth -= 1
            line("else:")
            line.depth += 1
        line(f"{count} = len({items})")
        self._length(count, "i", flexible, 0x7FFFFFFE)
        self._flush()
        if f.wire is not None and f.wire.format == "16s":
            line(f"for u in {items}:")
            line(f"    if len(u) != 16: {line.refusal('a uuid has 16 bytes, not {}', 'len(u)')}")
            line(f"    {self._out} += u")
        elif f.wire is not None and f.wire.format:
            line(f"{self._out} += pack(f'>{{{count}}}{f.wire.format}', *{items})")
        else:
            self._elements(items, f, flexible, path)
        if nullable:
            line.depth -= 1

    def _elements(self, items: str, f: Field, flexible: bool, path: str) -> None:
        line, element = self._source, self._source.name("m")
        line(f"for {element} in {items}:")
        line.depth += 1
        line("pass")  # a struct may have no fields in this version
        if f.may_be_encoded:
            line(f"if {element}.__class__ is PreEncoded:")
            line(f"    {self._out} += {element}.data")
            line("    continue")
        if f.struct is not None:
            self._struct(element, f.struct, f"{path}[].")
        else:
            assert f.wire is not None
            self._at(f"{path}[]")
            self._variable(element, f.wire.name, False, flexible)
        self._flush()
        line.depth -= 1

    # -- tagged fields ------------------------------------------------------------------------------------------------

    def _tags(self, value: str, tagged: list[Field], path: str) -> None:
        """The tagged fields that differ from their defaults: their number, then tag, size and value of each, by tag."""
        if not tagged:
            self._pending.append(("x", ""))
            return
        self._flush()
        line, count, body = self._source, self._source.name("n"), self._source.name("tags")
        outer = self._out
        line(f"{count} = 0")
        line(f"{body} = bytearray()")
        for f in sorted(tagged, key=lambda f: f.tag or 0):
            self._at(f"{path}{f.name}")
            line(f"if {self._differs(f'{value}.{f.name}', f)}:")
            line.depth += 1
            self._out = line.name("tagged")
            line(f"{self._out} = bytearray()")
            self._field(f"{value}.{f.name}", f, f"{path}{f.name}")
            self._flush()
            line(f"{body} += {uvarint(f.tag or 0)!r}")
            line(f"{body} += uvarint(len({self._out}))")
            line(f"{body} += {self._out}")
            line(f"{count} += 1")
            self._out = outer
            line.depth -= 1
        line(f"{outer}.append({count})")
        line(f"{outer} += {body}")
