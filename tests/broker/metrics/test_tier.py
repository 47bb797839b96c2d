"""Metrics of tiered storage, of a broker with a tiered topic."""

from pathlib import Path

from support.broker_cluster import on_cluster, running_cluster
from support.http_scrapes import scraped
from support.replicated_topics import replica
from support.tiered_topics import (
    Unavailable,
    closed_end,
    create_tiered,
    fill,
    finished,
    tier_of,
    tiered,
    until_copied,
)

from trioka.broker.metrics.series import SERIES

TIERED = ("trioka_tier_", "kafka_server_brokertopicmetrics_remote", "kafka_log_remote_")


@on_cluster
async def test_every_series_of_tiered_storage_is_in_a_scrape_and_the_numbers_are_right(tmp_path: Path) -> None:
    settings = tiered(tmp_path / "store", rlmm_config_remote_log_metadata_topic_replication_factor=1)
    async with running_cluster(tmp_path, nodes=1, **settings) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, 12)
        await until_copied(cluster)
        counts = tier_of(cluster[1]).counts.of("t")  # which follow the records
        await cluster.until(lambda: counts.copied_segments == len(finished(cluster, 1)))
        scrape = scraped(cluster[1])
        for series in SERIES.values():
            if series.name.startswith(TIERED):
                found = scrape.samples.get(series.name)
                assert found, series.name
                assert {label for labels, _ in found for label in labels} == set(series.labels), series.name
        segments = finished(cluster, 1)
        assert scrape.value("kafka_server_brokertopicmetrics_remotecopyrequests_total", topic="t") == len(segments)
        size = sum(segment.size_bytes for segment in segments)
        assert scrape.value("kafka_server_brokertopicmetrics_remotecopybytes_total", topic="t") == size
        assert scrape.value("kafka_server_brokertopicmetrics_remotelogsizebytes", topic="t") == size
        assert scrape.value("kafka_server_brokertopicmetrics_remotelogmetadatacount", topic="t") == len(segments)
        assert scrape.value("kafka_server_brokertopicmetrics_remotecopylagsegments", topic="t") == 0
        active = replica(cluster, 1).log.segments.active.size
        assert scrape.value("trioka_tier_would_be_lost_bytes", topic="t") == active
        assert scrape.value("trioka_tier_oldest_unuploaded_seconds") == 0
        assert scrape.value("trioka_tier_store_requests_total") == 3 * len(segments)


@on_cluster
async def test_a_backlog_shows_as_lag_and_age(tmp_path: Path) -> None:
    settings = tiered(tmp_path / "store", rlmm_config_remote_log_metadata_topic_replication_factor=1)
    async with running_cluster(tmp_path, nodes=1, **settings) as cluster:
        await create_tiered(cluster, on=(1,))
        tier = tier_of(cluster[1])
        tier.store = Unavailable(tier.store)
        await fill(cluster, 12)
        await cluster.until(lambda: tier.counts.errors)
        scrape = scraped(cluster[1])
        log = replica(cluster, 1).log
        size = sum(segment.size for segment in log.segments)
        assert closed_end(cluster, 1) > 0
        assert scrape.value("trioka_tier_would_be_lost_bytes", topic="t") == size
        closed = len(log.segments) - 1
        assert scrape.value("kafka_server_brokertopicmetrics_remotecopylagsegments", topic="t") == closed > 0
        assert scrape.value("trioka_tier_oldest_unuploaded_seconds") > 0
        assert scrape.value("trioka_tier_store_errors_total") > 0
