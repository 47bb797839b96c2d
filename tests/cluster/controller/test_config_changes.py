"""Configuration is changed. What is refused, and as what, is what Apache Kafka 4.3.1 was seen to answer."""

from collections.abc import Mapping, Sequence

import pytest
from support.small_cluster import SmallCluster, errors

from trioka.cluster.image.configs import (
    ALL_BROKERS,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    topic_resource,
)
from trioka.protocol.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import ClearElrRecord, ConfigRecord
from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, METRICS, GROUP = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
Error = type[KafkaError]


class TopicRules:
    """Three keys of topics; brokers may have anything."""

    def __init__(self) -> None:
        self.checked: list[tuple[Mapping[str, str], Mapping[str, str]]] = []

    def validate(self, resource: ConfigResource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
        self.checked.append((dict(configs), dict(before)))
        if resource.type == TOPIC:
            for key, value in configs.items():
                if key not in ("retention.ms", "cleanup.policy", "min.insync.replicas") or value == "x":
                    raise InvalidConfig(f"{key} cannot be {value}")

    def is_list(self, resource_type: int, key: str) -> bool:
        return key == "cleanup.policy"

    def default(self, resource_type: int, key: str) -> str | None:
        return "delete" if key == "cleanup.policy" else None


def one_topic() -> SmallCluster:
    cluster = SmallCluster(brokers=2, rules=TopicRules())
    cluster.create("orders", configs={"retention.ms": "5"})
    return cluster


def whole(kind: int, name: str, configs: Mapping[str, str | None]) -> AlterConfigsRequest.Resource:
    wanted = AlterConfigsRequest.Resource
    return wanted(
        resource_type=kind,
        resource_name=name,
        configs=[wanted.Config(name=key, value=value) for key, value in configs.items()],
    )


def step(kind: int, name: str, *steps: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest.Resource:
    wanted = IncrementalAlterConfigsRequest.Resource
    return wanted(
        resource_type=kind,
        resource_name=name,
        configs=[wanted.Config(name=key, config_operation=how, value=value) for key, how, value in steps],
    )


def replace(cluster: SmallCluster, *resources: AlterConfigsRequest.Resource) -> list[Error | None]:
    return errors(cluster.do(cluster.controller.alter_configs(resources, broker_id=1)))


def alter(cluster: SmallCluster, *resources: IncrementalAlterConfigsRequest.Resource) -> list[Error | None]:
    return errors(cluster.do(cluster.controller.incremental_alter_configs(resources, broker_id=1)))


def configs(cluster: SmallCluster, name: str = "orders") -> Mapping[str, str]:
    return cluster.metadata.configs.get(topic_resource(name))


def test_alter_configs_replaces_all_that_was_set() -> None:
    cluster = one_topic()
    assert replace(cluster, whole(TOPIC, "orders", {"cleanup.policy": "compact"})) == [None]
    assert configs(cluster) == {"cleanup.policy": "compact"}
    assert replace(cluster, whole(TOPIC, "orders", {})) == [None]
    assert configs(cluster) == {}


def test_single_keys_are_set_and_deleted_and_the_others_stay() -> None:
    cluster = one_topic()
    assert alter(cluster, step(TOPIC, "orders", ("cleanup.policy", SET, "compact"))) == [None]
    assert configs(cluster) == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert alter(cluster, step(TOPIC, "orders", ("retention.ms", DELETE, "ignored"), ("nope", DELETE, None))) == [None]
    assert configs(cluster) == {"cleanup.policy": "compact"}


def test_items_are_appended_to_a_list_and_subtracted_from_it_beginning_with_the_default() -> None:
    cluster = one_topic()

    def after(how: int, value: str) -> str:
        assert alter(cluster, step(TOPIC, "orders", ("cleanup.policy", how, value))) == [None]
        return configs(cluster)["cleanup.policy"]

    assert after(APPEND, "compact") == "delete,compact"
    assert after(APPEND, "compact") == "delete,compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "compact,nope") == ""
    assert after(APPEND, "compact,compact") == "compact"
    assert after(APPEND, " delete") == "compact, delete"


def test_nothing_is_appended_to_what_is_no_list() -> None:
    cluster = one_topic()
    for how in (APPEND, SUBTRACT):
        assert alter(cluster, step(TOPIC, "orders", ("retention.ms", how, "1"))) == [InvalidConfig]


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (step(TOPIC, "nope", ("retention.ms", SET, "1")), UnknownTopicOrPartition),
        (step(TOPIC, "nope", ("retention.ms", SET, "x")), InvalidConfig),
        (step(TOPIC, "", ("retention.ms", SET, "1")), InvalidRequest),
        (step(TOPIC, "bad name", ("retention.ms", SET, "1")), InvalidTopic),
        (step(TOPIC, "__cluster_metadata", ("retention.ms", SET, "1")), UnknownTopicOrPartition),
        (step(TOPIC, "orders", ("retention.ms", SET, "x")), InvalidConfig),
        (step(TOPIC, "orders", ("nope", SET, "1")), InvalidConfig),
        (step(TOPIC, "orders", ("retention.ms", SET, None)), InvalidRequest),
        (step(TOPIC, "orders", ("cleanup.policy", APPEND, None)), InvalidRequest),
        (step(TOPIC, "orders", ("retention.ms", 4, "1")), InvalidRequest),
        (step(TOPIC, "orders", ("retention.ms", -1, "1")), InvalidRequest),
        (step(TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")), InvalidRequest),
        (step(TOPIC, "orders", ("retention.ms", SET, "1" * 32768)), InvalidConfig),
        (step(TOPIC, "orders"), None),
        (step(0, "x", ("a", SET, "1")), InvalidRequest),
        (step(3, "x", ("a", SET, "1")), InvalidRequest),
        (step(8, "1", ("a", SET, "1")), InvalidRequest),
        (step(99, "x", ("a", SET, "1")), InvalidRequest),
        (step(BROKER, "1", ("log.retention.ms", SET, "1")), None),
        (step(BROKER, "2", ("log.retention.ms", SET, "1")), InvalidRequest),
        (step(BROKER, "x", ("log.retention.ms", SET, "1")), InvalidRequest),
        (step(BROKER, "-1", ("log.retention.ms", SET, "1")), InvalidRequest),
        (step(BROKER, "", ("log.retention.ms", SET, "1")), None),
        (step(METRICS, "m", ("interval.ms", SET, "1000")), None),
        (step(METRICS, "", ("interval.ms", SET, "1000")), InvalidRequest),
        (step(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")), None),
        (step(GROUP, "", ("consumer.session.timeout.ms", SET, "1")), InvalidRequest),
    ],
)
def test_what_cannot_be_is_refused(resource: IncrementalAlterConfigsRequest.Resource, error: Error | None) -> None:
    cluster = one_topic()
    before = cluster.metadata.copy()
    assert alter(cluster, resource) == [error]
    assert (cluster.metadata == before) == (error is not None or not resource.configs)


def test_a_broker_that_is_not_there_has_no_configuration() -> None:
    decision = one_topic().controller.incremental_alter_configs([step(BROKER, "7", ("a", SET, "1"))])
    assert errors(decision.replies) == [BrokerIdNotRegistered]


def test_a_resource_that_is_named_twice_is_refused_twice() -> None:
    cluster = one_topic()
    cluster.create("events")
    twice = [step(TOPIC, "orders", ("retention.ms", SET, value)) for value in "12"]
    assert alter(cluster, twice[0], step(TOPIC, "events", ("retention.ms", SET, "3")), twice[1]) == [
        InvalidRequest,
        None,
        InvalidRequest,
    ]
    assert configs(cluster)["retention.ms"] == "5" and configs(cluster, "events")["retention.ms"] == "3"


def test_null_is_no_value_for_alter_configs_either() -> None:
    cluster = one_topic()
    assert replace(cluster, whole(TOPIC, "orders", {"retention.ms": None})) == [InvalidRequest]
    assert replace(cluster, whole(TOPIC, "orders", {"segment.ms": "1"})) == [InvalidConfig]
    assert configs(cluster) == {"retention.ms": "5"}


def test_the_rules_see_all_that_would_be_set_and_all_that_was() -> None:
    rules = TopicRules()
    cluster = SmallCluster(rules=rules)
    cluster.create("orders", configs={"retention.ms": "5"})
    alter(cluster, step(TOPIC, "orders", ("cleanup.policy", SET, "compact")))
    assert rules.checked[-1] == ({"retention.ms": "5", "cleanup.policy": "compact"}, {"retention.ms": "5"})


def test_validate_only_writes_nothing() -> None:
    cluster = one_topic()
    wanted: Sequence[IncrementalAlterConfigsRequest.Resource] = [step(TOPIC, "orders", ("retention.ms", SET, "6"))]
    decision = cluster.controller.incremental_alter_configs(wanted, validate_only=True)
    assert decision.records == () and errors(decision.replies) == [None]


def test_what_does_not_change_is_not_written_but_for_brokers() -> None:
    cluster = one_topic()
    same = [step(TOPIC, "orders", ("retention.ms", SET, "5")), step(BROKER, "", ("log.retention.ms", SET, "5"))]
    cluster.do(cluster.controller.incremental_alter_configs(same))
    again = cluster.controller.incremental_alter_configs(same)
    assert [record.resource_type for record in again.records if isinstance(record, ConfigRecord)] == [BROKER]


def test_the_min_isr_of_the_cluster_stays_while_eligible_leaders_are_kept() -> None:
    cluster = one_topic()
    key = "min.insync.replicas"
    assert alter(cluster, step(BROKER, "", (key, DELETE, None))) == [InvalidConfig]
    assert replace(cluster, whole(BROKER, "", {"log.retention.ms": "5"})) == [InvalidConfig]
    assert alter(cluster, step(BROKER, "1", (key, SET, "2"))) == [InvalidConfig]
    assert alter(cluster, step(BROKER, "", (key, SET, "2"))) == [None]
    assert cluster.metadata.configs.get(ALL_BROKERS) == {key: "2"}


def test_another_min_isr_forgets_the_eligible_leaders_that_were_found_with_the_former() -> None:
    cluster = one_topic()
    key = "min.insync.replicas"
    resources = [step(TOPIC, "orders", (key, SET, "2")), step(BROKER, "", (key, SET, "2"))]
    decision = cluster.controller.incremental_alter_configs(resources)
    assert [record for record in decision.records if isinstance(record, ClearElrRecord)] == [
        ClearElrRecord(topic_name="orders"),
        ClearElrRecord(topic_name=""),
    ]


def test_eligible_leaders_that_outlive_their_min_isr_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioka.cluster.controller.config_changes._forgotten_leaders", lambda *_: ())
    with pytest.raises(AssertionError):
        test_another_min_isr_forgets_the_eligible_leaders_that_were_found_with_the_former()
