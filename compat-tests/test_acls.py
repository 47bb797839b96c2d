"""CreateAcls, DescribeAcls and DeleteAcls, answered by both; and Kafka's own tool for them, kafka-acls.

Where a number can only stand in a filter, or is none at all, Apache Kafka hangs up or says that the mistake is its own
(-1); trioka says INVALID_REQUEST. Those are looked at in tests/cluster/controller/test_acl_changes.py.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_under_test import BROKERS
from clients.kafka_tools import KafkaTools
from oracle import ApacheKafka
from side_by_side import PATIENCE_S, POLL_S, Order, SideBySide, side_by_side
from toolchains import unavailable
from trioka_process import TriokaProcess

from trioka.pipeline.installation.cache import Unavailable
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.describe_acls import DescribeAclsRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Change = dict[str, Any]  # what is said otherwise than usual

USUAL: Change = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:ann",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ANY: Change = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def create(*changes: Change) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[CreateAclsRequest.Creation(**(USUAL | each)) for each in changes])


def delete(*filters: Change) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**(ANY | each)) for each in filters])


def describe(**changes: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**(ANY | changes))


def by_all(result: Any) -> str:
    return repr(sorted(result.items()))


DESCRIBED: Order = {"resources": by_all, "resources.acls": by_all}
DELETED: Order = {"filter_results.matching_acls": by_all}


@pytest.fixture(scope="module")
def sides() -> Iterator[SideBySide]:
    with side_by_side(**{key.replace(".", "_"): value for key, value in SETTINGS.items()}) as sides:
        yield sides


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "sides" in request.fixturenames:
        sides: SideBySide = request.getfixturevalue("sides")
        sides.both(delete({}), 3)
        until(sides, 0)


def until(sides: SideBySide, rules: int) -> None:
    """The broker of Apache Kafka hears of rules after its controller has answered."""
    deadline = time.monotonic() + PATIENCE_S
    for side in (sides.kafka, sides.trioka):
        while sum(len(result.acls) for result in side.ask(describe(), 3).resources) != rules:
            assert time.monotonic() < deadline, side.name
            time.sleep(POLL_S)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_made_told_and_removed(sides: SideBySide, version: int) -> None:
    sides.same(create({}, {}, {"operation": 4}, {"resource_type": 3, "resource_pattern_type": 4}), version)
    sides.same(create({}), version)
    until(sides, 3)
    sides.same(describe(), version, order=DESCRIBED)
    sides.same(delete({"operation": 4}, {"operation": 4}, {"resource_name_filter": "nowhere"}), version, order=DELETED)
    until(sides, 2)
    sides.same(describe(), version, order=DESCRIBED)
    sides.same(create(), version)
    sides.same(delete(), version)


def test_what_can_be_no_rule_is_refused_by_both(sides: SideBySide) -> None:
    wrong: list[Change] = [{"resource_type": number} for number in (8, 99, -1)]
    wrong += [{"resource_pattern_type": number} for number in (5, 99)]
    wrong += [{"operation": number} for number in (16, 99)]
    wrong += [{"permission_type": number} for number in (4, 99)]
    wrong += [{"resource_name": ""}, {"resource_type": 4}, {"resource_type": 4, "resource_name": "*"}]
    wrong += [{"principal": "ann"}, {"principal": ""}]
    for each in wrong:
        sides.same(create(each, {}), 3)
    odd: list[Change] = [
        {"resource_type": 4, "resource_name": "kafka-cluster"},
        {"principal": ":"},
        {"principal": "User:"},
    ]
    odd += [{"host": ""}, {"host": "nowhere"}, {"operation": 12}, {"resource_name": "../\u00e4"}, {"operation": 15}]
    for each in odd:
        sides.same(create(each), 3)
    until(sides, 1 + len(odd))


def test_filters_match_the_same(sides: SideBySide) -> None:
    rules: list[Change] = [
        {"resource_name": name, "resource_pattern_type": pattern, "operation": operation, "permission_type": permission}
        for name in ("orders", "order", "*", "o")
        for pattern, operation, permission in ((3, 3, 3), (4, 4, 3), (4, 2, 2))
    ]
    rules += [{"resource_type": 3}, {"principal": "User:bob"}, {"host": "10.0.0.7"}]
    sides.same(create(*rules), 3)
    until(sides, len(rules))
    filters: list[Change] = [
        {"resource_name_filter": name, "pattern_type_filter": pattern}
        for name in (None, "orders", "order", "orderly", "*", "", "x")
        for pattern in (1, 2, 3, 4, 99)
    ]
    filters += [{"resource_type_filter": number} for number in (2, 3, 4, 99)]
    filters += [{"principal_filter": "User:bob"}, {"principal_filter": "bob"}, {"host_filter": "10.0.0.7"}]
    filters += [{"operation": number} for number in (2, 3, 99)] + [{"permission_type": number} for number in (2, 3, 99)]
    for each in filters:
        sides.same(describe(**each), 3, order=DESCRIBED)
    sides.same(delete(*filters[5:12], {"operation": 99}, {"permission_type": 99}), 3, order=DELETED)


# kafka-acls.


@pytest.fixture(params=BROKERS)
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaTools]:
    broker = TriokaProcess(tmp_path, SETTINGS) if request.param == "trioka" else ApacheKafka(SETTINGS, parent=tmp_path)
    with broker as node:
        try:
            tools = KafkaTools(node.bootstrap, is_late=request.param == "kafka")
        except Unavailable as missing:
            unavailable(missing)
        yield tools
        tools.close()


def test_kafka_acls_adds_lists_and_removes(tools: KafkaTools) -> None:
    ann = ("--allow-principal", "User:ann")
    tools("acls", "--add", *ann, "--producer", "--topic", "orders", "--transactional-id", "copier")
    tools(
        "acls",
        "--add",
        *ann,
        "--consumer",
        "--topic",
        "or",
        "--group",
        "billing",
        "--resource-pattern-type",
        "prefixed",
    )
    tools("acls", "--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.7", "--operation", "All", "--cluster")
    listed = tools("acls", "--list")
    for words in (
        "`ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`",
        "(principal=User:ann, host=*, operation=WRITE, permissionType=ALLOW)",
        "`ResourcePattern(resourceType=TOPIC, name=or, patternType=PREFIXED)`",
        "`ResourcePattern(resourceType=GROUP, name=billing, patternType=PREFIXED)`",
        "`ResourcePattern(resourceType=TRANSACTIONAL_ID, name=copier, patternType=LITERAL)`",
        "`ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)`",
        "(principal=User:eve, host=10.0.0.7, operation=ALL, permissionType=DENY)",
    ):
        assert words in listed
    matching = tools("acls", "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "name=orders," in matching and "name=or," in matching and "GROUP" not in matching
    tools("acls", "--remove", *ann, "--producer", "--topic", "orders", "--transactional-id", "copier", "--force")
    tools("acls", "--remove", "--cluster", "--force")
    left = tools("acls", "--list")
    assert "name=or," in left and "billing" in left
    assert "orders" not in left and "copier" not in left and "User:eve" not in left
