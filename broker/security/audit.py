"""The audit log of changes: which client has changed which ACL, SCRAM credential, token, quota or configuration.

    decision = await audited_change(broker, call, lambda controller: controller.create_acls(…))

The lines are made from the records of the decision, so they describe what has changed and not what was requested. They
are written on the active controller, which knows the client of a request that another node has forwarded. Secrets, such
as keys of credentials, HMACs of tokens and sensitive values of configurations, are omitted.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from trioka.cluster.decision import Decision
from trioka.cluster.image.acls import AccessRule, AclOperation, AclPermission, AclResourceType, PatternType
from trioka.cluster.image.configs import ConfigResource, ConfigResourceType
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.quotas import quota_entity
from trioka.cluster.quorum.metadata_log import MetadataRecord
from trioka.protocol.errors import NONE
from trioka.protocol.internal_records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from trioka.protocol.messages.alter_configs import AlterConfigsResponse
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from trioka.protocol.sasl.scram import SCRAM_MECHANISMS

from ..config.key import GROUP_KEYS, TOPIC_KEYS, broker_key_of
from ..logs.lines import in_a_line

if TYPE_CHECKING:
    from trioka.cluster.controller.controller import Controller

    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.audit")

MAX_LINES: Final = 100  # of one request
HIDDEN: Final = "[hidden]"
NO_VALUE: Final = "no value"

T = TypeVar("T")
ConfigResult: TypeAlias = AlterConfigsResponse.Resource | IncrementalAlterConfigsResponse.Resource


class AuditedChange(NamedTuple):
    kind: str
    name: str
    what: str  # a past participle, with optional details


async def audited_change(
    broker: "Broker", call: "Call", decide: "Callable[[Controller], Decision[T]]"
) -> "Decision[T]":
    """Makes a change by the controller, and writes it to the audit log when it is applied."""
    changes: list[AuditedChange] = []

    def decide_and_describe(controller: "Controller") -> "Decision[T]":
        decision = decide(controller)
        changes.extend(described(decision.records, controller.metadata))  # before its records are replayed
        return decision

    decision = await broker.quorum.change(decide_and_describe)
    _write(call, changes)
    return decision


def audit_forwarded_configs(call: "Call", results: Sequence[ConfigResult]) -> None:
    """Logs changes of configurations that this node has requested from the controller. The controller logs the change
    under the name of this node; only this node knows the client."""
    done = [each for each in results if each.error_code == NONE]
    changes = (
        AuditedChange(
            _config_kind(each.resource_type), each.resource_name or "<default>", "changed through the controller"
        )
        for each in done
    )
    _write(call, list(changes))


def _write(call: "Call", changes: Sequence[AuditedChange]) -> None:
    principal, host = in_a_line(call.connection.principal), call.connection.host
    for change in changes[:MAX_LINES]:
        log.info("%s %s %s by %s from %s", change.kind, in_a_line(change.name), change.what, principal, host)
    if len(changes) > MAX_LINES:
        log.info("%d more changes by %s from %s", len(changes) - MAX_LINES, principal, host)


def described(records: Sequence[MetadataRecord], before: Metadata) -> Iterator[AuditedChange]:
    """The changes to the metadata that these records make; records without a line in the audit log are skipped."""
    for record in records:
        match record:
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                yield _of_acl(record, before)
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                yield _of_credential(record, before)
            case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                yield _of_token(record, before)
            case ClientQuotaRecord():
                yield _of_quota(record, before)
            case ConfigRecord():
                yield _of_config(record, before)
            case _:
                pass


def _of_acl(record: AccessControlEntryRecord | RemoveAccessControlEntryRecord, before: Metadata) -> AuditedChange:
    if isinstance(record, AccessControlEntryRecord):
        return AuditedChange("ACL", _rule_text(record), "created")
    rule = before.access.acls.rules.get(record.id)
    return AuditedChange("ACL", "unknown" if rule is None else _rule_text(rule), "deleted")


def _rule_text(rule: AccessRule | AccessControlEntryRecord) -> str:
    permission, operation = _named(AclPermission, rule.permission_type), _named(AclOperation, rule.operation)
    kind, pattern = _named(AclResourceType, rule.resource_type), _named(PatternType, rule.pattern_type)
    return f"{permission} {operation} on {kind} {pattern} {rule.resource_name} to {rule.principal} from {rule.host}"


def _named(kind: type[AclPermission | AclOperation | AclResourceType | PatternType], number: int) -> str:
    return next((each.name for each in kind if each == number), str(number))


def _of_credential(
    record: UserScramCredentialRecord | RemoveUserScramCredentialRecord, before: Metadata
) -> AuditedChange:
    mechanism = next((each.name for each in SCRAM_MECHANISMS.values() if each.number == record.mechanism), "SCRAM")
    if isinstance(record, RemoveUserScramCredentialRecord):
        return AuditedChange("SCRAM user", record.name, f"deleted for {mechanism}")
    is_new = before.access.scram(record.name, record.mechanism) is None
    what = f"{'created' if is_new else 'changed'} for {mechanism} with {record.iterations} iterations"
    return AuditedChange("SCRAM user", record.name, what)


def _of_token(record: DelegationTokenRecord | RemoveDelegationTokenRecord, before: Metadata) -> AuditedChange:
    if isinstance(record, RemoveDelegationTokenRecord):
        return AuditedChange("delegation token", record.token_id, "removed")
    known = before.access.tokens.get(record.token_id)
    if known is None:
        what = f"created for {in_a_line(record.owner)} until {record.expiration_timestamp}"
    else:
        renewed = "renewed" if record.expiration_timestamp >= known.expiry_ms else "shortened"
        what = f"{renewed} from {known.expiry_ms} to {record.expiration_timestamp}"
    return AuditedChange("delegation token", record.token_id, what)


def _of_quota(record: ClientQuotaRecord, before: Metadata) -> AuditedChange:
    parts = {part.entity_type: part.entity_name for part in record.entity}
    old = before.quotas.get(quota_entity(parts)).get(record.key)
    name = " ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in sorted(parts.items()))
    after = NO_VALUE if record.remove else str(record.value)
    return AuditedChange("quota of", name, f"{record.key} changed from {NO_VALUE if old is None else old} to {after}")


def _of_config(record: ConfigRecord, before: Metadata) -> AuditedChange:
    resource = ConfigResource(record.resource_type, record.resource_name)
    old = before.configs.value(resource, record.name)
    is_hidden = _is_hidden(record)
    was, now = (NO_VALUE if text is None else HIDDEN if is_hidden else repr(text) for text in (old, record.value))
    what = f"{in_a_line(record.name)} changed from {in_a_line(was)} to {in_a_line(now)}"
    return AuditedChange(_config_kind(record.resource_type), record.resource_name or "<default>", what)


def _config_kind(number: int) -> str:
    kind = next((each.name.lower() for each in ConfigResourceType if each == number), "resource")
    return f"configuration of {kind}"


def _is_hidden(record: ConfigRecord) -> bool:
    """Whether the value may be a secret; unknown keys count as secret."""
    if record.resource_type == ConfigResourceType.BROKER:
        key = broker_key_of(record.name)
        return key is None or key.type.sensitive
    known = TOPIC_KEYS | GROUP_KEYS
    return record.name not in known and record.resource_type != ConfigResourceType.CLIENT_METRICS
