"""Access rules are made and removed: which can be, and what is written for them."""

import pytest
from support.small_cluster import SmallCluster

from trioka.cluster.acls import AclFilter
from trioka.cluster.metadata import Metadata
from trioka.protocol.errors import InvalidRequest, KafkaError
from trioka.protocol.messages.create_acls import CreateAclsRequest

ALLOW, DENY = 3, 2


def creation(**changed: object) -> CreateAclsRequest.Creation:
    usual: dict[str, object] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 3,
        "permission_type": ALLOW,
    }
    return CreateAclsRequest.Creation(**{**usual, **changed})  # type: ignore[arg-type]


def create(cluster: SmallCluster, *creations: CreateAclsRequest.Creation) -> list[type[KafkaError] | None]:
    return [outcome.error for outcome in cluster.do(cluster.controller.create_acls(creations))]


def test_a_rule_is_made_once() -> None:
    cluster = SmallCluster()
    assert create(cluster, creation(), creation(), creation(operation=4)) == [None, None, None]
    assert len(cluster.metadata.access.acls) == 2
    assert cluster.controller.create_acls([creation()]).records == ()


def test_what_says_something_else_is_another_rule() -> None:
    cluster = SmallCluster()
    others: list[dict[str, object]] = [
        {"resource_type": 3},
        {"resource_name": "bills"},
        {"resource_pattern_type": 4},
        {"principal": "User:bob"},
        {"host": "10.0.0.7"},
        {"operation": 2},
        {"permission_type": DENY},
    ]
    create(cluster, creation(), *(creation(**other) for other in others))
    assert len(cluster.metadata.access.acls) == 1 + len(others)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"resource_type": number} for number in (0, 1, 8, 99, -1)),
        *({"resource_pattern_type": number} for number in (0, 1, 2, 5, 99)),
        *({"operation": number} for number in (0, 1, 16, 99)),
        *({"permission_type": number} for number in (0, 1, 4, 99)),
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "orders"},
        {"resource_type": 4, "resource_name": "*"},
        {"principal": "ann"},
        {"principal": ""},
    ],
)
def test_what_can_be_no_rule_is_refused_and_hinders_no_other(wrong: dict[str, object]) -> None:
    cluster = SmallCluster()
    assert create(cluster, creation(), creation(**wrong), creation(operation=4)) == [None, InvalidRequest, None]
    assert len(cluster.metadata.access.acls) == 2


def test_the_cluster_has_one_name() -> None:
    assert create(SmallCluster(), creation(resource_type=4, resource_name="kafka-cluster")) == [None]


def test_rules_are_removed_by_filters() -> None:
    cluster = SmallCluster()
    create(cluster, creation(), creation(operation=4), creation(resource_name="bills"))
    orders = AclFilter(resource_name="orders")
    replies = cluster.do(cluster.controller.delete_acls([orders, orders, AclFilter(operation=99)]))
    assert [len(reply.rules) for reply in replies] == [2, 2, 0]  # listed twice, removed once
    assert [reply.outcome.error for reply in replies] == [None, None, InvalidRequest]
    assert [rule.resource_name for rule in cluster.metadata.access.acls] == ["bills"]
    assert cluster.controller.delete_acls([orders]).records == ()


def test_a_snapshot_restores_the_same_rules() -> None:
    cluster = SmallCluster()
    create(cluster, creation(), creation(resource_pattern_type=4, permission_type=DENY))
    again = Metadata()
    again.load(cluster.metadata.records(), cluster.metadata.offset, cluster.metadata.epoch)
    assert again.access.acls == cluster.metadata.access.acls and again == cluster.metadata
    assert len(list(again.access.acls.about(2, "orders"))) == 2
