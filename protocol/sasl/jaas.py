"""JAAS texts, as Kafka's users write them: the login module of a mechanism, and its options.

    sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

The grammar is that of Kafka's own parser, which stands on Java's StreamTokenizer: words of letters, digits, ".", "-",
"_" and "$"; texts in quotes of both kinds with the escapes of C; comments; numbers, which are no words. A file has
sections, `KafkaServer { module …; module …; };`.

Module names are compared with those of Kafka's three mechanisms; nothing is ever loaded. Errors name no value: it may
be a password.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from .plain import PLAIN
from .scram import SCRAM_MECHANISMS

MAX_JAAS_CHARS: Final = 1024 * 1024
OAUTHBEARER: Final = "OAUTHBEARER"
FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_SECURITY: Final = "org.apache.kafka.common.security."
PLAIN_MODULE: Final = f"{_SECURITY}plain.PlainLoginModule"
SCRAM_MODULE: Final = f"{_SECURITY}scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = f"{_SECURITY}oauthbearer.OAuthBearerLoginModule"
MODULE_OF: Final[Mapping[str, str]] = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DIGITS: Final = frozenset("0123456789.-")
_OCTAL: Final = frozenset("01234567")


class JaasError(ValueError):
    """The text is no JAAS text. The message continues a sentence that names the key."""


class LoginModule(NamedTuple):
    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Without values, which may be passwords."""
        return f"LoginModule({self.name}, {', '.join(sorted(self.options))})"


class _Token(NamedTuple):
    """A word or quoted text, or a single character; a number has neither."""

    text: str | None = None
    mark: str = ""


def parse_jaas(text: str) -> LoginModule:
    """The one module of a `sasl.jaas.config`; raises JaasError."""
    tokens = _tokens(text)
    modules = []
    for first in tokens:
        modules.append(_module(first, tokens))
        if len(modules) > 1:
            raise JaasError("must have one login module, but has several")
    if not modules:
        raise JaasError("must have a login module, but is empty")
    return modules[0]


def parse_jaas_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The sections of a JAAS file, by name; raises JaasError."""
    tokens = _tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    for name in tokens:
        if name.text is None or next(tokens, _Token()).mark != "{":
            raise JaasError("must consist of sections, NAME { module; };")
        if name.text in sections:
            raise JaasError(f"must have each section once, but has {name.text[:80]} twice")
        modules = []
        for first in tokens:
            if first.mark == "}":
                break
            modules.append(_module(first, tokens))
        else:
            raise JaasError(f"must close the section {name.text[:80]} with }};")
        if next(tokens, _Token()).mark != ";":
            raise JaasError(f"must close the section {name.text[:80]} with }};")
        sections[name.text] = tuple(modules)
    return sections


def _module(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    if not first.text:
        raise JaasError("must begin with the name of a login module")
    flag = next(tokens, _Token())
    if flag.text is None or flag.text.upper() not in FLAGS:
        raise JaasError("must have 'required' behind the name of the login module")
    options: dict[str, str] = {}
    for token in tokens:
        if token.mark == ";":
            return LoginModule(first.text, options)
        if token.text is None:
            raise JaasError("must have options of the form name=\"value\", and ';' behind the last")
        value = next(tokens, _Token()) if next(tokens, _Token()).mark == "=" else _Token()
        if value.text is None:
            raise JaasError(f"must have a value, in quotes if it is no word, for the option {token.text[:80]!r}")
        options[token.text] = value.text
    raise JaasError("must end with ';'")


def _is_word(char: str) -> bool:
    return (char.isascii() and (char.isalnum() or char in "_$-.")) or char >= "\xa0"


def _tokens(text: str) -> Iterator[_Token]:
    if len(text) > MAX_JAAS_CHARS:
        raise JaasError(f"must have at most {MAX_JAAS_CHARS} characters")
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if char <= " ":
            at += 1
        elif char == "/":
            at = _after_comment(text, at)
        elif char in _DIGITS:
            after = _after_number(text, at)
            if after == at:
                yield _Token(mark=char)
                at += 1
            else:
                yield _Token()
                at = after
        elif char in "\"'":
            quoted, at = _quoted(text, at)
            yield _Token(quoted)
        elif _is_word(char):
            start = at
            while at < end and _is_word(text[at]):
                at += 1
            yield _Token(text[start:at])
        else:
            yield _Token(mark=char)
            at += 1


def _after_comment(text: str, at: int) -> int:
    """A single slash begins a comment, too."""
    if text.startswith("/*", at):
        close = text.find("*/", at + 2)
        return len(text) if close < 0 else close + 2
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _after_number(text: str, at: int) -> int:
    """The end of a number; `at` itself if it is a lone minus sign."""
    start, has_point = at, False
    if text[at] == "-":
        at += 1
        if at == len(text) or text[at] not in "0123456789.":
            return start
    while at < len(text):
        if text[at] == "." and not has_point:
            has_point = True
        elif text[at] not in "0123456789":
            break
        at += 1
    return at


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The text in quotes and the position behind it. The end of the line closes it, as in Java."""
    quote, end = text[at], len(text)
    at += 1
    found: list[str] = []
    while at < end and text[at] not in (quote, "\r", "\n"):
        char = text[at]
        at += 1
        if char == "\\" and at < end:
            char, at = _escaped(text, at)
        found.append(char)
    return "".join(found), at + 1 if at < end and text[at] == quote else at


def _escaped(text: str, at: int) -> tuple[str, int]:
    """The character that an escape represents: up to three octal digits, a letter of C, or itself."""
    if text[at] not in _OCTAL:
        return _ESCAPES.get(text[at], text[at]), at + 1
    most = 3 if text[at] <= "3" else 2
    stop = at
    while stop < len(text) and stop - at < most and text[stop] in _OCTAL:
        stop += 1
    return chr(int(text[at:stop], 8)), stop
