"""Schemas as Spark writes them: `id BIGINT NOT NULL, items ARRAY<STRUCT<sku: STRING, price: DECIMAL(10,2)>>`.

Spark has its own parser, but it needs a JVM that takes seconds to start. This one is for `check`: it reports the same
errors immediately and with their position, and it knows which fields are required.

    fields  := field ("," field)*
    field   := name [":"] type ["NOT NULL"] ["COMMENT" 'text']
    type    := word | DECIMAL(p[,s]) | CHAR(n) | VARCHAR(n) | ARRAY<type> | MAP<type, type> | STRUCT<fields>
"""

import re

from trioka.protocol.lazy_dataclass import frozen

MAX_DEPTH = 32
TOKEN = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*|\d+|'(?:[^'\\]|\\.)*'|[<>(),:])")
SIMPLE = frozenset(
    [
        "boolean",
        "tinyint",
        "byte",
        "smallint",
        "short",
        "int",
        "integer",
        "bigint",
        "long",
        "float",
        "real",
        "double",
        "date",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "string",
        "binary",
        "variant",
    ]
)
SIZED = {"decimal": 2, "dec": 2, "numeric": 2, "char": 1, "character": 1, "varchar": 1}


class InvalidSchema(Exception):
    """One sentence: the unexpected text, and the words before it."""


@frozen
class Field:
    """`type` is the text of the type, as it was given."""

    name: str
    type: str
    is_required: bool


def parse(text: str) -> tuple[Field, ...]:
    """The fields of a schema; its names must be distinct, ignoring case."""
    reader = _Reader(text)
    fields = reader.fields(0)
    reader.end()
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise InvalidSchema(f"the field '{field.name}' is there twice")
        seen.add(field.name.lower())
    return fields


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fields(self, depth: int) -> tuple[Field, ...]:
        found = [self.field(depth)]
        while self.accept(","):
            found.append(self.field(depth))
        return tuple(found)

    def field(self, depth: int) -> Field:
        name = self.word("a field's name")
        self.accept(":")
        before = self.at
        self.type(depth)
        kind = self.text[before : self.at].strip()
        is_required = self.accept("not")
        if is_required and not self.accept("null"):
            self.fail("NULL")
        if self.accept("comment") and not (self.peek() or "").startswith("'"):
            self.fail("a comment in quotes")
        if (self.peek() or "").startswith("'"):
            self.take()
        return Field(name=name.strip("`"), type=kind, is_required=is_required)

    def type(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"it is nested deeper than {MAX_DEPTH} levels")
        word = self.word("a type").lower()
        if word in SIMPLE:
            return
        if word in SIZED:
            self.sizes(word)
        elif word in ("array", "map", "struct"):
            self.expect("<")
            if word == "struct":
                self.fields(depth + 1)
            else:
                self.type(depth + 1)
            if word == "map":
                self.expect(",")
                self.type(depth + 1)
            self.expect(">")
        else:
            raise InvalidSchema(
                f"'{word}' is not a type; there are {', '.join(sorted(SIMPLE))}, decimal(p,s), array<…>, …"
            )

    def sizes(self, word: str) -> None:
        if not self.accept("("):
            return
        self.number()
        if SIZED[word] > 1 and self.accept(","):
            self.number()
        self.expect(")")

    def number(self) -> None:
        if not (self.peek() or "").isdigit():
            self.fail("a number")
        self.take()

    def word(self, what: str) -> str:
        token = self.peek()
        if token is None or not (token[0] == "`" or token[0].isalpha() or token[0] == "_"):
            self.fail(what)
        return self.take()

    def accept(self, wanted: str) -> bool:
        if (self.peek() or "").lower() == wanted:
            self.take()
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.accept(wanted):
            self.fail(f"'{wanted}'")

    def peek(self) -> str | None:
        found = TOKEN.match(self.text, self.at)
        return found[1] if found else None

    def take(self) -> str:
        found = TOKEN.match(self.text, self.at)
        assert found is not None, "only what was peeked at is taken"
        self.at = found.end()
        return found[1]

    def end(self) -> None:
        if self.text[self.at :].strip():
            self.fail("a comma or the end")

    def fail(self, wanted: str) -> None:
        met = self.text[self.at :].strip()[:20] or "the end"
        after = self.text[: self.at].strip()[-20:]
        raise InvalidSchema(f"{wanted} is expected after '{after}', not '{met}'" if after else f"{wanted} comes first")
