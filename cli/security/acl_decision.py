"""The access rule that decides a request: the cluster's rules, evaluated by the broker's authorizer.

It is an exception to the rule that the command line imports nothing but the protocol: Kafka's precedence is implemented
once, in `trioka.cluster.authorizer`, which is pure code.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trioka.cluster.acls import AccessRule, AclOperation, AclResourceType, Acls
from trioka.cluster.authorizer import Authorizer, Requester
from trioka.cluster.host_address import java_text
from trioka.protocol.internal_records.metadata import AccessControlEntryRecord

from .resources import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCE_TYPES, word

RULE_ID_BYTES: Final = 16


class Rule(NamedTuple):
    """An access rule, in the numbers of Kafka's protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def words(self) -> str:
        kind = word(RESOURCE_TYPES, self.resource_type)
        return (
            f"{word(PERMISSIONS, self.permission_type)} {self.principal} {word(OPERATIONS, self.operation)} on "
            f"{word(PATTERNS, self.pattern_type)} {kind}:{self.resource_name} from {self.host}"
        )


class AclDecision(NamedTuple):
    """`rule` is the rule that decides; without one, `reason` says why."""

    allowed: bool
    rule: Rule | None
    reason: str


def decide(
    rules: Iterable[Rule],
    *,
    principal: str,
    host: str,
    operation: int,
    resource: tuple[int, str],
) -> AclDecision:
    """Decide by the rules alone: super.users and allow.everyone.if.no.acl.found are not considered."""
    acls = Acls()
    for number, rule in enumerate(rules):
        acls.replay(AccessControlEntryRecord(id=number.to_bytes(RULE_ID_BYTES), **rule._asdict()))
    result = Authorizer().authorize(
        acls, Requester(principal, java_text(host)), AclOperation(operation), AclResourceType(resource[0]), resource[1]
    )
    if isinstance(result.because, AccessRule):
        rule = Rule(*result.because.binding)
        return AclDecision(result.allowed, rule, rule.words())
    return AclDecision(False, None, f"no rule allows it to {principal} from {host}")
