"""`trioka acl` and `trioka quota` against a broker with access rules; which rule decides."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed
from support.command_line import Ended, broker_at, command, home

from trioka.cli.security import acl_decision, resources
from trioka.cli.terminal.failure import Exit, Failure

__all__ = ["home"]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    users = "User:ANONYMOUS;User:root"
    with broker_at(tmp_path_factory.mktemp("broker"), authorizer_class_name=authorizer, super_users=users) as address:
        yield address


def run(at: str, line: str) -> Ended:
    ended = command(*line.split(), at=at)
    assert "Traceback" not in ended.stderr
    return ended


def test_a_denial_wins_and_its_rule_is_named(at: str, home: Path) -> None:
    assert run(at, "acl add ann read,write topic:won- --resource-pattern-type prefixed").code == Exit.OK
    assert run(at, "acl can ann write topic:won-a").out.startswith("allowed: ALLOW User:ann WRITE on prefixed")
    assert run(at, "acl add User:* write topic:won-a --deny").code == Exit.OK
    denied = run(at, "acl can ann write topic:won-a -o json")
    assert denied.code == Exit.UNAUTHORISED
    (row,) = denied.rows
    assert row["allowed"] is False and row["rule"] == {
        "resource": "topic:won-a",
        "pattern": "literal",
        "principal": "User:*",
        "permission": "DENY",
        "operation": "WRITE",
        "host": "*",
    }
    assert run(at, "acl can ann describe topic:won-a").code == Exit.OK


def test_a_denial_without_a_rule_names_the_keys_that_may_allow_it_all_the_same(at: str, home: Path) -> None:
    ended = run(at, "acl can root delete topic:anything")
    assert ended.code == Exit.UNAUTHORISED and "no rule allows it to User:root" in ended.out
    assert "note: the broker has super.users set and hides the value" in ended.stderr


def test_only_the_rules_that_were_shown_are_removed(at: str, home: Path) -> None:
    run(at, "acl add eve read topic:kept")
    run(at, "acl add eve read topic:removed")
    plan = run(at, "acl remove --resource topic:removed --principal eve")
    assert plan.code == Exit.OK and "nothing was changed" in plan.stderr and "topic:removed" in plan.out
    assert run(at, "acl remove --resource topic:removed --principal eve -y").code == Exit.OK
    assert [row["resource"] for row in run(at, "acl list --principal eve -o json").rows] == ["topic:kept"]
    assert run(at, "acl remove -y").code == Exit.USAGE  # never all rules by accident


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("acl add ann raed topic:a", "did you mean: READ"),
        ("acl add ann read topics:a", "did you mean: topic"),
        ("acl add ann read orders", "such as topic:orders"),
        ("acl add User: read topic:a", "'User:' is no principal"),
        ("acl can ann all topic:a", "ALL is valid only in rules"),
        ("quota set producer_byte_rate=1MB", "name an entity"),
        ("quota set producer_byte_rate=1XB --user ann", "producer_byte_rate=1MB"),
        ("quota set request_percentage=1MB --user ann", "request_percentage=50"),
        ("quota set connection_creation_rate=1 --user ann", "is none of producer_byte_rate"),
        ("quota set producer_byte_rate=1 --user ann --ip 10.0.0.1", "an address cannot be combined"),
        ("quota set producer_byte_rate=1 --user ann --user-defaults", "give --user or --user-defaults"),
    ],
)
def test_a_wrong_argument_is_reported_with_the_right_ones(at: str, home: Path, line: str, reason: str) -> None:
    ended = run(at, line)
    assert ended.code == Exit.USAGE and reason in ended.stderr, ended


def test_quotas_of_defaults_and_pairs_are_distinct(at: str, home: Path) -> None:
    run(at, "quota set producer_byte_rate=1MiB --user ann --client-id etl")
    run(at, "quota set producer_byte_rate=2KB --user-defaults --client-id etl")
    rows = run(at, "quota list --client-id etl -o json").rows
    assert [(row["user"], row["value"]) for row in rows] == [("<default>", 2000.0), ("ann", float(1 << 20))]
    assert run(at, "quota remove --client-id etl").code == Exit.NOT_FOUND  # the client id alone has no quota
    assert run(at, "quota remove --user ann --client-id etl").code == Exit.OK
    assert run(at, "quota remove --user-defaults --client-id etl consumer_byte_rate").code == Exit.NOT_FOUND
    assert run(at, "quota remove --user-defaults --client-id etl").code == Exit.OK
    assert run(at, "quota list -o json").rows == []


# -- the words -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["DESCRIBE_CONFIGS", "describe-configs", "DescribeConfigs", "describe_configs"])
def test_an_operation_is_understood_in_each_of_its_spellings(text: str) -> None:
    assert resources.operation(text) == 10


def test_the_name_of_a_resource_may_have_colons() -> None:
    assert resources.resource("user:User:ann") == (7, "User:ann")
    assert resources.resource("cluster") == (4, "kafka-cluster")
    with pytest.raises(Failure):
        resources.resource("topic:")


# -- the decision ------------------------------------------------------------------------------------------------------


@pytest.fixture
def decision() -> ModuleType:
    return acl_decision


def decide(decision: ModuleType, principal: str, host: str) -> tuple[bool, str]:
    rules = [
        decision.Rule(2, "orders", 3, "User:ann", "10.0.0.7", 3, resources.ALLOW),
        decision.Rule(2, "orders", 3, "User:bob", "*", 3, resources.ALLOW),
    ]
    found = decision.decide(rules, principal=principal, host=host, operation=3, resource=(2, "orders"))
    return found.allowed, found.reason


def test_the_host_counts(decision: ModuleType) -> None:
    assert decide(decision, "User:ann", "10.0.0.7") == (
        True,
        "ALLOW User:ann READ on literal topic:orders from 10.0.0.7",
    )
    assert decide(decision, "User:ann", "10.0.0.8") == (False, "no rule allows it to User:ann from 10.0.0.8")
    assert decide(decision, "User:bob", "10.0.0.8")[0]


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("Requester(principal, java_text(host))", 'Requester(principal, "10.0.0.7")', test_the_host_counts),
    ("Requester(principal, java_text(host))", 'Requester("User:bob", java_text(host))', test_the_host_counts),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(acl_decision, right, wrong, rule)
