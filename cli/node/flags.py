"""The options of the commands that start a broker, declared once and read in two ways.

`trioka dev` is ready in half a second, of which loading click would be a tenth. So click, which parses every other
command line, is not loaded for simple command lines: `read` parses the plain forms `--port 9092`, `--port=9092`,
`--check` and one file name, and gives up on everything else. A caller that gets None uses click, which is built from
the same declarations (`node/command.py`) and handles everything else: help, abbreviations, errors. A test runs both
parsers on the same command lines and compares the results.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

Values: TypeAlias = dict[str, "int | str | bool | tuple[str, ...] | None"]

DEFAULT_PORT: Final = 9092


class Flag(NamedTuple):
    """`kind` is the type of the value; `tuple` for an option that may be repeated."""

    name: str
    kind: type[int] | type[str] | type[bool] | type[tuple[str, ...]]
    default: int | str | None
    metavar: str
    help: str
    one_of: tuple[str, ...] = ()  # the allowed values, if limited

    @property
    def key(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    def nothing(self) -> int | str | bool | tuple[str, ...] | None:
        """The value of an option that is not given."""
        if self.kind is tuple:
            return ()
        return False if self.kind is bool else self.default


class StartCommand(NamedTuple):
    """A command that starts a broker. `file` is the name of its only argument, which is optional."""

    summary: str
    flags: tuple[Flag, ...]
    file: str | None = None


JSON: Final = "json"
LOG_FORMATS: Final = ("auto", "human", JSON)
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
DEFAULT_LOG_LEVEL: Final = "warning"
LOG_FLAGS: Final = (
    Flag("--log-format", str, "auto", "FORMAT", "human, json (every line), or auto: human on a terminal", LOG_FORMATS),
    Flag(
        "--log-level",
        str,
        DEFAULT_LOG_LEVEL,
        "LEVEL",
        f"one of {', '.join(LOG_LEVELS)}; default warning, and start, stop and changes of leaders",
        LOG_LEVELS,
    ),
)

START_COMMANDS: Final[Mapping[str, StartCommand]] = {
    "dev": StartCommand(
        "one broker to develop with, or a cluster",
        (
            Flag("--nodes", int, 1, "N", "the number of nodes, each a process with the next port; default 1"),
            Flag("--port", int, DEFAULT_PORT, "N", f"default {DEFAULT_PORT}; 0 takes a free port"),
            Flag("--host", str, "127.0.0.1", "HOST", "the address to listen on; default 127.0.0.1"),
            Flag("--advertise", str, None, "HOST[:PORT]", "the address that clients connect to; default --host"),
            Flag("--http-port", str, None, "N|off", "the port of metrics and health; default --port plus 1000"),
            Flag("--data", str, None, "DIR", "keep the data in this directory; default: in memory"),
            Flag("--topic", tuple, None, "NAME:PARTS", "create this topic if it does not exist; repeatable"),
            Flag("--set", tuple, None, "KEY=VALUE", "set a configuration key; repeatable"),
            Flag("--tls", bool, None, "", "use TLS: create a CA, a certificate and a client.properties"),
            Flag("--sasl", bool, None, "", "require logins: create a user with a random password, enforce ACLs"),
            Flag("--gateway", bool, None, "", "start `trioka gateway` too, gRPC and HTTP, as its own process"),
            Flag("--registry", bool, None, "", "start the gateway with a schema registry"),
            Flag("--demo", bool, None, "", "produce sample orders all the time, and read them by a group"),
            *LOG_FLAGS,
        ),
    ),
    "serve": StartCommand(
        "one broker from Kafka's own server.properties",
        (
            Flag("--override", tuple, None, "KEY=VALUE", "set a key, overriding the file; repeatable"),
            Flag("--check", bool, None, "", "only check the configuration"),
            *LOG_FLAGS,
        ),
        "server.properties",
    ),
}


def read(starter: StartCommand, arguments: Sequence[str]) -> Values | None:
    """The values of a command line in plain form; None for any other."""
    flags = {flag.name: flag for flag in starter.flags}
    values: Values = {flag.key: flag.nothing() for flag in starter.flags}
    if starter.file is not None:
        values["file"] = None
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if not word.startswith("-"):
            if starter.file is None or values["file"] is not None:
                return None
            values["file"] = word
            continue
        name, has_value, value = word.partition("=")
        flag = flags.get(name)
        if flag is None or (flag.kind is bool and has_value):
            return None
        if flag.kind is bool:
            values[flag.key] = True
            continue
        if not has_value:
            if not rest or rest[-1].startswith("-"):
                return None
            value = rest.pop()
        if not _take(flag, value, values):
            return None
    return values


def _take(flag: Flag, value: str, values: Values) -> bool:
    if flag.kind is int:
        if not (value.isascii() and value.isdigit()):
            return False
        values[flag.key] = int(value)
    elif flag.kind is tuple:
        before = values[flag.key]
        assert isinstance(before, tuple)
        values[flag.key] = (*before, value)
    elif flag.one_of and value not in flag.one_of:
        return False
    else:
        values[flag.key] = value
    return True
