"""Access control lists: the rules that allow or deny operations on resources, as the metadata keeps them.

    rule    ALLOW or DENY · a principal · from a host · an operation · on a resource (type, name, LITERAL or PREFIXED)

They change by replay, as all metadata does. The most frequent query is which rules apply to one resource, so the rules
are also indexed by its type, pattern and name: a query takes one look-up for the name itself, one for `*`, which as
a literal name means every resource of its type, and one for each length that a prefix has.

authorizer.py decides what follows from the rules, acl_changes.py which rules are valid.
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

WILDCARD: Final = "*"  # as the literal name of a resource, or as a host
ALL_THROTTLED: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the only name that the resource of type CLUSTER has
ANY: Final = 1  # in a filter: matches every value


class AclResourceType(IntEnum):
    """The types of resources in rules; Kafka's numbers differ from those of resources with a configuration."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names its resources. MATCH is valid in filters only: it selects all rules that apply to that name."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operations. ALL is valid in rules only."""

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


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3


# As numbers, to look others up in.
KINDS: Final[frozenset[int]] = frozenset(AclResourceType)
PATTERNS: Final[frozenset[int]] = frozenset(PatternType)
OPERATIONS: Final[frozenset[int]] = frozenset(AclOperation)
PERMISSIONS: Final[frozenset[int]] = frozenset(AclPermission)


@frozen
class AccessRule:
    """Its numbers are those of the enums above, or of a later version of Kafka. A rule of a later version is kept and
    has no effect, unless only its permission is unknown: a permission other than ALLOW denies."""

    rule_id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def binding(self) -> "AclBinding":
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
            f"{_word(AclPermission, self.permission_type)} {self.principal} {_word(AclOperation, self.operation)} "
            f"from {self.host} on {_word(AclResourceType, self.resource_type)}:"
            f"{_word(PatternType, self.pattern_type)}:{self.resource_name}"
        )


AclBinding = tuple[int, str, int, str, str, int, int]  # a rule without its id: two rules with equal fields are one rule


@frozen
class AclFilter:
    """Selects rules; None and ANY match every value."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    @property
    def has_known_types(self) -> bool:
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
        if self.pattern_type not in (ANY, PatternType.MATCH, rule.pattern_type):
            return False
        if self.resource_name in (None, rule.resource_name):
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        assert self.resource_name is not None
        if rule.pattern_type == PatternType.LITERAL:
            return rule.resource_name == WILDCARD
        return rule.pattern_type == PatternType.PREFIXED and self.resource_name.startswith(rule.resource_name)


class AclStamp:
    """Identifies one state of the rules. A decision made by them holds while their stamp is the same object."""

    __slots__ = ()


class Acls:
    """All rules, indexed by id, by content, and by the resources that they apply to."""

    def __init__(self) -> None:
        self.stamp = AclStamp()  # replaced with each change
        self._rules: dict[bytes, AccessRule] = {}
        self._ids: dict[AclBinding, bytes] = {}
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

    def id_of(self, binding: AclBinding) -> bytes | None:
        return self._ids.get(binding)

    def about(self, kind: int, name: str) -> Iterator[AccessRule]:
        """The rules for one resource, of all principals."""
        about = self._about
        yield from about.get((kind, PatternType.LITERAL, name), _NONE).values()
        if name != WILDCARD:
            yield from about.get((kind, PatternType.LITERAL, WILDCARD), _NONE).values()
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from about.get((kind, PatternType.PREFIXED, name[:length]), _NONE).values()

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
        self.stamp = AclStamp()
        if self._ids.get(rule.binding) == rule.rule_id:
            del self._ids[rule.binding]
        key = (rule.resource_type, rule.pattern_type, rule.resource_name)
        del self._about[key][rule.rule_id]
        if not self._about[key]:
            del self._about[key]
        if rule.pattern_type == PatternType.PREFIXED:
            lengths, length = self._lengths[rule.resource_type], len(rule.resource_name)
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]
        return rule

    def _add(self, rule: AccessRule) -> None:
        self.stamp = AclStamp()
        self._rules[rule.rule_id] = rule
        self._ids[rule.binding] = rule.rule_id
        key = (rule.resource_type, rule.pattern_type, rule.resource_name)
        self._about.setdefault(key, {})[rule.rule_id] = rule
        if rule.pattern_type == PatternType.PREFIXED:
            lengths, length = self._lengths.setdefault(rule.resource_type, {}), len(rule.resource_name)
            lengths[length] = lengths.get(length, 0) + 1

    def records(self) -> Iterator[MetadataRecord]:
        for _, rule in sorted(self._rules.items()):
            yield rule_record(rule.rule_id, rule.binding)


_NONE: Final[Mapping[bytes, AccessRule]] = MappingProxyType({})


def rule_record(rule_id: bytes, binding: AclBinding) -> AccessControlEntryRecord:
    resource_type, resource_name, pattern_type, principal, host, operation, permission_type = binding
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
