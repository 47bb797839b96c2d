"""Access control lists: the rules that say who may do what to what, as the metadata keeps them.

    rule    ALLOW or DENY · a principal · from a host · an operation · on a resource (type, name, LITERAL or PREFIXED)

They change by replay, as all metadata does. What is asked all the time is which rules are about one resource, so they
are kept by its type, pattern and name, too: to find them takes one look-up for the name itself, one for `*`, which as
a literal name means every resource of its type, and one for each length that a prefix has.

What follows from the rules is in authorizer.py, what may become one in acl_changes.py.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from trioka.protocol.internal_records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import uuid_text

from .metadata_log import MetadataRecord
from .replay_error import ReplayError

ANYTHING: Final = "*"  # as the literal name of a resource, or as a host
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the only name that the resource of type CLUSTER has
ANY: Final = 1  # in a filter: whatever it is


class ResourceKind(IntEnum):
    """What there can be rules about; Kafka's numbers, which are not those of resources that have a configuration."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a rule names its resources. MATCH stands in filters only: whatever is about a resource of that name."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What may be done. ALL stands in rules only."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


# As numbers, to look others up in.
KINDS: Final[frozenset[int]] = frozenset(ResourceKind)
PATTERNS: Final[frozenset[int]] = frozenset(Pattern)
OPERATIONS: Final[frozenset[int]] = frozenset(Operation)
PERMISSIONS: Final[frozenset[int]] = frozenset(Permission)


@frozen
class AccessRule:
    """Its numbers are those of the enums above, or of a later version of Kafka. Then it is kept, and stays without
    effect, unless it is only its permission that nobody knows: what does not allow, denies."""

    rule_id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def said(self) -> "Said":
        return (
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )

    def __str__(self) -> str:
        return (
            f"{_word(Permission, self.permission_type)} {self.principal} {_word(Operation, self.operation)} "
            f"from {self.host} on {_word(ResourceKind, self.resource_type)}:"
            f"{_word(Pattern, self.pattern_type)}:{self.resource_name}"
        )


Said = tuple[int, str, int, str, str, int, int]  # a rule without its id: two rules that say the same are one


@frozen
class AclFilter:
    """Which rules are meant; None and ANY stand for whatever it is."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    @property
    def is_about_known(self) -> bool:
        """Whether all of its numbers mean something."""
        return (
            (self.resource_type == ANY or self.resource_type in KINDS)
            and (self.pattern_type == ANY or self.pattern_type in PATTERNS)
            and (self.operation == ANY or self.operation in OPERATIONS)
            and (self.permission_type == ANY or self.permission_type in PERMISSIONS)
        )

    def matches(self, rule: AccessRule) -> bool:
        return (
            self.resource_type in (ANY, rule.resource_type)
            and self._matches_name(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (ANY, rule.operation)
            and self.permission_type in (ANY, rule.permission_type)
        )

    def _matches_name(self, rule: AccessRule) -> bool:
        if self.pattern_type not in (ANY, Pattern.MATCH, rule.pattern_type):
            return False
        if self.resource_name in (None, rule.resource_name):
            return True
        if self.pattern_type != Pattern.MATCH:
            return False
        assert self.resource_name is not None
        if rule.pattern_type == Pattern.LITERAL:
            return rule.resource_name == ANYTHING
        return rule.pattern_type == Pattern.PREFIXED and self.resource_name.startswith(rule.resource_name)


class Acls:
    """All rules, by their ids, by what they say, and by what they are about."""

    def __init__(self) -> None:
        self._rules: dict[bytes, AccessRule] = {}
        self._ids: dict[Said, bytes] = {}
        self._about: dict[tuple[int, int, str], dict[bytes, AccessRule]] = {}  # resource type, pattern, name
        self._lengths: dict[int, dict[int, int]] = {}  # by resource type: how many rules have a prefix of a length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self._rules == other._rules

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[AccessRule]:
        return iter(self._rules.values())

    @property
    def rules(self) -> Mapping[bytes, AccessRule]:
        return MappingProxyType(self._rules)

    def id_of(self, said: Said) -> bytes | None:
        return self._ids.get(said)

    def about(self, kind: int, name: str) -> Iterator[AccessRule]:
        """The rules that hold for one resource, whoever they are for."""
        about = self._about
        yield from about.get((kind, Pattern.LITERAL, name), _NONE).values()
        if name != ANYTHING:
            yield from about.get((kind, Pattern.LITERAL, ANYTHING), _NONE).values()
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from about.get((kind, Pattern.PREFIXED, name[:length]), _NONE).values()

    def copy(self) -> "Acls":
        acls = Acls()
        for rule in self._rules.values():
            acls._add(rule)
        return acls

    # --- replay

    def replay(self, record: AccessControlEntryRecord) -> AccessRule:
        if record.id in self._rules:
            raise ReplayError(f"an access rule with the id {uuid_text(record.id)} exists already")
        rule = AccessRule(
            rule_id=record.id,
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission_type=record.permission_type,
        )
        self._add(rule)
        return rule

    def replay_removal(self, record: RemoveAccessControlEntryRecord) -> AccessRule:
        rule = self._rules.pop(record.id, None)
        if rule is None:
            raise ReplayError(f"there is no access rule with the id {uuid_text(record.id)}")
        if self._ids.get(rule.said) == rule.rule_id:
            del self._ids[rule.said]
        key = (rule.resource_type, rule.pattern_type, rule.resource_name)
        del self._about[key][rule.rule_id]
        if not self._about[key]:
            del self._about[key]
        if rule.pattern_type == Pattern.PREFIXED:
            lengths, length = self._lengths[rule.resource_type], len(rule.resource_name)
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]
        return rule

    def _add(self, rule: AccessRule) -> None:
        self._rules[rule.rule_id] = rule
        self._ids[rule.said] = rule.rule_id
        key = (rule.resource_type, rule.pattern_type, rule.resource_name)
        self._about.setdefault(key, {})[rule.rule_id] = rule
        if rule.pattern_type == Pattern.PREFIXED:
            lengths, length = self._lengths.setdefault(rule.resource_type, {}), len(rule.resource_name)
            lengths[length] = lengths.get(length, 0) + 1

    def records(self) -> Iterator[MetadataRecord]:
        for _, rule in sorted(self._rules.items()):
            yield rule_record(rule.rule_id, rule.said)


_NONE: Final[Mapping[bytes, AccessRule]] = MappingProxyType({})


def rule_record(rule_id: bytes, said: Said) -> AccessControlEntryRecord:
    resource_type, resource_name, pattern_type, principal, host, operation, permission_type = said
    return AccessControlEntryRecord(
        id=rule_id,
        resource_type=resource_type,
        resource_name=resource_name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission_type,
    )


def _word(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if number in frozenset[int](kind) else str(number)
