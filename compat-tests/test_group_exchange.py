"""Groups in a directory in which Apache Kafka and trioka live by turns: what one wrote, the other has.

Kafka makes groups of every kind and stops; trioka starts, has them, goes on with them and makes others; Kafka starts
again and has all of that. Kafka's own reader of `__consumer_offsets` reads what trioka wrote.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from oracle import DUMP_LOG, run_tool
from shared_directory import VOTERS_IN_THE_CONFIGURATION, VOTERS_IN_THE_LOG, SharedDirectory
from support import group_requests as requests
from support.group_requests import consumer_heartbeat, heartbeat, join, sync
from support.serving import Client

from trioka.coordinator.record_codec import GROUPS
from trioka.protocol import batch
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.schema import Struct

OFFSETS = "__consumer_offsets-0"
PATIENCE_S = 30
LONG_MS = 600_000  # nobody's session ends while the programs change places
LOADING = (14, 15, 16)

Plain = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    kafka: Plain  # what each said of all groups, when it had found them, and when it left
    trioka_found: Plain
    trioka_left: Plain
    kafka_again: Plain
    heartbeats: list[int]  # of the members that had joined the other one
    log_of_kafka: list[Path]
    log_of_trioka: list[Path]


@pytest.fixture(scope="module", params=[VOTERS_IN_THE_LOG, VOTERS_IN_THE_CONFIGURATION])
def exchange(request: pytest.FixtureRequest, apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    home = SharedDirectory(tmp_path_factory.mktemp("exchange"), request.param)
    home.format()
    has_consumer_groups = request.param == VOTERS_IN_THE_LOG  # the other directory is of an older release
    beats: list[int] = []
    with home.kafka() as kafka, home.client() as client:
        furnish(client, "kafka", has_consumer_groups)
        text = groups(client, has_consumer_groups)
        kafka.stop()
    log_of_kafka = logs(home.copied("kafka"))

    def visit(client: Client) -> tuple[Plain, Plain]:
        found = groups(client, has_consumer_groups)
        beats.extend(beat(client, found))
        furnish(client, "trioka", has_consumer_groups)
        return found, groups(client, has_consumer_groups)

    trioka_found, trioka_left = home.trioka(visit)
    log_of_trioka = logs(home.copied("trioka"))
    with home.kafka() as kafka, home.client() as client:
        kafka_again = groups(client, has_consumer_groups)
        beats.extend(beat(client, kafka_again))
        kafka.stop()
    return Exchange(
        kafka=text,
        trioka_found=trioka_found,
        trioka_left=trioka_left,
        kafka_again=kafka_again,
        heartbeats=beats,
        log_of_kafka=log_of_kafka,
        log_of_trioka=log_of_trioka,
    )


def logs(path: Path) -> list[Path]:
    return sorted((path / OFFSETS).glob("*.log"))


def furnish(client: Client, who: str, has_consumer_groups: bool) -> None:
    """Groups of every kind, under names of their own; and one that both commit for."""
    client.ask(requests.TOPICS, 7)
    until_ready(lambda: client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code)
    for version in range(2, 10):
        commit(client, f"simple of {who}", version, version)
        commit(client, "of both", 100 + version, version)
    commit(client, f"deleted by {who}", 1, 9)
    assert client.ask(DeleteGroupsRequest(groups_names=[f"deleted by {who}"]), 2).results[0].error_code == 0
    settle(client, f"classic of {who}", None)
    settle(client, f"static of {who}", "an instance")
    requested = consumer_heartbeat(
        f"consumers of {who}", "a member", instance_id="an instance", rebalance_timeout_ms=LONG_MS
    )
    if has_consumer_groups:
        assert client.ask(requested, 1).error_code == 0


def commit(client: Client, group: str, offset: int, version: int) -> None:
    retention_ms = LONG_MS if version == 2 else -1
    request = requests.commit(
        offset, group=group, partitions=[version % 3], text=f"v{version}", leader_epoch=0, retention_ms=retention_ms
    )
    until_ready(lambda: client.ask(request, version).topics[0].partitions[0].error_code)


def settle(client: Client, group: str, instance: str | None) -> None:
    joined = client.ask(join(group, instance=instance, session_ms=LONG_MS), 0 if instance is None else 5)
    assert joined.error_code == 0, joined
    synced = client.ask(sync(group, joined.member_id, joined.generation_id, instance=instance), 3)
    assert synced.error_code == 0, synced


def until_ready(ask: Callable[[], int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (code := ask()) in LOADING:
        assert time.monotonic() < deadline, code
        time.sleep(0.05)
    assert not code


def groups(client: Client, has_consumer_groups: bool) -> dict[str, Plain]:
    """All that can be asked of all groups."""
    known = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="of both", topics=None)])
    until_ready(lambda: client.ask(known, 9).groups[0].error_code)  # Apache Kafka lists nothing before it has loaded
    listed = {group.group_id: group for group in client.ask(ListGroupsRequest(), 5).groups}
    result: dict[str, Plain] = {}
    for name, group in sorted(listed.items()):
        requested = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=name, topics=None)])
        offsets = client.ask(requested, 9).groups[0]
        described: Any = client.ask(DescribeGroupsRequest(groups=[name]), 6).groups[0]
        if group.group_type == "consumer":
            assert has_consumer_groups
            request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
            described = client.ask(request, 1).groups[0]
        result[name] = [plain(group), plain(offsets), plain(described)]
    return result


def beat(client: Client, found: dict[str, Plain]) -> list[int]:
    """Those who joined one program are members of the other."""
    codes = []
    for name, (listed, _, described) in found.items():
        for member in described["members"]:
            if listed["group_type"] == "classic":
                requested = heartbeat(name, member["member_id"], 1, member["group_instance_id"])
                codes.append(client.ask(requested, 4).error_code)
            else:
                epoch = member["member_epoch"]
                still = ConsumerGroupHeartbeatRequest(
                    group_id=name, member_id=member["member_id"], member_epoch=epoch, instance_id=member["instance_id"]
                )
                codes.append(client.ask(still, 1).error_code)
    return codes


def plain(value: Any) -> Plain:
    if isinstance(value, Struct):
        return {field.name: plain(getattr(value, field.name)) for field in value.__fields__}
    if isinstance(value, list):
        return sorted((plain(each) for each in value), key=repr)
    return value


def test_trioka_has_the_groups_that_kafka_wrote(exchange: Exchange) -> None:
    assert len(exchange.kafka) >= 4
    assert exchange.trioka_found == exchange.kafka


def test_kafka_has_the_groups_that_trioka_wrote_and_those_that_it_went_on_with(exchange: Exchange) -> None:
    assert len(exchange.trioka_left) >= 7
    assert exchange.kafka_again == exchange.trioka_left


def test_a_member_of_one_is_a_member_of_the_other(exchange: Exchange) -> None:
    assert len(exchange.heartbeats) >= 6
    assert set(exchange.heartbeats) == {0}


def test_what_kafka_writes_trioka_would_write_alike(exchange: Exchange) -> None:
    for path in exchange.log_of_kafka:
        data = path.read_bytes()
        for header in batch.headers(data):
            for record in batch.records(data, header):
                kept = GROUPS.decode(record.key or b"", record.value)
                assert kept is not None
                assert GROUPS.encode(kept) == (record.key, record.value), kept


def test_kafkas_reader_of_offsets_reads_what_trioka_wrote(exchange: Exchange) -> None:
    files = ",".join(map(str, exchange.log_of_trioka))
    text = run_tool(DUMP_LOG, "--offsets-decoder", "--print-data-log", "--files", files, merged=True)
    data = b"".join(path.read_bytes() for path in exchange.log_of_trioka)
    written = [record for header in batch.headers(data) for record in batch.records(data, header)]
    lines = [line for line in text.splitlines() if line.startswith("| offset:")]
    assert len(lines) == len(written)
    assert all('key: {"type"' in line or '"type":' in line for line in lines), lines
    for name in ("simple of trioka", "classic of trioka", "static of trioka", "deleted by trioka"):
        assert f'"{name}"' in text
