"""Access rules are made and removed: CreateAcls, DeleteAcls.

Checks and errors are those of Apache Kafka 4.3.1, but for what can only stand in a filter (ANY, MATCH) or has no
meaning at all (0): there Kafka hangs up, or says of the whole request that the mistake is its own; here the rule is
refused as an invalid request, like every other one that cannot be, and those beside it are made.
"""

from collections.abc import Sequence
from random import Random
from uuid import UUID

from trioka.protocol.errors import InvalidRequest, KafkaError, PolicyViolation
from trioka.protocol.internal_records.metadata import RemoveAccessControlEntryRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.create_acls import CreateAclsRequest

from .acls import (
    CLUSTER_NAME,
    KINDS,
    OPERATIONS,
    PERMISSIONS,
    AccessRule,
    AclFilter,
    Pattern,
    ResourceKind,
    Said,
    rule_record,
)
from .decision import DONE, Decision, Outcome
from .metadata import Metadata
from .metadata_log import MAX_RECORDS_PER_BATCH, MetadataRecord

Creation = CreateAclsRequest.Creation


@frozen
class DeletedAcls:
    outcome: Outcome
    rules: tuple[AccessRule, ...] = ()


def create_acls(metadata: Metadata, random: Random, creations: Sequence[Creation]) -> Decision[Outcome]:
    """One reply for each. A rule that is there already is not made again."""
    records: dict[Said, MetadataRecord] = {}
    replies = []
    for creation in creations:
        outcome = DONE
        try:
            said = _checked(creation)
            if metadata.access.acls.id_of(said) is None and said not in records:
                if len(records) >= MAX_RECORDS_PER_BATCH:
                    raise PolicyViolation(f"a request can make {MAX_RECORDS_PER_BATCH} rules, not more")
                records[said] = rule_record(_new_id(metadata, random), said)
        except KafkaError as error:
            outcome = Outcome.of(error)
        replies.append(outcome)
    return Decision(records=tuple(records.values()), replies=tuple(replies))


def delete_acls(metadata: Metadata, filters: Sequence[AclFilter]) -> Decision[DeletedAcls]:
    """One reply for each filter, with all that it matches: a rule that two filters match is told twice."""
    removed: dict[bytes, MetadataRecord] = {}
    replies = []
    for wanted in filters:
        try:
            rules = _matching(metadata, wanted)
            gone = removed | {rule.rule_id: RemoveAccessControlEntryRecord(id=rule.rule_id) for rule in rules}
            if len(gone) > MAX_RECORDS_PER_BATCH:
                raise PolicyViolation(f"a request can remove {MAX_RECORDS_PER_BATCH} rules, not more")
            removed = gone
            replies.append(DeletedAcls(outcome=DONE, rules=rules))
        except KafkaError as error:
            replies.append(DeletedAcls(outcome=Outcome.of(error)))
    return Decision(records=tuple(removed.values()), replies=tuple(replies))


def _matching(metadata: Metadata, wanted: AclFilter) -> tuple[AccessRule, ...]:
    if not wanted.is_about_known:
        raise InvalidRequest("the filter names a type, pattern, operation or permission that is not known")
    return tuple(rule for rule in metadata.access.acls if wanted.matches(rule))


def _checked(asked: Creation) -> Said:
    if asked.resource_type not in KINDS:
        raise InvalidRequest(f"there are no rules for resources of type {asked.resource_type}")
    if asked.resource_type == ResourceKind.CLUSTER and asked.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"the cluster's only name is {CLUSTER_NAME}")
    if not asked.resource_name:
        raise InvalidRequest("the resource has no name")
    if asked.resource_pattern_type not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise InvalidRequest(f"a rule names resources literally or by a prefix, not by {asked.resource_pattern_type}")
    if asked.operation not in OPERATIONS:
        raise InvalidRequest(f"there is no operation {asked.operation}")
    if asked.permission_type not in PERMISSIONS:
        raise InvalidRequest(f"a rule allows or denies; {asked.permission_type} is neither")
    if ":" not in asked.principal:
        raise InvalidRequest(f"a principal has a type and a name, as User:ann, and {asked.principal[:200]!r} has not")
    return (
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _new_id(metadata: Metadata, random: Random) -> bytes:
    while True:
        rule_id = UUID(bytes=random.randbytes(16), version=4).bytes
        if rule_id not in metadata.access.acls.rules:
            return rule_id
