"""Access rules: which are about a resource, and what follows from them. Each rule of the authorizer has its mistake."""

from collections.abc import Callable
from itertools import count, permutations
from types import ModuleType

import pytest
from mutants.plant import assert_noticed, within

from trioka.cluster import acls as acls_module
from trioka.cluster import authorizer as authorizer_module
from trioka.cluster.acls import AclFilter, AclOperation, AclPermission, AclResourceType, Acls, PatternType
from trioka.cluster.replay_error import ReplayError
from trioka.protocol.errors import UnknownServerError
from trioka.protocol.internal_records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

ANN, BOB = "User:ann", "User:bob"
HERE, THERE = "10.0.0.7", "10.0.0.8"
TOPIC = AclResourceType.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

_ids = count(1)


def record(
    name: str = "orders",
    operation: AclOperation = READ,
    permission: AclPermission = AclPermission.ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = ANN,
    host: str = "*",
    kind: AclResourceType = TOPIC,
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=next(_ids).to_bytes(16),
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def deny(name: str = "orders", operation: AclOperation = READ, **more: str | PatternType) -> AccessControlEntryRecord:
    return record(name, operation, AclPermission.DENY, **more)  # type: ignore[arg-type]


def stored(*records: AccessControlEntryRecord, module: ModuleType = acls_module) -> Acls:
    acls: Acls = module.Acls()
    for each in records:
        acls.replay(each)
    return acls


def may(
    module: ModuleType,
    acls: Acls | None,
    operation: AclOperation = READ,
    name: str = "orders",
    *,
    principal: str = ANN,
    host: str = HERE,
    kind: AclResourceType = TOPIC,
    **settings: object,
) -> bool:
    authorizer = module.Authorizer(**settings)
    allowed: bool = authorizer.authorize(acls, module.Requester(principal, host), operation, kind, name).allowed
    return allowed


@pytest.fixture
def rules() -> ModuleType:
    return authorizer_module


def test_an_allow_rule_allows(rules: ModuleType) -> None:
    assert may(rules, stored(record()))


def test_without_a_rule_nothing_is_allowed(rules: ModuleType) -> None:
    assert not may(rules, stored())
    assert not may(rules, stored(record("other")))


def test_a_super_user_may_do_everything(rules: ModuleType) -> None:
    assert may(rules, stored(deny(operation=AclOperation.ALL)), super_users=frozenset({ANN}))
    assert not may(rules, stored(), super_users=frozenset({BOB, "ann", "User:*"}))


def test_before_the_rules_are_loaded_only_super_users_may(rules: ModuleType) -> None:
    assert may(rules, None, super_users=frozenset({ANN}))
    with pytest.raises(UnknownServerError):
        may(rules, None, allow_everyone_if_no_acl_found=True)


def test_a_denial_wins_in_any_order_and_pattern(rules: ModuleType) -> None:
    allowing = [record(), record("ord", pattern=PREFIXED), record("*", principal="User:*")]
    for denial in (deny(), deny("o", pattern=PREFIXED), deny("*"), deny(operation=AclOperation.ALL), deny(host=HERE)):
        for order in permutations([*allowing, denial]):
            assert not may(rules, stored(*order))


def test_rules_are_for_a_principal_or_for_everybody(rules: ModuleType) -> None:
    assert may(rules, stored(record(principal="User:*")))
    assert not may(rules, stored(record(principal=BOB)))
    assert not may(rules, stored(record(principal="*")))
    assert not may(rules, stored(record(principal="Group:*")))
    assert may(rules, stored(record(), deny(principal=BOB)))


def test_rules_are_for_a_host_or_for_all(rules: ModuleType) -> None:
    assert may(rules, stored(record(host=HERE)))
    assert not may(rules, stored(record(host=THERE)))
    assert may(rules, stored(record(), deny(host=THERE)))


def test_an_address_is_denied_in_every_spelling_and_allowed_in_javas(rules: ModuleType) -> None:
    for host, spellings in (
        ("10.0.0.7", ("10.0.0.7", "::ffff:10.0.0.7")),
        ("0:0:0:0:0:0:0:1", ("0:0:0:0:0:0:0:1", "::1", "0:0:0:0:0:0:0:0001")),
        ("fe80:0:0:0:0:0:0:1%2", ("fe80:0:0:0:0:0:0:1%2", "fe80::1", "fe80::1%eth0")),
    ):
        for spelled in spellings:
            assert not may(rules, stored(record(), deny(host=spelled)), host=host), spelled
            assert may(rules, stored(record(host=spelled)), host=host) is (spelled == host), spelled


def test_a_rule_names_an_operation_or_all(rules: ModuleType) -> None:
    assert not may(rules, stored(record(operation=WRITE)))
    assert may(rules, stored(record(operation=AclOperation.ALL)))
    assert may(rules, stored(record(operation=AclOperation.ALL)), DESCRIBE)


def test_read_write_and_alter_imply_describe(rules: ModuleType) -> None:
    implied = {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, DESCRIBE, AclOperation.ALL}
    for operation in AclOperation:
        assert may(rules, stored(record(operation=operation)), DESCRIBE) is (operation in implied)


def test_alter_configs_implies_describe_configs(rules: ModuleType) -> None:
    implied = {AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALL}
    for operation in AclOperation:
        assert may(rules, stored(record(operation=operation)), AclOperation.DESCRIBE_CONFIGS) is (operation in implied)


def test_a_denial_implies_nothing(rules: ModuleType) -> None:
    acls = stored(record(operation=DESCRIBE), deny(operation=READ))
    assert may(rules, acls, DESCRIBE) and not may(rules, acls, READ)


def test_everyone_may_only_where_there_is_no_rule_at_all(rules: ModuleType) -> None:
    for acls, expected in (
        (stored(), True),
        (stored(record("other")), True),
        (stored(record(kind=AclResourceType.GROUP)), True),
        (stored(record(principal=BOB)), False),
        (stored(record(operation=WRITE)), False),
        (stored(record(host=THERE)), False),
        (stored(record("ord", pattern=PREFIXED, principal=BOB)), False),
        (stored(record("*", principal=BOB)), False),
    ):
        assert may(rules, acls, allow_everyone_if_no_acl_found=True) is expected


def test_an_unknown_permission_does_not_allow(rules: ModuleType) -> None:
    strange = record()
    strange.permission_type = 9  # type: ignore[misc]
    assert not may(rules, stored(record(), strange))


def some(module: ModuleType, *records: AccessControlEntryRecord, **settings: object) -> bool:
    authorizer = module.Authorizer(**settings)
    allowed: bool = authorizer.authorize_any(stored(*records), module.Requester(ANN, HERE), WRITE, TOPIC).allowed
    return allowed


def test_whether_there_is_any_with_which_it_may_be_done(rules: ModuleType) -> None:
    one, prefixed = record(operation=WRITE), record("ord", WRITE, pattern=PREFIXED)
    assert not some(rules)
    assert some(rules, super_users=frozenset({ANN})) and some(rules, allow_everyone_if_no_acl_found=True)
    assert some(rules, one) and some(rules, prefixed) and some(rules, record("*", AclOperation.ALL))
    assert not some(rules, record(operation=READ))
    assert not some(rules, record(operation=WRITE, principal=BOB)) and not some(rules, record("a", WRITE, host=THERE))
    assert not some(rules, record("x", WRITE, kind=AclResourceType.GROUP))
    assert not some(rules, one, deny(operation=WRITE)) and some(rules, one, deny("other", WRITE))
    assert not some(rules, one, deny("ord", WRITE, pattern=PREFIXED))
    for prefix in ("or", "ord"):
        assert not some(rules, prefixed, deny(prefix, WRITE, pattern=PREFIXED))
    assert some(rules, prefixed, deny("orde", WRITE, pattern=PREFIXED)) and some(rules, prefixed, deny("ord", WRITE))
    assert not some(rules, one, prefixed, deny("*", WRITE)) and not some(rules, one, deny("*", AclOperation.ALL))


# fmt: off
MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("self.super_users", "()", test_a_super_user_may_do_everything),
    ("        if requester.principal in self.super_users:\n            return SUPER_USER\n        if acls is None:\n"
     '            raise UnknownServerError("the access rules are not loaded yet")\n',
     "        if acls is None:\n            return NO_RULE_ALLOWED\n"
     "        if requester.principal in self.super_users:\n"
     "            return SUPER_USER\n", test_before_the_rules_are_loaded_only_super_users_may),
    (within("Authorizer.authorize", "return AuthorizationResult(False, rule)"),
     "continue", test_a_denial_wins_in_any_order_and_pattern),
    ("allowed_by = rule\n", "return AuthorizationResult(True, rule)\n", test_a_denial_wins_in_any_order_and_pattern),
    ("rule.principal not in (requester.principal, ALL_THROTTLED)", "False",
     test_rules_are_for_a_principal_or_for_everybody),
    ("(requester.principal, ALL_THROTTLED)", "(requester.principal,)", test_rules_are_for_a_principal_or_for_everybody),
    ("(requester.host, WILDCARD)", "(requester.host, WILDCARD, rule.host)", test_rules_are_for_a_host_or_for_all),
    (" and is_address_of(requester.host, rule.host)", " and False",
     test_an_address_is_denied_in_every_spelling_and_allowed_in_javas),
    ("rule.permission_type != AclPermission.ALLOW and is_address_of(requester.host, rule.host)",
     "is_address_of(requester.host, rule.host)",
     test_an_address_is_denied_in_every_spelling_and_allowed_in_javas),
    ("    if rule.operation in (operation, AclOperation.ALL):\n        return True",
     "    if rule.operation == operation:\n        return True", test_a_rule_names_an_operation_or_all),
    ("{AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}",
     "{AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE}", test_read_write_and_alter_imply_describe),
    ("frozenset({AclOperation.ALTER_CONFIGS})", "frozenset()", test_alter_configs_implies_describe_configs),
    ("rule.permission_type == AclPermission.ALLOW and rule.operation in " "IMPLIED_BY.get(operation, ())",
     "rule.operation in IMPLIED_BY.get(operation, ())",
     test_a_denial_implies_nothing),
    ("not has_rules and self.allow_everyone_if_no_acl_found", "self.allow_everyone_if_no_acl_found",
     test_everyone_may_only_where_there_is_no_rule_at_all),
    ("has_rules = True\n" "if _applies(rule, requester, operation):\n"
     "    if rule.permission_type == AclPermission.ALLOW:\n" "        allowed_by = rule\n" "    else:\n"
     "        return AuthorizationResult(False, rule)",
     "if _applies(rule, requester, operation):\n" "    has_rules = True\n"
      "    if rule.permission_type == AclPermission.ALLOW:\n" "        allowed_by = rule\n" "    else:\n"
      "        return AuthorizationResult(False, rule)",
     test_everyone_may_only_where_there_is_no_rule_at_all),
    ("not has_rules and self.allow_everyone_if_no_acl_found", "not has_rules",
     test_without_a_rule_nothing_is_allowed),
    (within("Authorizer.authorize", "rule.permission_type == AclPermission.ALLOW"),
     "rule.permission_type != AclPermission.DENY",
     test_an_unknown_permission_does_not_allow),
    ("range(1, len(name) + 1)", "range(1, len(name))", test_whether_there_is_any_with_which_it_may_be_done),
    ("        if (PatternType.LITERAL, name) in denied:\n            return True\n", "",
     test_whether_there_is_any_with_which_it_may_be_done),
    ("rule.pattern_type == PatternType.LITERAL and rule.resource_name == WILDCARD",
     "False", test_whether_there_is_any_with_which_it_may_be_done),
]
# fmt: on


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(authorizer_module, right, wrong, rule)


# Which rules are about a resource.


@pytest.fixture
def kept() -> ModuleType:
    return acls_module


def about(acls: Acls, name: str, kind: AclResourceType = TOPIC) -> list[str]:
    return sorted(rule.resource_name for rule in acls.about(kind, name))


def test_a_literal_name_is_that_name_and_a_star_is_all(kept: ModuleType) -> None:
    acls = stored(record("foo"), record("*"), record("fo"), record("foo", kind=AclResourceType.GROUP), module=kept)
    assert about(acls, "foo") == ["*", "foo"] and about(acls, "foobar") == ["*"]
    assert about(acls, "*") == ["*"]
    assert about(acls, "foo", AclResourceType.GROUP) == ["foo"]


def test_a_prefix_is_of_names_that_begin_with_it(kept: ModuleType) -> None:
    names = ("foo", "fo", "foobar", "*", "oo")
    acls = stored(*(record(name, pattern=PREFIXED) for name in names), module=kept)
    assert about(acls, "foo") == ["fo", "foo"] and about(acls, "foobar") == ["fo", "foo", "foobar"]
    assert about(acls, "f") == [] and about(acls, "*x") == ["*"]  # as a prefix a star is a star


def test_what_is_removed_is_forgotten_everywhere(kept: ModuleType) -> None:
    records = [record("foo"), record("foo", WRITE), record("fo", pattern=PREFIXED), record("fa", pattern=PREFIXED)]
    acls = stored(*records, module=kept)
    for each in (records[0], records[2]):
        acls.replay_removal(RemoveAccessControlEntryRecord(id=each.id))
    assert [rule.operation for rule in acls.about(TOPIC, "foo")] == [WRITE]
    assert about(acls, "fab") == ["fa"] and len(acls) == 2
    assert acls == stored(records[1], records[3], module=kept)
    assert acls.id_of((TOPIC, "foo", LITERAL, ANN, "*", READ, AclPermission.ALLOW)) is None
    again = stored(*acls.records(), module=kept)  # type: ignore[arg-type]
    assert again == acls and about(again, "fab") == ["fa"]
    copy = acls.copy()
    assert copy == acls and about(copy, "fab") == ["fa"]


def test_a_rule_that_is_not_there_cannot_go(kept: ModuleType) -> None:
    acls = stored(known := record(), module=kept)
    with pytest.raises(ReplayError):
        acls.replay(known)
    acls.replay_removal(RemoveAccessControlEntryRecord(id=known.id))
    with pytest.raises(ReplayError):
        acls.replay_removal(RemoveAccessControlEntryRecord(id=known.id))


def test_a_filter_matches_what_it_names(kept: ModuleType) -> None:
    acls = stored(
        record("foo"), record("fo", pattern=PREFIXED), record("*"), record("bar", WRITE, host=HERE), deny("foo"),
        record("foo", principal=BOB, kind=AclResourceType.GROUP), module=kept,
    )  # fmt: skip

    def found(**wanted: object) -> int:
        return sum(map(kept.AclFilter(**wanted).matches, acls))

    assert found() == 6
    assert found(resource_type=TOPIC) == 5 and found(resource_type=AclResourceType.USER) == 0
    assert found(pattern_type=PREFIXED) == 1 and found(pattern_type=LITERAL) == 5
    assert found(resource_name="foo") == 3 and found(resource_name="foo", pattern_type=LITERAL) == 3
    assert found(resource_name="fo", pattern_type=LITERAL) == 0 and found(resource_name="*") == 1
    assert found(resource_name="foo", pattern_type=PatternType.MATCH) == 5
    assert found(resource_name="foz", pattern_type=PatternType.MATCH) == 2
    assert found(resource_name="bar", pattern_type=PatternType.MATCH, resource_type=TOPIC) == 2
    assert found(pattern_type=PatternType.MATCH) == 6
    assert found(principal=BOB) == 1 and found(host=HERE) == 1 and found(operation=WRITE) == 1
    assert found(permission_type=AclPermission.DENY) == 1 and found(operation=AclOperation.ALL) == 0
    assert AclFilter().has_known_types and AclFilter(pattern_type=PatternType.MATCH).has_known_types
    for field in ("resource_type", "pattern_type", "operation", "permission_type"):
        for number in (0, 99, -1):
            assert not kept.AclFilter(**{field: number}).has_known_types


# fmt: off
MISTAKES_IN_KEEPING: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("length <= len(name)",
     "length < len(name)",
     test_a_prefix_is_of_names_that_begin_with_it),
    ("yield from about.get((kind, PatternType.LITERAL, WILDCARD), _NONE).values()", "pass",
     test_a_literal_name_is_that_name_and_a_star_is_all),
    ("if name != WILDCARD:", "if True:", test_a_literal_name_is_that_name_and_a_star_is_all),
    ("        del self._about[key][rule.rule_id]\n", "", test_what_is_removed_is_forgotten_everywhere),
    ("            del self._ids[rule.binding]\n", "            pass\n", test_what_is_removed_is_forgotten_everywhere),
    ("            lengths[length] -= 1\n            if not lengths[length]:\n                del lengths[length]\n",
     "            lengths.clear()\n", test_what_is_removed_is_forgotten_everywhere),
    ("        if record.id in self._rules:", "        if False:", test_a_rule_that_is_not_there_cannot_go),
    ("return rule.resource_name == WILDCARD", "return False", test_a_filter_matches_what_it_names),
    ("self.resource_name.startswith(rule.resource_name)", "False", test_a_filter_matches_what_it_names),
    ("        if self.pattern_type != PatternType.MATCH:\n            return False\n", "",
     test_a_filter_matches_what_it_names),
]
# fmt: on


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES_IN_KEEPING)
def test_a_mistake_in_keeping_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(acls_module, right, wrong, rule)
