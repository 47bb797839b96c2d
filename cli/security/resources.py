"""Parses the terms of access rules on the command line: `topic:orders`, `READ`, `User:ann`."""

import re
from typing import Final

import click

from ..terminal.failure import Exit, Failure, did_you_mean

ANY: Final = 1
ALLOW, DENY = 3, 2
RESOURCE_TYPES: Final = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional-id": 5,
    "delegation-token": 6,
    "user": 7,
}
PATTERNS: Final = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
OPERATIONS: Final = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
    "TWO_PHASE_COMMIT": 15,
}
PERMISSIONS: Final = {"DENY": DENY, "ALLOW": ALLOW}
CLUSTER: Final = "cluster"
CLUSTER_NAME: Final = "kafka-cluster"
_PRINCIPAL: Final = re.compile(r"[A-Za-z]+:.+")


def word(words: dict[str, int], number: int) -> str:
    return next((each for each, known in words.items() if known == number), str(number))


def operation(text: str) -> int:
    """Accepts READ, read, DescribeConfigs and describe-configs."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).replace("-", "_").upper()
    if plain not in OPERATIONS:
        hints = did_you_mean(plain, OPERATIONS) or [f"one of: {', '.join(OPERATIONS)}"]
        raise Failure(f"'{text}' is no operation", exit_code=Exit.USAGE, hints=hints)
    return OPERATIONS[plain]


def resource(text: str) -> tuple[int, str]:
    """`topic:orders` as the number of the type and the name. `cluster` needs no name."""
    kind, colon, name = text.partition(":")
    kind = kind.lower().replace("_", "-")
    if kind == CLUSTER and not name:
        return RESOURCE_TYPES[CLUSTER], CLUSTER_NAME
    if kind not in RESOURCE_TYPES or not colon or not name:
        hints = [*did_you_mean(kind, RESOURCE_TYPES), f"such as topic:orders; types: {', '.join(RESOURCE_TYPES)}"]
        raise Failure(f"'{text}' is no resource", exit_code=Exit.USAGE, hints=hints)
    return RESOURCE_TYPES[kind], name


def principal(text: str) -> str:
    """`User:ann`; a name alone is a user."""
    if not text or (":" in text and not _PRINCIPAL.fullmatch(text)):
        raise Failure(f"'{text}' is no principal; User:ann is one", exit_code=Exit.USAGE)
    return text if ":" in text else f"User:{text}"


PATTERN: Final = click.Choice(["literal", "prefixed"], case_sensitive=False)
PATTERN_FILTER: Final = click.Choice(list(PATTERNS), case_sensitive=False)
