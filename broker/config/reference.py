"""docs/CONFIG.md, from the declarations: `make docs` writes it, a test compares it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .group_keys import LEVELS, LOGGERS
from .key import AUTHORIZER_KEYS, BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, HONOURED, TOPIC_KEYS, Key
from .server import FORMER, UNDECLARED
from .values import DOUBLE_MAX, INT_MAX, LONG_MAX

_MODES: Final = {"read-only": "new start", "per-broker": "broker", "cluster-wide": "all brokers"}
_LARGEST: Final = {INT_MAX: "2³¹ − 1", LONG_MAX: "2⁶³ − 1", DOUBLE_MAX: "no limit"}

_OPENING: Final = """\
# Configuration

<!-- Written by `make docs` from broker/config/*_keys.py. Change it there. -->

trioka takes Kafka's own keys, from a `server.properties`, from the environment (`KAFKA_LOG_RETENTION_MS=…`) and from
`--override log.retention.ms=…`, each stronger than the one before. An unknown key is a warning with a suggestion; a
value that makes no sense stops the start with one sentence.

Types, defaults and limits are those of Apache Kafka 4.3. A key of brokers changes by a *new start*, for one *broker*
while it runs, or for one or *all brokers* while they run. A key with a † is accepted and has no effect; the reasons
stand below each table.
"""


def reference() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _OPENING
    yield "## Topics\n"
    yield "What a topic does not set, it takes from the broker's key behind it; of several, the first that is set.\n"
    yield from _table(TOPIC_KEYS, "Broker's key", lambda key: ", ".join(f"`{other.name}`" for other in key.synonyms))
    yield "## Brokers\n"
    yield "A key may be set for one listener: `listener.name.<listener>.<key>`.\n"
    yield from _table(BROKER_KEYS, "Changed by", lambda key: _MODES[key.mode.words])
    yield "## Authorizer\n"
    yield "In server.properties, where `authorizer.class.name` is set. DescribeConfigs does not tell their values.\n"
    yield from _table(AUTHORIZER_KEYS, "Changed by", lambda key: _MODES[key.mode.words])
    yield "## Groups\n"
    yield from _table(GROUP_KEYS, "Broker's key", lambda key: ", ".join(f"`{other.name}`" for other in key.synonyms))
    yield "## Client metrics\n"
    yield from _table(CLIENT_METRICS_KEYS, "Changed by", lambda _: "subscription")
    yield "## Loggers\n"
    yield f"Their level, one of {', '.join(LEVELS)}, can be set while a broker runs:"
    yield f"{', '.join(f'`{name}`' for name in LOGGERS)}.\n"
    yield "## Ignored\n"
    yield "Keys that start with `zookeeper.`, `password.encoder.`, `log4j.` and the like, keys of Kafka's past"
    yield f"({', '.join(f'`{name}`' for name in sorted(FORMER))}), and a few of its present:\n"
    yield from (f"- `{name}` {reason}." for name, reason in sorted(UNDECLARED.items()))
    yield ""


def _table(keys: Mapping[str, Key[object]], title: str, last: Callable[[Key[object]], str]) -> Iterator[str]:
    yield f"| Key | Meaning | Type | Default | Valid | {title} |"
    yield "|---|---|---|---|---|---|"
    for name in sorted(keys):
        key = keys[name]
        mark = "" if key.effect == HONOURED else " †"
        yield f"| `{name}`{mark} | {key.doc} | {key.type.name} | {_default(key)} | {key.type.valid()} | {last(key)} |"
    yield ""
    for effect in sorted({key.effect for key in keys.values()} - {HONOURED}):
        names = ", ".join(f"`{name}`" for name in sorted(keys) if keys[name].effect == effect)
        yield f"- † {effect}: {names}"
    yield ""


def _default(key: Key[object]) -> str:
    if key.required:
        return "*required*"
    if isinstance(key.default, int | float) and key.default in _LARGEST:
        return _LARGEST[key.default]
    text = key.default_text
    return "" if text is None else f"`{text}`" if text else "*empty*"
