"""Decides from the rules of acls.py whether a principal may do something: Kafka's StandardAuthorizer.

1  A super user may do everything, even before the rules are loaded. Other principals may do nothing then.
2  A rule applies to its principal and its host: the principal itself or `User:*`, the address or `*`. What it
   allows to an address is allowed if the rule spells the address exactly as Java does; what it denies is denied in
   every spelling of the address. Kafka compares text there, so that a denial of `::1` has no effect.
3  It applies to its operation; ALL covers each. A principal that may READ, WRITE, DELETE or ALTER is
   allowed to DESCRIBE as well, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. A denial implies nothing.
4  Any DENY that applies takes precedence, in any order and pattern of the rules; then any ALLOW.
5  Without either it is denied. Only if there is no rule about the resource, for any principal, and
   allow.everyone.if.no.acl.found is true, it is allowed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from trioka.protocol.errors import UnknownServerError
from trioka.protocol.lazy_dataclass import frozen

from .acls import ALL_THROTTLED, WILDCARD, AccessRule, AclOperation, AclPermission, AclResourceType, Acls, PatternType
from .host_address import is_address_of

# By requested operation: the operations whose ALLOW rules allow it.
IMPLIED_BY: Final[Mapping[AclOperation, frozenset[int]]] = MappingProxyType(
    {
        AclOperation.DESCRIBE: frozenset(
            {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
        ),
        AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
    }
)
# A pseudo resource: its rules apply to every resource that has no rule of its own.
ANY_RESOURCE_NAME: Final = "hardcode"


class Requester(NamedTuple):
    principal: str  # `User:ann`
    host: str  # an address, in the spelling of host_address.py


class AuthorizationResult(NamedTuple):
    allowed: bool
    because: AccessRule | str  # for the audit log, which formats it only if that log is enabled


SUPER_USER: Final = AuthorizationResult(True, "a super user")
NO_RULE_ALLOWED: Final = AuthorizationResult(
    True, "no rule for the resource, and allow.everyone.if.no.acl.found is true"
)
NO_RULE: Final = AuthorizationResult(False, "no rule allows it")


@frozen
class Authorizer:
    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False

    def authorize(
        self, acls: Acls | None, requester: Requester, operation: AclOperation, kind: AclResourceType, name: str
    ) -> AuthorizationResult:
        """`acls` None: they are not loaded yet."""
        if requester.principal in self.super_users:
            return SUPER_USER
        if acls is None:
            raise UnknownServerError("the access rules are not loaded yet")
        allowed_by: AccessRule | None = None
        has_rules = False
        for rule in acls.about(kind, name):
            has_rules = True
            if _applies(rule, requester, operation):
                if rule.permission_type == AclPermission.ALLOW:
                    allowed_by = rule
                else:
                    return AuthorizationResult(False, rule)
        if allowed_by is not None:
            return AuthorizationResult(True, allowed_by)
        return NO_RULE_ALLOWED if not has_rules and self.allow_everyone_if_no_acl_found else NO_RULE

    def authorize_any(
        self, acls: Acls | None, requester: Requester, operation: AclOperation, kind: AclResourceType
    ) -> AuthorizationResult:
        """Whether a resource of this type may exist on which the operation is allowed. An ALLOW rule counts unless a
        DENY rule covers all of it: the same name, or the same prefix or a shorter one."""
        some = self.authorize(acls, requester, operation, kind, ANY_RESOURCE_NAME)
        if some.allowed:
            return some
        assert acls is not None
        allowing: list[AccessRule] = []
        denied: set[tuple[int, str]] = set()
        for rule in acls:
            has_operation = rule.operation in (operation, AclOperation.ALL)  # here nothing is implied
            if rule.resource_type != kind or not has_operation or not _matches_requester(rule, requester):
                continue
            if rule.permission_type == AclPermission.ALLOW:
                allowing.append(rule)
            elif rule.permission_type == AclPermission.DENY:
                if rule.pattern_type == PatternType.LITERAL and rule.resource_name == WILDCARD:
                    return AuthorizationResult(False, rule)
                denied.add((rule.pattern_type, rule.resource_name))
        for rule in allowing:
            if not _is_overridden(rule, denied):
                return AuthorizationResult(True, rule)
        return NO_RULE


def _applies(rule: AccessRule, requester: Requester, operation: AclOperation) -> bool:
    if not _matches_requester(rule, requester):
        return False
    if rule.operation in (operation, AclOperation.ALL):
        return True
    return rule.permission_type == AclPermission.ALLOW and rule.operation in IMPLIED_BY.get(operation, ())


def _matches_requester(rule: AccessRule, requester: Requester) -> bool:
    if rule.principal not in (requester.principal, ALL_THROTTLED):
        return False
    if rule.host in (requester.host, WILDCARD):
        return True
    return rule.permission_type != AclPermission.ALLOW and is_address_of(requester.host, rule.host)


def _is_overridden(rule: AccessRule, denied: set[tuple[int, str]]) -> bool:
    name = rule.resource_name
    if rule.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
