"""A scrape after known traffic: every name that dashboards ask for, with the right number."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed
from support.fast_paths import connected, framed, said
from support.group_requests import commit, grouping
from support.http_scrapes import Scrape, Selector, groupings, pieces, scraped, selectors
from support.quotas import set_quota
from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, produce, producing

from trioka.broker.broker import Broker
from trioka.broker.counters import latency as request_times
from trioka.broker.counters import traffic as counts
from trioka.broker.metrics import exposition
from trioka.broker.metrics.alerts import ALERTS, alert_rules
from trioka.broker.metrics.dashboard import PANELS, dashboard
from trioka.broker.metrics.groups import loss_in_s
from trioka.broker.metrics.reference import reference
from trioka.broker.metrics.samples import Sample
from trioka.broker.metrics.series import LOG_SIZE, SERIES, Kind
from trioka.cluster.image_delta import PartitionChanged
from trioka.cluster.partition import Partition
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.storage import log_end

ROOT = Path(__file__).resolve().parents[3]
TOPICS = "kafka_server_brokertopicmetrics"
NOW_MS = 1_700_000_000_000


def fetching(name: str, offset: int, *, session: int = 0, epoch: int = -1) -> FetchRequest:
    wanted = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchRequest.Topic(topic=name, partitions=[wanted])],
    )


# Traffic.


@on_trio
async def test_traffic_is_counted_on_the_general_path_and_on_the_fast_paths(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders")
        connection = connected(broker)
        request = framed(producing("orders", NOW_MS, NOW_MS), 9, 1)
        said(connection, request)  # the first two make the fast path
        said(connection, request)
        assert connection._fast_path is not None
        said(connection, request * 10)
        said(connection, request)
        size = broker.partitions.get("orders", 0).log.segments.active.size
        scrape = scraped(broker)
        for labels in ({}, {"topic": "orders"}):
            assert scrape.value(f"{TOPICS}_messagesin_total", **labels) == 26
            assert scrape.value(f"{TOPICS}_bytesin_total", **labels) == size
            assert scrape.value(f"{TOPICS}_totalproducerequests_total", **labels) == 13
            assert scrape.value(f"{TOPICS}_failedproducerequests_total", **labels) == 0
            assert scrape.value(f"{TOPICS}_bytesout_total", **labels) == 0
        assert scrape.value("kafka_network_requestmetrics_requests_total", request="Produce") == 13
        assert scrape.value("trioka_request_duration_seconds_count", api="Produce") == 13
        for _ in range(4):  # the last two in a fast path
            said(connection, framed(fetching("orders", 0), 12, 1))
        scrape = scraped(broker)
        assert scrape.value(f"{TOPICS}_bytesout_total", topic="orders") == 4 * size
        assert scrape.value(f"{TOPICS}_totalfetchrequests_total", topic="orders") == 4
        assert scrape.value("kafka_network_requestmetrics_requests_total", request="Fetch") == 4
        connection.close()


@on_trio
async def test_a_fetch_that_leaves_its_fast_path_is_counted_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders")
        await produce(broker, "orders", NOW_MS)
        connection = connected(broker)
        for _ in range(3):
            said(connection, framed(fetching("orders", 0), 12, 1))
        assert connection._fast_path is not None
        said(connection, framed(fetching("orders", 1), 12, 1))  # at the end: nothing for a fast path
        said(connection, framed(fetching("orders", 9), 12, 1))  # out of range
        scrape = scraped(broker)
        size = broker.partitions.get("orders", 0).log.segments.active.size
        assert scrape.value(f"{TOPICS}_bytesout_total", topic="orders") == 3 * size
        assert scrape.value("kafka_network_requestmetrics_requests_total", request="Fetch") == 5
        assert scrape.value(f"{TOPICS}_failedfetchrequests_total", topic="orders") == 1
        assert scrape.value(f"{TOPICS}_failedfetchrequests_total") == 1
        connection.close()


@on_trio
async def test_what_is_refused_counts_as_refused_and_an_unknown_topic_has_no_series(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders", max_message_bytes=1000)
        await ask(broker, producing("orders", *[NOW_MS] * 200), 9)
        await ask(broker, producing("nowhere", NOW_MS), 9)
        scrape = scraped(broker)
        assert scrape.value(f"{TOPICS}_failedproducerequests_total", topic="orders") == 1
        assert scrape.value(f"{TOPICS}_totalproducerequests_total", topic="orders") == 1
        assert scrape.value(f"{TOPICS}_failedproducerequests_total") == 2
        assert scrape.value(f"{TOPICS}_messagesin_total") == 0
        assert "nowhere" not in scrape.text


@on_trio
async def test_counters_go_on_when_a_topic_is_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders", max_message_bytes=1000)
        await create(broker, "other")
        await produce(broker, "orders", NOW_MS, NOW_MS, NOW_MS)
        await ask(broker, producing("orders", *[NOW_MS] * 200), 9)
        await produce(broker, "other", NOW_MS)
        before = scraped(broker)
        deleted = DeleteTopicsRequest.Topic(name="orders", topic_id=NULL_UUID)
        await ask(broker, DeleteTopicsRequest(topics=[deleted], timeout_ms=1000), 6)
        after = scraped(broker)
        for name in ("messagesin", "bytesin", "totalproducerequests", "failedproducerequests"):
            assert after.value(f"{TOPICS}_{name}_total") == before.value(f"{TOPICS}_{name}_total") > 0
        assert before.value(f"{TOPICS}_messagesin_total", topic="orders") == 3
        assert 'topic="orders"' not in after.text


@on_trio
async def test_what_was_there_before_the_start_is_not_traffic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders")
        await produce(broker, "orders", NOW_MS, NOW_MS)
    async with running_broker(tmp_path) as broker:
        scrape = scraped(broker)
        assert scrape.value(f"{TOPICS}_messagesin_total", topic="orders") == 0
        assert scrape.value("kafka_log_log_logendoffset", topic="orders", partition="0") == 2


# Groups.


@on_trio
async def test_groups_have_offsets_lags_and_a_time_until_they_lose_data(tmp_path: Path) -> None:
    async with grouping(tmp_path, log_retention_ms=3_600_000) as (broker, client):
        now_ms = broker.clock.now_ms()
        await produce(broker, "t", *[now_ms - 600_000] * 5)
        await produce(broker, "t", now_ms, partition=1)
        assert (await client.ask(commit(2), 9)) is not None
        assert (await client.ask(commit(1, partitions=(1,)), 9)) is not None
        scrape = scraped(broker)
        here = {"consumergroup": "g", "topic": "t"}
        assert scrape.value("kafka_consumergroup_current_offset", **here, partition="0") == 2
        assert scrape.value("kafka_consumergroup_lag", **here, partition="0") == 3
        assert scrape.value("kafka_consumergroup_lag", **here, partition="1") == 0
        assert scrape.value("kafka_consumergroup_lag_sum", **here) == 3
        assert scrape.value("kafka_consumergroup_current_offset_sum", **here) == 3
        assert scrape.value("kafka_consumergroup_members", consumergroup="g") == 0
        assert scrape.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
        assert 2000 < scrape.value("trioka_group_seconds_to_data_loss", **here) <= 3000  # 50 minutes, on a slow machine
        log = broker.partitions.get("t", 0).log
        assert loss_in_s(log, 2, now_ms) == 3000
        assert loss_in_s(log, 2, now_ms + 4_000_000) == 0
        assert loss_in_s(log, 5, now_ms) is None  # nothing is left to be lost


@on_trio
async def test_partitions_and_groups_beyond_the_limit_are_counted_and_left_out(tmp_path: Path) -> None:
    limits = {"trioka_metrics_max_partitions": 4, "trioka_metrics_max_groups": 2}
    async with grouping(tmp_path, **limits) as (broker, client):
        for group in ("g", "h", "i"):
            await client.ask(commit(0, group=group), 9)
        scrape = scraped(broker)
        assert len(scrape.samples["kafka_log_log_size"]) == 4
        assert len(scrape.samples["kafka_topic_partition_leader"]) == 4
        assert len(scrape.samples["kafka_consumergroup_members"]) == 2
        assert scrape.value("trioka_metrics_left_out", what="partitions") == len(broker.partitions) - 4
        assert scrape.value("trioka_metrics_left_out", what="groups") == 1
        assert scrape.value("kafka_server_replicamanager_partitioncount") == len(broker.partitions)
        assert scrape.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 3


# Slices.


def no_slice_is_larger_than_what_the_loop_can_bear(text: ModuleType) -> None:
    samples = [Sample({"topic": "t", "partition": str(number)}, number) for number in range(1050)]
    found = [piece for piece, _ in text.slices(LOG_SIZE, iter(samples))]
    assert [piece.count(b"kafka_log_log_size{") for piece in found] == [100] * 10 + [50]
    whole = b"".join(found)
    assert whole.count(b"# HELP") == whole.count(b"# TYPE") == 1 and whole.startswith(b"# HELP")
    values = Scrape(whole.decode()).samples["kafka_log_log_size"]
    assert [value for _, value in values] == list(range(1050))


def test_a_series_is_written_in_slices() -> None:
    no_slice_is_larger_than_what_the_loop_can_bear(exposition)


@on_trio
async def test_a_scrape_of_many_partitions_comes_in_small_pieces(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders", 120)
        most = max(piece.count(b"\n") for piece in pieces(broker))
        assert most <= 2 * exposition.SAMPLES_AT_ONCE + 70  # one slice, and the short series before it


# The end of a log.


def only_what_a_leader_appends_counts_and_goes_on_in_a_copy(ends: ModuleType) -> None:
    former = ends.LogEnd(5)
    former.log_end_offset, former.appended_batches, former.appended_bytes = 9, 2, 100
    former.move_end(7)  # a cut
    former.move_end(12)  # what another leader has appended
    assert former.appended_messages == 4
    copy = ends.LogEnd(0)
    copy.move_end(12)
    assert copy.appended_messages == 0
    copy.count_on(former)
    copy.log_end_offset += 1
    assert (copy.appended_messages, copy.appended_batches, copy.appended_bytes) == (5, 2, 100)


# Times.


def every_request_of_a_round_takes_as_long_as_the_round(times: ModuleType) -> None:
    found = times.RequestLatencies(lambda: 100.0)
    found.pending[0] += 50
    found.pending[3] += 1
    found.others.add(3)
    found.settle(0.002)
    found.settle(5.0)  # a round without a request
    found.waited(1, 99.5)
    produce, fetch, metadata = (found.by_api()[name] for name in ("Produce", "Fetch", "Metadata"))
    assert (produce.count, produce.seconds) == (50, pytest.approx(0.1))
    assert (metadata.count, metadata.seconds) == (1, pytest.approx(0.002))
    assert (fetch.count, fetch.seconds) == (1, 0.5)
    assert produce.buckets[times.BOUNDS_S.index(0.0025)] == 50
    assert fetch.buckets[times.BOUNDS_S.index(0.5)] == 1  # a bound belongs to its bucket


def quantiles_are_of_the_last_requests(times: ModuleType) -> None:
    found = times.RequestLatencies(lambda: 0.0)
    for _ in range(90):
        found.waited(1, -0.004)
    for _ in range(10):
        found.waited(1, -0.08)
    api = found.by_api()["Fetch"]
    half, most = api.quantiles([0.5, 0.99])
    assert 0.0025 <= half <= 0.005 and 0.05 <= most <= 0.1
    found.turn_window()
    assert api.quantiles([0.5]) == [half]  # still among the last
    found.turn_window()
    assert api.quantiles([0.5]) == [0.0]
    assert api.count == 100
    assert times.quantile([0] * len(times.BOUNDS_S) + [3], 0.5) == times.BOUNDS_S[-1]


def an_election_is_unclean_if_the_leader_was_not_in_sync(of: ModuleType) -> None:
    before = Partition(
        index=0,
        replicas=(1, 2, 3),
        directories=(bytes(16),) * 3,
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=(3,),
    )
    found = of.BrokerCounters()

    def elect(leader: int) -> None:
        after = Partition(
            index=0,
            replicas=(1, 2, 3),
            directories=(bytes(16),) * 3,
            isr=(max(leader, 1),),
            leader=leader,
            leader_epoch=1,
            partition_epoch=1,
        )
        found.note([PartitionChanged(topic_id=bytes(16), name="t", index=0, before=before, after=after)], 1)

    for leader in (1, 3, -1):
        elect(leader)
    assert found.unclean_elections == 0
    elect(2)
    assert found.unclean_elections == 1


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (request_times, every_request_of_a_round_takes_as_long_as_the_round),
        (request_times, quantiles_are_of_the_last_requests),
        (counts, an_election_is_unclean_if_the_leader_was_not_in_sync),
        (log_end, only_what_a_leader_appends_counts_and_goes_on_in_a_copy),
    ],
)
def test_the_rule_holds(module: ModuleType, rule: object) -> None:
    rule(module)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("module", "right", "wrong", "rule"),
    [
        (
            request_times,
            "seconds * count",
            "seconds",
            every_request_of_a_round_takes_as_long_as_the_round,
        ),
        (
            request_times,
            "bisect_left(BOUNDS_S, seconds)",
            "bisect_left(BOUNDS_S, seconds + 1e-9)",
            every_request_of_a_round_takes_as_long_as_the_round,
        ),
        (request_times, "(times.since[1], times.buckets[:])", "times.since", quantiles_are_of_the_last_requests),
        (
            counts,
            "(*before.isr, *before.eligible_leader_replicas)",
            "before.isr",
            an_election_is_unclean_if_the_leader_was_not_in_sync,
        ),
        (
            log_end,
            "self._not_appended += offset - self.log_end_offset",
            "pass",
            only_what_a_leader_appends_counts_and_goes_on_in_a_copy,
        ),
        (exposition, "if not is_first:", "if False:", no_slice_is_larger_than_what_the_loop_can_bear),
        (
            exposition,
            "SAMPLES_AT_ONCE: Final = 100",
            "SAMPLES_AT_ONCE: Final = 10_000",
            no_slice_is_larger_than_what_the_loop_can_bear,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: object) -> None:
    assert_noticed(module, right, wrong, rule)  # type: ignore[arg-type]


# Dashboards.

# In the manner of the dashboards that people have for Strimzi and for kafka_exporter: what they ask for, in our words.
OF_THE_SCRAPER = ("namespace", "strimzi_io_cluster", "kubernetes_pod_name", "instance", "job")
QUERIES = [
    'count(kafka_server_replicamanager_leadercount{strimzi_io_cluster="c"})',
    'sum(kafka_controller_kafkacontroller_activecontrollercount{namespace="n"})',
    "sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total[5m]))",
    'sum(kafka_server_replicamanager_partitioncount{strimzi_io_cluster="c"})',
    "sum(kafka_server_replicamanager_underreplicatedpartitions)",
    'sum(kafka_cluster_partition_atminisr{namespace="n"})',
    'sum(kafka_cluster_partition_underminisr{namespace="n"})',
    "sum(kafka_server_replicamanager_underminisrpartitioncount)",
    "sum(kafka_server_replicamanager_offlinereplicacount)",
    "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
    "sum(kafka_controller_kafkacontroller_globaltopiccount)",
    "sum(kafka_controller_kafkacontroller_globalpartitioncount)",
    'sum(irate(kafka_server_brokertopicmetrics_bytesin_total{topic=~"t|u",topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_bytesout_total{topic=~"t|u",topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_messagesin_total{topic=~"t|u",topic!=""}[5m]))',
    'sum(irate(kafka_server_brokertopicmetrics_totalproducerequests_total{topic!=""}[5m])) by (topic)',
    'sum(irate(kafka_server_brokertopicmetrics_failedproducerequests_total{topic!=""}[5m])) by (topic)',
    'sum(irate(kafka_server_brokertopicmetrics_totalfetchrequests_total{topic!=""}[5m])) by (topic)',
    'sum(irate(kafka_server_brokertopicmetrics_failedfetchrequests_total{topic!=""}[5m])) by (topic)',
    "sum(kafka_network_socketserver_networkprocessoravgidle_percent * 100) by (kubernetes_pod_name)",
    "sum(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent * 100) by (kubernetes_pod_name)",
    "sum(kafka_server_socket_server_metrics_connection_count) by (kubernetes_pod_name, listener)",
    'kafka_log_log_size{topic=~"t",partition=~"0|1"}',
    'max(kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}) by (request)',
    "sum(rate(kafka_network_requestmetrics_requests_total[5m])) by (request)",
    "max(kafka_server_raftmetrics_current_state) by (kubernetes_pod_name, current_state)",
    "sum(kafka_server_raftmetrics_current_leader) by (kubernetes_pod_name)",
    "sum(kafka_server_raftmetrics_current_epoch) by (kubernetes_pod_name)",
    "sum(kafka_server_raftmetrics_high_watermark) by (kubernetes_pod_name)",
    "sum(kafka_server_raftmetrics_log_end_offset) by (kubernetes_pod_name)",
    "sum(kafka_server_raftmetrics_commit_latency_avg) by (kubernetes_pod_name)",
    "sum(kafka_server_raftmetrics_append_records_rate) by (kubernetes_pod_name)",
    "sum(irate(kafka_server_raftchannelmetrics_incoming_byte_total[5m])) by (kubernetes_pod_name)",
    "sum(irate(kafka_server_raftchannelmetrics_outgoing_byte_total[5m])) by (kubernetes_pod_name)",
    "sum(irate(kafka_server_raftchannelmetrics_request_total[5m])) by (kubernetes_pod_name)",
    "sum(irate(kafka_server_raftchannelmetrics_response_total[5m])) by (kubernetes_pod_name)",
    "sum(rate(kafka_server_replicamanager_isrshrinks_total[5m]))",
    "sum(rate(kafka_server_replicamanager_isrexpands_total[5m]))",
    "sum(rate(kafka_server_brokertopicmetrics_replicationbytesin_total[5m]))",
    "sum(rate(kafka_server_brokertopicmetrics_replicationbytesout_total[5m]))",
    'sum(rate(kafka_network_requestmetrics_errors_total{error!="NONE"}[5m])) by (request, error)',
    "kafka_server_raft_metrics_current_leader",
    'count(kafka_topic_partitions{topic=~".*"})',
    "sum(kafka_topic_partitions) by (topic)",
    "sum(kafka_topic_partition_replicas)",
    "sum(kafka_topic_partition_in_sync_replica)",
    "sum(kafka_topic_partition_under_replicated_partition)",
    "sum(kafka_topic_partition_leader_is_preferred < bool 1)",
    "sum(kafka_topic_partition_oldest_offset) by (partition, topic)",
    "sum(rate(kafka_topic_partition_current_offset[5m])) by (topic)",
    'sum(delta(kafka_consumergroup_current_offset{consumergroup=~"g"}[5m])/300) by (consumergroup, topic)',
    "sum(kafka_consumergroup_lag) by (consumergroup, partition, topic)",
    "sum(process_open_fds) by (kubernetes_pod_name)",
]


def creating(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)


async def busy(broker: Broker) -> Scrape:
    """After traffic of all kinds: what every dashboard should have something to show of."""
    now_ms = broker.clock.now_ms()
    await set_quota(
        broker,
        {"user": None},
        producer_byte_rate=1e9,
        consumer_byte_rate=1e9,
        request_percentage=1e6,
        controller_mutation_rate=1e6,
    )
    await ask(broker, creating("counted"), 7)
    await produce(broker, "t", now_ms, now_ms)
    await ask(broker, fetching("t", 0), 12)
    await ask(broker, commit(1), 9)
    await ask(broker, producing("nowhere", now_ms), 9)
    return scraped(broker)


def found_by(scrape: Scrape, expression: str) -> dict[Selector, int]:
    return {each: len(scrape.matching(each)) for each in selectors(expression, OF_THE_SCRAPER)}


@on_trio
async def test_every_query_of_a_dashboard_finds_its_series_and_labels(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, _):
        scrape = await busy(broker)
        ours = [query for panel in PANELS for query, _ in panel.queries] + [alert.expression for alert in ALERTS]
        for expression in (*QUERIES, *ours):
            found = found_by(scrape, expression)
            assert found and all(found.values()), (expression, found)
            for selector in found:
                labels = {label for labels, _ in scrape.matching(selector) for label in labels}
                requested = groupings(expression) - set(OF_THE_SCRAPER)
                assert requested <= labels, (expression, selector, labels)


TIERED = (
    "trioka_tier_",
    "kafka_server_brokertopicmetrics_remote",
    "kafka_log_remote_",
)  # begin the names of tiered storage


@on_trio
async def test_every_declared_series_is_in_a_scrape_with_its_labels_and_no_other_is(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, _):
        scrape = await busy(broker)
        suffixes = {Kind.HISTOGRAM: "_bucket", Kind.SUMMARY: ""}
        for series in SERIES.values():
            # With a TLS listener: tests/broker/network/test_tls_connections.py; with tiered topics: test_tier.py
            if series.name.startswith(("trioka_tls_", *TIERED)):
                continue
            found = scrape.samples.get(series.name + suffixes.get(series.kind, ""), [])
            assert found, f"{series.name} is declared and has no reading"
            labels = {label for each, _ in found for label in each} - {"le"}
            assert labels == set(series.labels), series.name
        known = {series.name for series in SERIES.values()}
        for name in scrape.samples:
            plain = name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
            assert name in known or plain in known, name


@on_trio
async def test_the_numbers_of_a_quiet_broker_are_right(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, _):
        scrape = await busy(broker)
        partitions = len(broker.partitions)
        for name, value in {
            "kafka_server_replicamanager_leadercount": partitions,
            "kafka_server_replicamanager_partitioncount": partitions,
            "kafka_server_replicamanager_underreplicatedpartitions": 0,
            "kafka_server_replicamanager_underminisrpartitioncount": 0,
            "kafka_server_replicamanager_atminisrpartitioncount": partitions,
            "kafka_server_replicamanager_offlinereplicacount": 0,
            "kafka_controller_kafkacontroller_activecontrollercount": 1,
            "kafka_controller_kafkacontroller_activebrokercount": 1,
            "kafka_controller_kafkacontroller_fencedbrokercount": 0,
            "kafka_controller_kafkacontroller_globaltopiccount": 3,
            "kafka_controller_kafkacontroller_globalpartitioncount": partitions,
            "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
            "kafka_server_raftmetrics_current_leader": 1,
            "kafka_brokers": 1,
            "trioka_damaged_partitions": 0,
        }.items():
            assert scrape.value(name) == value, name
        assert scrape.value("kafka_topic_partitions", topic="t") == 3
        assert scrape.value("kafka_topic_partition_current_offset", topic="t", partition="0") == 2
        assert scrape.value("kafka_topic_partition_leader", topic="t", partition="0") == 1
        assert scrape.value("kafka_topic_partition_in_sync_replica", topic="t", partition="0") == 1
        assert scrape.value("trioka_connections", listener="PLAINTEXT") >= 1
        assert scrape.value("kafka_consumergroup_lag", consumergroup="g", topic="t", partition="0") == 1


# What `make docs` writes.


@pytest.mark.parametrize(
    ("name", "page"),
    [("METRICS.md", reference), ("monitoring/alerts.yml", alert_rules), ("monitoring/dashboard.json", dashboard)],
)
def test_the_page_is_what_the_declarations_say(name: str, page: object) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), "run make docs"  # type: ignore[operator]


def test_the_dashboard_is_json_and_no_panel_lies_on_another() -> None:
    panels = json.loads(dashboard())["panels"]
    places = {
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    }
    assert len(places) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in panels)
    assert max(x for x, _ in places) < 24


def test_every_alert_has_a_runbook_among_the_headings_that_were_agreed_on() -> None:
    headings = {"under-replicated", "disk-full", "growing-lag", "lost-quorum", "corrupt-segment", "offline-directory"}
    assert {alert.runbook for alert in ALERTS} == headings | {"busy-loop"}
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
