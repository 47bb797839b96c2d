r"""Parses properties files, environment variables and `--override key=value`.

    # a comment          key=value     key: value     key value     key
    ! another comment    a\tb = the key has a tab     a line that ends with a backslash \
                                                       continues, without its leading blanks

The format is that of java.util.Properties: the key ends at the first unescaped =, : or blank; \t \n \r \f and \u0041
are escapes, and a backslash before any other character is dropped. The last line with a key wins. Java reads these
files as Latin-1; this parser reads a file that is valid UTF-8 as UTF-8, as editors do.

Environment variables are named as in Kafka's Docker image: KAFKA_ and the key in upper case, with _ for ., __ for _
and ___ for -.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MAX_FILE_BYTES: Final = 4 * 1024 * 1024

PREFIX: Final = "KAFKA_"
# Variables with that prefix that do not stand for configuration keys.
NOT_KEYS: Final = frozenset(
    {
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_CLUSTER_ID",
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """The text is not a valid properties file; the message names the line."""


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse a properties file."""
    if len(data) > MAX_FILE_BYTES:
        raise PropertiesError(f"The properties file has {len(data)} bytes; the maximum is {MAX_FILE_BYTES}.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return dict(_pair(number, line) for number, line in _logical_lines(text))


def parse_overrides(pairs: Iterable[str]) -> dict[str, str]:
    """Parse the values of `--override key=value`."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key.strip() or not equals:
            raise PropertiesError(f"The override '{pair}' must have the form key=value.")
        overrides[key.strip()] = value.strip()
    return overrides


def parse_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The configuration keys among the environment variables."""
    return {
        key_of_variable(name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in NOT_KEYS
    }


def key_of_variable(name: str) -> str:
    """`KAFKA_LOG_RETENTION_MS` is log.retention.ms."""
    return re.sub("_{1,3}", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], name.removeprefix(PREFIX).lower())


def variable_of_key(key: str) -> str:
    """log.retention.ms is `KAFKA_LOG_RETENTION_MS`."""
    return PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without blanks and comments, with continuations joined, each with the number of its first line."""
    joined = ""
    first = 0
    for number, natural in enumerate(re.split("\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANKS)
        if not joined:  # also after a line of only a backslash: Java then still accepts a comment
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined = ""
    if joined:
        yield first, joined


def _pair(number: int, line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescaped(number, key), _unescaped(number, rest)


def _unescaped(number: int, text: str) -> str:
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        escape = match[1]
        if not escape.startswith("u"):
            return _ESCAPES.get(escape, escape)
        if not re.fullmatch("u[0-9a-fA-F]{4}", escape):
            raise PropertiesError(f"Line {number} has \\{escape}, but \\u needs four hexadecimal digits.")
        return chr(int(escape[1:], 16))

    # Two escapes that form a surrogate pair are one character.
    unescaped = re.sub(r"\\(u.{0,4}|.|$)", replacement, text, flags=re.S)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
