"""Client quotas: who can have which, and what they can be."""

from collections.abc import Mapping

import pytest
from support.small_cluster import SmallCluster, errors, quota

from trioka.cluster.image.quotas import QuotaEntity, quota_entity
from trioka.protocol.errors import InvalidRequest, KafkaError
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

ANN = {"user": "ann"}
RATE: dict[str, float | None] = {"producer_byte_rate": 1000.0}
PER_IP: dict[str, float | None] = {"connection_creation_rate": 10.0}


def alter(cluster: SmallCluster, *entries: AlterClientQuotasRequest.Entry) -> list[type[KafkaError] | None]:
    return errors(cluster.do(cluster.controller.alter_client_quotas(entries)))


def stored(cluster: SmallCluster) -> dict[QuotaEntity, dict[str, float]]:
    return {entity: dict(values) for entity, values in cluster.metadata.quotas}


def test_a_quota_is_set_changed_and_removed() -> None:
    cluster = SmallCluster()
    assert alter(cluster, quota(ANN, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0})) == [None]
    assert alter(cluster, quota(ANN, {"producer_byte_rate": 5.0, "consumer_byte_rate": None})) == [None]
    assert stored(cluster) == {(("user", "ann"),): {"producer_byte_rate": 5.0}}
    assert alter(cluster, quota(ANN, {"producer_byte_rate": None, "nope": None})) == [None]
    assert stored(cluster) == {}


def test_what_does_not_change_is_not_written() -> None:
    cluster = SmallCluster()
    alter(cluster, quota(ANN, RATE))
    assert cluster.controller.alter_client_quotas([quota(ANN, RATE)]).records == ()
    assert cluster.controller.alter_client_quotas([quota(ANN, {"consumer_byte_rate": None})]).records == ()


@pytest.mark.parametrize(
    ("entity", "values", "is_refused"),
    [
        ({"user": None}, RATE, False),
        ({"user": "ann", "client-id": "app"}, RATE, False),
        ({"client-id": None}, RATE, False),
        ({}, RATE, True),
        ({"nope": "x"}, RATE, True),
        ({"user": ""}, RATE, True),
        ({"ip": "1.2.3.4"}, PER_IP, False),
        ({"ip": "1.2.3"}, PER_IP, False),
        ({"ip": "::1"}, PER_IP, False),
        ({"ip": "localhost"}, PER_IP, False),
        ({"ip": None}, PER_IP, False),
        ({"ip": "not an ip"}, PER_IP, True),
        ({"ip": "1.2.3.4"}, RATE, True),
        ({"ip": "1.2.3.4"}, {"connection_creation_rate": 10.5}, True),
        ({"ip": "1.2.3.4"}, {"connection_creation_rate": 2.0**31}, True),
        ({"ip": "1.2.3.4", "user": "ann"}, PER_IP, True),
        (ANN, {"nope": 1.0}, True),
        (ANN, {"nope": None}, False),
        (ANN, PER_IP, True),
        (ANN, {"producer_byte_rate": 0.0}, True),
        (ANN, {"producer_byte_rate": -1.0}, True),
        (ANN, {"producer_byte_rate": 1.5}, True),
        (ANN, {"producer_byte_rate": 1e19}, True),
        (ANN, {"producer_byte_rate": float("inf")}, True),
        (ANN, {"producer_byte_rate": float("nan")}, True),
        (ANN, {"request_percentage": 1.5}, False),
        (ANN, {"controller_mutation_rate": 0.5}, False),
        (ANN, {}, False),
    ],
)
def test_a_quota_is_taken_or_refused_as_kafka_does(
    entity: Mapping[str, str | None], values: Mapping[str, float | None], is_refused: bool
) -> None:
    assert alter(SmallCluster(), quota(entity, values)) == [InvalidRequest if is_refused else None]


def test_one_wrong_value_leaves_the_others_of_the_entity_unwritten() -> None:
    cluster = SmallCluster()
    wrong = quota(ANN, {"producer_byte_rate": 1.0, "nope": 1.0})
    assert alter(cluster, wrong, quota({"user": "bob"}, RATE)) == [InvalidRequest, None]
    assert stored(cluster) == {(("user", "bob"),): {"producer_byte_rate": 1000.0}}


def test_an_entity_or_a_key_that_is_named_twice_is_refused() -> None:
    cluster = SmallCluster()
    both = {"user": "ann", "client-id": "app"}
    turned = {"client-id": "app", "user": "ann"}
    assert alter(cluster, quota(both, RATE), quota(turned, {"consumer_byte_rate": 1.0})) == [InvalidRequest]
    twice = quota(ANN, RATE)
    twice.ops.append(twice.ops[0])
    assert alter(cluster, twice) == [InvalidRequest]
    assert stored(cluster) == {}


def test_of_two_parts_of_one_type_the_latter_counts() -> None:
    entry = quota(ANN, RATE)
    entry.entity.append(AlterClientQuotasRequest.Entry.Entity(entity_type="user", entity_name="bob"))
    (reply,) = SmallCluster().controller.alter_client_quotas([entry]).replies
    assert reply.entity == quota_entity({"user": "bob"})


def test_validate_only_writes_nothing() -> None:
    assert SmallCluster().controller.alter_client_quotas([quota(ANN, RATE)], validate_only=True).records == ()
