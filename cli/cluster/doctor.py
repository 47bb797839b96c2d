"""`trioka doctor`: checks that a cluster is reachable at its advertised addresses and healthy; exit code 10 if not."""

import time
from collections.abc import Iterator
from typing import Final

import click

from trioka.protocol.errors import error_class
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.metadata import MetadataResponse

from ..client.cluster_client import NO_NODE, Kafka
from ..client.connection import ConnectionClosed
from ..client.group_state import all_groups
from ..client.settings import Settings
from ..command_group import Group
from ..configs import BROKER, described
from ..options import with_output, with_settings
from ..terminal.failure import Exit, Failure
from ..terminal.output import show
from . import scrub_report
from .doctor_tls import broker_findings, doctor_tls
from .findings import COLUMNS, FAILED, OK, WARNING, Finding
from .scrub_report import ScrubReport

NAMED: Final = 3  # number of examples that are named
HTTP_LISTENERS: Final = "trioka.http.listeners"
METRICS_S: Final = 3.0  # timeout of a broker's metrics page
MIN_FREE: Final = 0.1  # a disk with less than this part of it free is almost full


@click.group("doctor", cls=Group, invoke_without_command=True)
@with_output
@with_settings
@click.pass_context
def doctor(context: click.Context, settings: Settings, output: str) -> int:
    """Looks at a cluster from the outside, and says what is wrong with it."""
    return Exit.OK if context.invoked_subcommand is not None else _look(settings, output)


doctor.add_command(doctor_tls)


def _look(settings: Settings, output: str) -> int:
    findings: list[Finding] = []
    unreachable = list(_bootstrap(settings))
    findings += unreachable
    if all(each.status == FAILED for each in unreachable):
        show([each._asdict() for each in findings], COLUMNS, output, name="check")
        return Exit.UNREACHABLE
    answering = tuple(at for at, found in zip(settings.bootstrap, unreachable, strict=True) if found.status != FAILED)
    with settings._replace(bootstrap=answering).kafka() as kafka:
        findings += _cluster(kafka)
        findings += _listeners(kafka)
        findings += broker_findings(kafka, settings, time.time())
        findings += _directories(kafka)
        findings += _damage(kafka)
        findings += _partitions(kafka.cluster())
        findings += _groups(kafka)
    show([each._asdict() for each in findings], COLUMNS, output, name="check")
    return Exit.UNHEALTHY if any(each.status == FAILED for each in findings) else Exit.OK


def _bootstrap(settings: Settings) -> Iterator[Finding]:
    """Check each bootstrap server by itself: a list with one wrong server works until the others are down."""
    share_s = settings.timeout_s / len(settings.bootstrap)
    for server in settings.bootstrap:
        name = f"{server[0]}:{server[1]}"
        with settings._replace(bootstrap=(server,), timeout_s=share_s).kafka() as kafka:
            try:
                offered = len(kafka.first().versions())
            except Failure as failure:
                yield Finding("bootstrap server", FAILED, failure.what, f"trioka explain {failure.code}")
            else:
                yield Finding("bootstrap server", OK, f"{name} offers {offered} APIs")


def _cluster(kafka: Kafka) -> Iterator[Finding]:
    cluster = kafka.cluster()
    brokers = ",".join(str(each.node_id) for each in sorted(cluster.brokers, key=lambda each: each.node_id))
    yield Finding("cluster", OK, f"{cluster.cluster_id} with brokers {brokers}")
    if cluster.controller_id == NO_NODE:
        yield Finding(
            "controller", FAILED, "there is none: nothing can be created or elected", "look at the controllers' logs"
        )
    else:
        yield Finding("controller", OK, f"reached through broker {cluster.controller_id}")


def _listeners(kafka: Kafka) -> Iterator[Finding]:
    brokers = kafka.cluster().brokers
    for number, broker in enumerate(brokers):
        try:
            with kafka.budget.share(len(brokers) - number + 1):
                connection = kafka.connect_as_advertised(broker.node_id, broker.host, broker.port)
                connection.versions()
            yield Finding("advertised listener", OK, f"broker {broker.node_id} at {connection.address}")
            connection.close()
        except Failure as failure:
            yield Finding("advertised listener", FAILED, failure.what, f"trioka explain {failure.code}")
        except ConnectionClosed:
            yield Finding("advertised listener", FAILED, f"broker {broker.node_id} closed the connection")


def _directories(kafka: Kafka) -> Iterator[Finding]:
    """Check each broker's log directories: a failed or full disk accepts no records."""
    if DescribeLogDirsRequest.__key__ not in kafka.first().versions():
        return
    found = 0
    brokers = kafka.cluster().brokers
    for number, broker in enumerate(brokers):
        try:
            with kafka.budget.share(len(brokers) - number + 1):
                answer = kafka.ask_node(broker.node_id, DescribeLogDirsRequest(topics=None))
        except (Failure, ConnectionClosed):
            continue  # the listener check has reported it
        for each in answer.results:
            place = f"broker {broker.node_id}: {each.log_dir}"
            found += 1
            if each.error_code:
                what = f"{place} is offline ({error_class(each.error_code).name})"
                yield Finding("log directory", FAILED, what, "free or mend the disk, then start the broker again")
            elif 0 <= each.usable_bytes < MIN_FREE * each.total_bytes:
                share = 100 * each.usable_bytes // max(each.total_bytes, 1)
                yield Finding("log directory", WARNING, f"{place} has {share} % free", "trioka topics trim TOPIC")
    yield Finding("log directories", OK, f"{found} looked at")


def _damage(kafka: Kafka) -> Iterator[Finding]:
    """Report damaged records, when each broker's partitions were last scrubbed, and what only brokers have."""
    brokers = kafka.cluster().brokers
    only_local: list[int] = []
    for number, broker in enumerate(brokers):
        try:
            with kafka.budget.share(len(brokers) - number + 1):
                entries = described(kafka, BROKER, [str(broker.node_id)])[str(broker.node_id)]
        except (Failure, ConnectionClosed, KeyError):
            continue  # the listener check has reported it
        listeners = next((entry.value for entry in entries if entry.name == HTTP_LISTENERS), None)
        if not listeners:
            continue
        at = scrub_report.addresses(listeners, broker.host)
        report = scrub_report.fetch(at, METRICS_S)
        if report is not None and report.would_be_lost_bytes is not None:
            only_local.append(report.would_be_lost_bytes)
        yield from damage_of(broker.node_id, at, report, scrub_report.now_s())
    if only_local:
        what = f"{sum(only_local)} bytes of tiered topics and memory topics are not in the object store"
        yield Finding("would be lost", OK, f"{what}, reported by {len(only_local)} brokers")


def damage_of(node_id: int, at: list[str], report: ScrubReport | None, now_s: float) -> Iterator[Finding]:
    if report is None:
        what = f"broker {node_id}: its metrics at {', '.join(at)} cannot be reached from here"
        yield Finding("scrub", OK, what)
        return
    if report.unhealed:
        what = f"broker {node_id}: no replica has a good copy of {report.unhealed} damaged ranges"
        yield Finding("damage", FAILED, what, "look for replica.unhealed in its log")
    elif report.damaged:
        what = f"broker {node_id}: {report.damaged} damaged ranges are being healed"
        yield Finding("damage", WARNING, what, "trioka doctor, a little later")
    yield Finding("scrub", OK, f"broker {node_id}: {report.words(now_s)}")


def _partitions(cluster: MetadataResponse) -> Iterator[Finding]:
    every = [(topic, partition) for topic in cluster.topics for partition in topic.partitions]
    without = [f"{topic.name}:{each.partition_index}" for topic, each in every if each.leader_id == NO_NODE]
    behind = [
        f"{topic.name}:{each.partition_index}"
        for topic, each in every
        if len(each.isr_nodes) < len(each.replica_nodes) and each.leader_id != NO_NODE
    ]
    if without:
        found, then = _examples(without, "without a leader"), "trioka topics describe --unavailable-partitions"
        yield Finding("partitions", FAILED, found, then)
    if behind:
        found, then = _examples(behind, "under-replicated"), "trioka topics describe --under-replicated-partitions"
        yield Finding("partitions", FAILED, found, then)
    if not without and not behind:
        yield Finding("partitions", OK, f"all {len(every)} of {len(cluster.topics)} topics have their replicas")


def _groups(kafka: Kafka) -> Iterator[Finding]:
    if ListGroupsRequest.__key__ not in kafka.first().versions():
        yield Finding("groups", WARNING, "this broker has no groups")
        return
    try:
        found = all_groups(kafka)
    except Failure as failure:
        yield Finding("groups", FAILED, failure.what, f"trioka explain {failure.code}" if failure.code else None)
        return
    moving = [each["group"] for each in found if "Rebalance" in (each["state"] or "")]
    if moving:
        yield Finding("groups", WARNING, _examples(moving, "in a rebalance"), "trioka groups list")
    else:
        yield Finding("groups", OK, f"{len(found)} in all, none in a rebalance")


def _examples(names: list[str], what: str) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} {what}: {', '.join(names[:NAMED])}{more}"
