"""Maps the distinguished name of a client certificate to a user name: ssl.principal.mapping.rules (KIP-371).

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT

A rule is `RULE:<pattern>/<replacement>/`, optionally followed by L or U for lower or upper case, or DEFAULT, which uses
the name unchanged. The first rule whose pattern matches the whole name decides. As in Kafka, the replacement then
replaces every match that a search finds. Patterns are matched by RE2, in linear time: clients choose the names, and
Java's patterns can run for hours. RE2 has no lookaheads or back references; patterns with them are rejected.
"""

import re
from typing import Any, Final, NamedTuple

DEFAULT_RULES: Final = "DEFAULT"
MAX_NAME_CHARACTERS: Final = 1024
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = rf"\s*({_RULE})\s*([,\n]|$)"
_MEMORY_BYTES: Final = 1 << 20


class InvalidRules(ValueError):
    """The rules cannot be used. The message is a sentence without the key."""


class NoRuleApplies(ValueError):
    """No rule matches a name, or the rule that matches yields an empty or too long one. The message is a sentence."""


class _Rule(NamedTuple):
    pattern: Any  # of re2; None for DEFAULT
    replacement: tuple[str | int, ...]  # texts, and numbers of groups
    case: str  # L, U or empty


class PrincipalMapping:
    def __init__(self, rules: str) -> None:
        """Raises InvalidRules."""
        self._rules = tuple(_parsed(rules))

    def user_name(self, name: str) -> str:
        """The user name of a distinguished name; raises NoRuleApplies."""
        for rule in self._rules:
            mapped = _apply(rule, name)
            if mapped is None:
                continue
            if not mapped:
                raise NoRuleApplies(f"ssl.principal.mapping.rules maps {name[:500]!r} to an empty name.")
            if len(mapped) > MAX_NAME_CHARACTERS:
                raise NoRuleApplies(
                    f"ssl.principal.mapping.rules maps {name[:500]!r} to a name of {len(mapped)} characters; "
                    f"the maximum is {MAX_NAME_CHARACTERS}."
                )
            return mapped
        raise NoRuleApplies(f"No rule of ssl.principal.mapping.rules matches {name[:500]!r}.")


def _parsed(text: str) -> list[_Rule]:
    rules = []
    for found in re.finditer(_SPLITTER, text.strip()):
        written = found[1]
        matched = re.match(_RULE, written)
        if matched is None or matched.end() != len(written):
            raise InvalidRules(f"has the invalid rule '{written[:200]}'")
        if matched[1] is not None:
            rules.append(_Rule(None, (), ""))
        elif matched[2] is not None:
            pattern = _compiled(matched[2])
            rules.append(_Rule(pattern, _replacement(matched[3], pattern.groups), matched[4]))
    if not rules:
        raise InvalidRules("has no rule")
    return rules


def _compiled(text: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidRules(
            f"has the pattern '{text[:200]}', which RE2 does not accept ({reason}); "
            "lookaheads and back references are not supported"
        ) from None


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """Parses a replacement. As in Java `\\x` is x and `$n` is a group; as in Kafka `$n` without such a group is
    text."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            parts.append(text[at])  # the rule's syntax leaves no backslash at the end
            at += 1
        elif char == "$":
            digits = re.match("[0-9]+", text[at:], re.ASCII)
            if digits is None:
                raise InvalidRules(
                    f"has the replacement '{text[:200]}', in which $ is not followed by a group's number"
                )
            length = len(digits[0])  # the longest prefix of the digits that is a group number
            while length > 1 and int(digits[0][:length]) > groups:
                length -= 1
            number = int(digits[0][:length])
            parts.append(number if number <= groups else f"${number}")
            at += length
        else:
            parts.append(char)
    return tuple(parts)


def _apply(rule: _Rule, name: str) -> str | None:
    if rule.pattern is None:
        return name
    if rule.pattern.fullmatch(name) is None:
        return None
    pieces: list[str] = []
    end = 0
    for found in rule.pattern.finditer(name):
        pieces.append(name[end : found.start()])
        pieces += ((found[part] or "") if isinstance(part, int) else part for part in rule.replacement)
        end = found.end()
        if sum(map(len, pieces)) > 2 * MAX_NAME_CHARACTERS:
            break  # user_name rejects it
    mapped = "".join((*pieces, name[end:]))
    return mapped.lower() if rule.case == "L" else mapped.upper() if rule.case == "U" else mapped
