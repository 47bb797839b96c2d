"""What `trioka doctor` says of damage and of scrubs: from the metrics of a broker that runs, and from texts."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from mutants.plant import planted
from support.command_line import broker_at, command

from trioka.cli.cluster import scrub_report
from trioka.cli.cluster.doctor import damage_of
from trioka.cli.cluster.scrub_report import ScrubReport, addresses, parse

NOW_S = 1_000_000.0

METRICS = """\
# HELP trioka_damaged_ranges Ranges of records on this broker that are damaged now.
trioka_damaged_ranges 3
trioka_unhealed_ranges 1.0
trioka_scrub_last_complete_timestamp_seconds{topic="orders",partition="1"} 999000
trioka_scrub_last_complete_timestamp_seconds{topic="orders",partition="0"} 996000.5
trioka_scrub_bytes_total 17
"""


def test_damage_and_scrubs_are_found_among_the_metrics() -> None:
    found = parse(METRICS)
    assert found == ScrubReport(3, 1, ((996000.5, "orders-0"), (999000.0, "orders-1")))
    assert found.words(NOW_S) == "2 partitions scrubbed, the longest ago orders-0: 1 h ago"


def test_the_bytes_that_only_brokers_have_are_the_sum_over_topics() -> None:
    assert parse(METRICS).would_be_lost_bytes is None
    lost = 'trioka_tier_would_be_lost_bytes 17\ntrioka_tier_would_be_lost_bytes{topic="orders"} 17\n'
    assert parse(METRICS + lost).would_be_lost_bytes == 17


def test_a_partition_that_was_not_scrubbed_yet_is_counted() -> None:
    found = parse(METRICS.replace(" 999000", " 0"))
    assert found.words(NOW_S) == "1 of 2 partitions not yet scrubbed since its start"
    assert parse("").words(NOW_S) == "no partitions to scrub"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (172800, "2 d ago")]
)
def test_times_are_shown_in_their_largest_unit(seconds: float, words: str) -> None:
    assert ScrubReport(scrubbed_s=((NOW_S - seconds, "a-0"),)).words(NOW_S).endswith(f"a-0: {words}")


def test_metrics_are_looked_for_where_the_broker_serves_them() -> None:
    assert addresses(":10092, 0.0.0.0:9,10.0.0.7:8", "kafka.example") == [
        "127.0.0.1:10092",
        "kafka.example:9",
        "10.0.0.7:8",
    ]


def test_without_a_response_nothing_is_printed() -> None:
    assert scrub_report.fetch(["127.0.0.1:1", "not an address:x"], timeout_s=1.0) is None


def test_a_report_that_forgets_what_was_never_scrubbed_is_noticed() -> None:
    mistaken = planted(scrub_report, "at == 0", "at < 0")
    never = mistaken.parse(METRICS.replace(" 999000", " 0"))
    assert "not yet scrubbed" not in never.words(NOW_S)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (ScrubReport(), ["ok"]),
        (ScrubReport(damaged=2), ["warning", "ok"]),
        (ScrubReport(damaged=2, unhealed=1), ["failed", "ok"]),
        (None, ["ok"]),
    ],
)
def test_damage_that_is_being_healed_is_a_warning_and_damage_for_good_a_failure(
    report: ScrubReport | None, expected: list[str]
) -> None:
    assert [finding.status for finding in damage_of(1, ["localhost:1"], report, NOW_S)] == expected


class Page(BaseHTTPRequestHandler):
    """A metrics page of a broker whose memory topics have 17 bytes."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode() + b"trioka_tier_would_be_lost_bytes 17\n")

    def log_message(self, *_: object) -> None:
        pass


def test_doctor_names_the_sum_of_what_only_brokers_have(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as pages:
        serving = Thread(target=pages.serve_forever)
        serving.start()
        try:
            with broker_at(tmp_path, trioka_http_listeners=f"127.0.0.1:{pages.server_port}") as at:
                rows = command("doctor", "-o", "json", at=at).rows
        finally:
            pages.shutdown()
            serving.join()
    (found,) = [row for row in rows if row["check"] == "would be lost"]
    assert found["status"] == "ok"
    assert found["found"].startswith("17 bytes of tiered topics and memory topics")
