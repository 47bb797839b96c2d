"""Creates and deletes access rules: CreateAcls, DeleteAcls.

Checks and errors are those of Apache Kafka 4.3.1, except for values that are valid only in a filter (ANY, MATCH) or
never (0): there Kafka closes the connection or answers the whole request with UNKNOWN_SERVER_ERROR; here the rule is
refused as an invalid request, like every other invalid rule, and the other rules of the request are created.
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
    AclBinding,
    AclFilter,
    AclResourceType,
    PatternType,
    rule_record,
)
from .decision import DONE, Decision, ItemResult
from .metadata import Metadata
from .metadata_log import MAX_RECORDS_PER_BATCH, MetadataRecord

Creation = CreateAclsRequest.Creation


@frozen
class DeletedAcls:
    outcome: ItemResult
    rules: tuple[AccessRule, ...] = ()


def create_acls(metadata: Metadata, random: Random, creations: Sequence[Creation]) -> Decision[ItemResult]:
    """One reply for each rule. An existing rule is not created again."""
    records: dict[AclBinding, MetadataRecord] = {}
    replies = []
    for creation in creations:
        outcome = DONE
        try:
            binding = _checked(creation)
            if metadata.access.acls.id_of(binding) is None and binding not in records:
                if len(records) >= MAX_RECORDS_PER_BATCH:
                    raise PolicyViolation(f"a request can make {MAX_RECORDS_PER_BATCH} rules, not more")
                records[binding] = rule_record(_new_id(metadata, random), binding)
        except KafkaError as error:
            outcome = ItemResult.of(error)
        replies.append(outcome)
    return Decision(records=tuple(records.values()), replies=tuple(replies))


def delete_acls(metadata: Metadata, filters: Sequence[AclFilter]) -> Decision[DeletedAcls]:
    """One reply for each filter, with all rules that it matches: a rule that two filters match is reported twice."""
    removed: dict[bytes, MetadataRecord] = {}
    replies = []
    for acl_filter in filters:
        try:
            rules = _matching(metadata, acl_filter)
            gone = removed | {rule.rule_id: RemoveAccessControlEntryRecord(id=rule.rule_id) for rule in rules}
            if len(gone) > MAX_RECORDS_PER_BATCH:
                raise PolicyViolation(f"a request can remove {MAX_RECORDS_PER_BATCH} rules, not more")
            removed = gone
            replies.append(DeletedAcls(outcome=DONE, rules=rules))
        except KafkaError as error:
            replies.append(DeletedAcls(outcome=ItemResult.of(error)))
    return Decision(records=tuple(removed.values()), replies=tuple(replies))


def _matching(metadata: Metadata, acl_filter: AclFilter) -> tuple[AccessRule, ...]:
    if not acl_filter.has_known_types:
        raise InvalidRequest("the filter names a type, pattern, operation or permission that is not known")
    return tuple(rule for rule in metadata.access.acls if acl_filter.matches(rule))


def _checked(creation: Creation) -> AclBinding:
    if creation.resource_type not in KINDS:
        raise InvalidRequest(f"there are no rules for resources of type {creation.resource_type}")
    if creation.resource_type == AclResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"the cluster's only name is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise InvalidRequest("the resource has no name")
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(
            f"a rule names resources literally or by a prefix, not by {creation.resource_pattern_type}"
        )
    if creation.operation not in OPERATIONS:
        raise InvalidRequest(f"there is no operation {creation.operation}")
    if creation.permission_type not in PERMISSIONS:
        raise InvalidRequest(f"a rule allows or denies; {creation.permission_type} is neither")
    if ":" not in creation.principal:
        raise InvalidRequest(
            f"a principal has a type and a name, as User:ann, and {creation.principal[:200]!r} has not"
        )
    return (
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _new_id(metadata: Metadata, random: Random) -> bytes:
    while True:
        rule_id = UUID(bytes=random.randbytes(16), version=4).bytes
        if rule_id not in metadata.access.acls.rules:
            return rule_id
