"""What follows from the rules of acls.py for somebody who wants something: Kafka's StandardAuthorizer.

1  A super user may do everything, even while the rules are not known yet. Nobody else may do anything then.
2  A rule counts for whoever it names and from where: the principal itself or `User:*`, the address or `*`. What it
   allows to an address is allowed if it spells it as Java does, to the letter; what it denies is denied however it
   spells the address. There Kafka compares letters too, and who writes `::1` has denied nothing to anybody.
3  It counts for the operation that it names; ALL names each. Who is allowed to READ, WRITE, DELETE or ALTER is
   allowed to DESCRIBE as well, and who may ALTER_CONFIGS to DESCRIBE_CONFIGS. What is denied implies nothing.
4  Any DENY that counts wins, in whatever order and pattern the rules are; then any ALLOW.
5  Without either it is denied. Only if there is no rule at all about the resource, for anybody, and
   allow.everyone.if.no.acl.found is true, it is allowed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from trioka.protocol.errors import UnknownServerError
from trioka.protocol.lazy_dataclass import frozen

from .acls import ANYTHING, EVERYBODY, AccessRule, Acls, Operation, Pattern, Permission, ResourceKind
from .host_address import is_address_of

# By the operation that is wanted: what a rule may allow, for it to be allowed.
IMPLIED_BY: Final[Mapping[Operation, frozenset[int]]] = MappingProxyType(
    {
        Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
        Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
    }
)
# No resource's in particular: what is said of it is said of one that has no rule of its own.
SOME_NAME: Final = "hardcode"


class Who(NamedTuple):
    principal: str  # `User:ann`
    host: str  # an address, in the spelling of host_address.py


class Verdict(NamedTuple):
    allowed: bool
    because: AccessRule | str  # for the audit, which puts it into words if somebody listens


SUPER_USER: Final = Verdict(True, "a super user")
NO_RULE_ALLOWED: Final = Verdict(True, "no rule, and everyone is allowed then")
NO_RULE: Final = Verdict(False, "no rule allows it")


@frozen
class Authorizer:
    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False

    def authorize(self, acls: Acls | None, who: Who, operation: Operation, kind: ResourceKind, name: str) -> Verdict:
        """`acls` None: they are not loaded yet."""
        if who.principal in self.super_users:
            return SUPER_USER
        if acls is None:
            raise UnknownServerError("the access rules are not loaded yet")
        allowed_by: AccessRule | None = None
        has_rules = False
        for rule in acls.about(kind, name):
            has_rules = True
            if _counts(rule, who, operation):
                if rule.permission_type == Permission.ALLOW:
                    allowed_by = rule
                else:
                    return Verdict(False, rule)
        if allowed_by is not None:
            return Verdict(True, allowed_by)
        return NO_RULE_ALLOWED if not has_rules and self.allow_everyone_if_no_acl_found else NO_RULE

    def authorize_any(self, acls: Acls | None, who: Who, operation: Operation, kind: ResourceKind) -> Verdict:
        """Whether there could be a resource of this type with which it may be done. A rule that allows it counts unless
        another denies as much as it allows: the same name, or the same prefix or a shorter one."""
        some = self.authorize(acls, who, operation, kind, SOME_NAME)
        if some.allowed:
            return some
        assert acls is not None
        allowing: list[AccessRule] = []
        denied: set[tuple[int, str]] = set()
        for rule in acls:
            is_asked = rule.operation in (operation, Operation.ALL)  # here nothing is implied
            if rule.resource_type != kind or not is_asked or not _is_for(rule, who):
                continue
            if rule.permission_type == Permission.ALLOW:
                allowing.append(rule)
            elif rule.permission_type == Permission.DENY:
                if rule.pattern_type == Pattern.LITERAL and rule.resource_name == ANYTHING:
                    return Verdict(False, rule)
                denied.add((rule.pattern_type, rule.resource_name))
        for rule in allowing:
            if not _is_outweighed(rule, denied):
                return Verdict(True, rule)
        return NO_RULE


def _counts(rule: AccessRule, who: Who, operation: Operation) -> bool:
    if not _is_for(rule, who):
        return False
    if rule.operation in (operation, Operation.ALL):
        return True
    return rule.permission_type == Permission.ALLOW and rule.operation in IMPLIED_BY.get(operation, ())


def _is_for(rule: AccessRule, who: Who) -> bool:
    if rule.principal not in (who.principal, EVERYBODY):
        return False
    if rule.host in (who.host, ANYTHING):
        return True
    return rule.permission_type != Permission.ALLOW and is_address_of(who.host, rule.host)


def _is_outweighed(rule: AccessRule, denied: set[tuple[int, str]]) -> bool:
    name = rule.resource_name
    if rule.pattern_type == Pattern.LITERAL:
        if name == ANYTHING:
            return False
        if (Pattern.LITERAL, name) in denied:
            return True
    return any((Pattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
