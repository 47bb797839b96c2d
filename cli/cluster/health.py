"""`trioka cluster status`, `brokers`, `quorum`: the health of any Kafka cluster as clients see it. Lagging replicas are
in `cluster/under_replicated.py`.

HEALTHY     every broker is up, every partition has a leader and all of its replicas in sync
DEGRADED    the cluster serves requests, but tolerates fewer failures than configured
DOWN        a partition has no leader, there is no controller, or no broker answers
"""

import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

import click

from trioka.protocol.errors import NONE
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.messages.metadata import MetadataResponse

from .. import problems
from ..client.cluster_client import NO_NODE, Kafka
from ..client.contexts import load_contexts
from ..client.settings import Settings
from ..options import Duration, with_output, with_settings
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, end_status, flush, show, write_stdout
from ..terminal.progress import Progress
from .cluster_name import local_folder, local_folders, name_flag, with_cluster_name
from .local_cluster import LocalCluster, existing_cluster

HEALTHY, DEGRADED, DOWN = "HEALTHY", "DEGRADED", "DOWN"
METADATA_TOPIC: Final = "__cluster_metadata"
LOOK_S: Final = 0.25
WATCH_S: Final = 2.0
NAMED: Final = 3  # number of examples that are named

STATUS_COLUMNS: Final = (
    Column("STATUS", "status"),
    Column("CLUSTER", "cluster"),
    Column("BROKERS", "brokers"),
    Column("CONTROLLER", "controller"),
    Column("EPOCH", "epoch"),
    Column("TOPICS", "topics"),
    Column("PARTITIONS", "partitions"),
    Column("REASONS", "reasons"),
)
BROKER_COLUMNS: Final = (
    Column("ID", "id"),
    Column("ADDRESS", "address"),
    Column("RACK", "rack"),
    Column("STATE", "state"),
    Column("LEADS", "leads"),
    Column("REPLICAS", "replicas"),
    Column("IN-SYNC", "in_sync"),
)
QUORUM_COLUMNS: Final = (
    Column("NODE", "node"),
    Column("ROLE", "role"),
    Column("END", "end"),
    Column("LAG", "lag"),
    Column("LAST-FETCH", "last_fetch_ms", "ms"),
    Column("LAST-CAUGHT-UP", "last_caught_up_ms", "ms"),
)

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1")

R = TypeVar("R")
Partition = MetadataResponse.Topic.Partition


def with_cluster(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the options that name a cluster, as `settings`. The default is the local cluster of `cluster up`."""

    @with_settings
    @functools.wraps(function)
    def wrapped(*arguments: Any, settings: Settings, **keywords: Any) -> R:
        if not _is_named() and load_contexts().current is None:
            local = LocalCluster.load(local_folder())
            if local is not None:
                settings = settings._replace(bootstrap=tuple(local.servers))
        return function(*arguments, settings=settings, **keywords)

    return wrapped


def with_named_cluster(function: Callable[..., R]) -> Callable[..., R]:
    """`with_cluster`, with the option `--name` for a local cluster."""

    @with_cluster
    @with_cluster_name
    @functools.wraps(function)
    def wrapped(*arguments: Any, settings: Settings, cluster_name: str | None, **keywords: Any) -> R:
        if cluster_name is not None:
            text = click.get_current_context().params
            if text.get("bootstrap_server") or text.get("context"):
                raise click.UsageError("name one cluster: by --name, --bootstrap-server or --context.")
            settings = settings._replace(bootstrap=tuple(existing_cluster(cluster_name).servers))
        return function(*arguments, settings=settings, **keywords)

    return wrapped


def _is_named() -> bool:
    text = click.get_current_context().params
    return bool(text.get("bootstrap_server") or text.get("context") or os.environ.get("KAFKA_BOOTSTRAP_SERVERS"))


class Broker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class Quorum(NamedTuple):
    leader: int
    epoch: int
    high_watermark: int
    rows: list[dict[str, Any]]


# -- status ------------------------------------------------------------------------------------------------------------


@click.command("status")
@click.option("--watch", "-w", is_flag=True, help="repeat every two seconds, until Ctrl-C")
@click.option("--wait-healthy", type=Duration(), metavar="TIME", help="wait until the cluster is healthy, at most TIME")
@with_output
@with_named_cluster
def status(settings: Settings, watch: bool, wait_healthy: int | None, output: str) -> int:
    """Shows the health of the cluster in one line; exit code 10 if it is unhealthy."""
    until = time.monotonic() + (wait_healthy or 0) / 1000
    with Progress("waiting", "looks") as progress:
        while True:
            row = _status(settings)
            is_over = row["status"] == HEALTHY or time.monotonic() >= until
            if watch or is_over:
                end_status()
                _show_status(row, output)
            if is_over and not watch:
                return Exit.OK if row["status"] == HEALTHY else Exit.UNHEALTHY
            if not watch:
                progress.wait(f"{row['status']}: {'; '.join(row['reasons'])}")
            time.sleep(WATCH_S if watch else LOOK_S)


def _show_status(row: dict[str, Any], output: str) -> None:
    if output not in ("table", "wide"):
        show([row], STATUS_COLUMNS, output, name="status")
        return
    if row["cluster"] is None:
        write_stdout(f"{row['status']:<9} {row['reasons'][0]}")
    else:
        controller = "no controller" if row["controller"] is None else f"controller {row['controller']}"
        epoch = "" if row["epoch"] is None else f"  epoch {row['epoch']}"
        write_stdout(
            f"{row['status']:<9} cluster {row['cluster']}  {row['brokers']} brokers  {controller}{epoch}  "
            f"{row['topics']} topics  {row['partitions']} partitions"
        )
        for reason in row["reasons"]:
            write_stdout(f"  {reason}")
    flush()


def _status(settings: Settings) -> dict[str, Any]:
    quorum, lost = None, _lost_quorum(settings)
    try:
        with settings.kafka() as kafka:
            cluster, known = kafka.cluster(), brokers_of(kafka)
            silent = silent_brokers(kafka, known)
            try:
                quorum = quorum_of(kafka)
            except Failure as failure:
                lost.append(failure.what)
    except Failure as failure:
        fields = dict.fromkeys(("cluster", "brokers", "controller", "epoch", "topics", "partitions"))
        return {"status": DOWN, **fields, "reasons": [failure.what, *lost]}
    leader = NO_NODE if quorum is None else quorum.leader
    verdict, reasons = judge(cluster, known, silent, has_controller=not lost and (quorum is None or leader != NO_NODE))
    reasons[1:1] = lost
    return {
        "status": verdict,
        "cluster": cluster.cluster_id,
        "brokers": f"{sum(not each.is_fenced and each.id not in silent for each in known)}/{len(known)}",
        "controller": None if leader == NO_NODE else leader,
        "epoch": None if quorum is None else quorum.epoch,
        "topics": len(cluster.topics),
        "partitions": sum(len(topic.partitions) for topic in cluster.topics),
        "reasons": reasons,
    }


def _lost_quorum(settings: Settings) -> list[str]:
    """How many controllers of the local cluster run, if too few do. Clients cannot see the controllers of others."""
    for folder in local_folders():
        try:
            local = LocalCluster.load(folder)
        except Failure:  # a damaged file of a cluster that need not be this one
            continue
        if local is None or not set(settings.bootstrap) & {
            (host, node.port) for host in LOCAL_HOSTS for node in local.nodes.values()
        }:
            continue
        running, count = local.controllers_running()
        if 2 * running <= count:
            verb = "answers" if running == 1 else "answer"
            hint = f"start more: trioka cluster start NODE{name_flag(folder)}"
            return [f"the quorum is lost: {running} of {count} controllers {verb}; {hint}"]
    return []


def silent_brokers(kafka: Kafka, known: Iterable[Broker]) -> list[int]:
    """The brokers that the controller counts as up and that do not answer here: killed or paused a moment ago, or
    advertised by an address that cannot be reached."""
    up = [each for each in known if not each.is_fenced]
    found = []
    for number, each in enumerate(up):
        try:
            with kafka.budget.share(len(up) - number + 1):
                kafka.node(each.id)
        except Failure:
            found.append(each.id)
    return found


def judge(
    cluster: MetadataResponse, known: Iterable[Broker], silent: Iterable[int] = (), *, has_controller: bool
) -> tuple[str, list[str]]:
    """The health of the cluster, and the reasons."""
    every = [(topic.name or "", each) for topic in cluster.topics for each in topic.partitions]
    leaderless = [f"{name}:{each.partition_index}" for name, each in every if each.leader_id == NO_NODE]
    behind = [
        f"{name}:{each.partition_index}" for name, each in every if each.leader_id != NO_NODE and missing_of(each)
    ]
    away = [str(each.id) for each in known if each.is_fenced]
    reasons = []
    if not has_controller:
        reasons.append("no active controller: topics cannot be created, and leaders cannot be elected")
    if leaderless:
        reasons.append(_examples(leaderless, "without a leader"))
    verdict = DOWN if reasons else HEALTHY
    if away:
        reasons.append(f"broker {away[0]} is down" if len(away) == 1 else f"brokers {', '.join(away)} are down")
    if names := list(map(str, silent)):
        one, several = f"broker {names[0]} does not answer", f"brokers {', '.join(names)} do not answer"
        reasons.append(one if len(names) == 1 else several)
    if behind:
        reasons.append(f"{_examples(behind, 'under-replicated')}; see: trioka cluster under-replicated")
    return (DEGRADED if verdict == HEALTHY and reasons else verdict), reasons


def _examples(names: list[str], what: str) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} partitions {what}: {', '.join(names[:NAMED])}{more}"


def missing_of(partition: Partition) -> list[int]:
    return [replica for replica in partition.replica_nodes if replica not in partition.isr_nodes]


def brokers_of(kafka: Kafka) -> list[Broker]:
    """Brokers that are up, and brokers that are known but down, as far as this Kafka version reports them."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    if DescribeClusterRequest.__key__ in kafka.first().versions():
        response = kafka.ask(request)
        if response.error_code == NONE:
            found = [
                Broker(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in response.brokers
            ]
            return sorted(found)
    return sorted(Broker(each.node_id, each.host, each.port, each.rack, False) for each in kafka.cluster().brokers)


# -- brokers, quorum ---------------------------------------------------------------------------------------------------


@click.command("brokers")
@with_output
@with_named_cluster
def brokers(settings: Settings, output: str) -> None:
    """Lists the brokers with their replicas."""
    with settings.kafka() as kafka:
        known = brokers_of(kafka)
        partitions = [each for topic in kafka.cluster().topics for each in topic.partitions]
    leads = Counter(each.leader_id for each in partitions)
    replicas = Counter(node for each in partitions for node in each.replica_nodes)
    in_sync = Counter(node for each in partitions for node in each.isr_nodes)
    rows = [
        {
            "id": each.id,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
            "state": "down" if each.is_fenced else "up",
            "leads": leads[each.id],
            "replicas": replicas[each.id],
            "in_sync": in_sync[each.id],
        }
        for each in known
    ]
    show(rows, BROKER_COLUMNS, output, name="id")


@click.command("quorum")
@with_output
@with_named_cluster
def quorum(settings: Settings, output: str) -> None:
    """Shows the metadata quorum: its leader, voters and their progress."""
    with settings.kafka() as kafka:
        found = quorum_of(kafka)
    if found is None:
        raise Failure("this cluster does not report a metadata quorum")
    show(found.rows, QUORUM_COLUMNS, output, name="node")


def quorum_of(kafka: Kafka) -> Quorum | None:
    """The metadata quorum; None if there is none: before Kafka 3.0, or with ZooKeeper."""
    if DescribeQuorumRequest.__key__ not in kafka.first().versions():
        return None
    wanted = DescribeQuorumRequest.Topic
    request = DescribeQuorumRequest(
        topics=[wanted(topic_name=METADATA_TOPIC, partitions=[wanted.Partition(partition_index=0)])]
    )
    result = kafka.retry_while_stale(lambda: kafka.ask(request), lambda result: [result.error_code])
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, "cannot describe the metadata quorum", result.error_message)
    part = result.topics[0].partitions[0]
    if part.error_code != NONE:
        raise problems.from_error_code(part.error_code, "cannot describe the metadata quorum", part.error_message)
    ends = {each.replica_id: each.log_end_offset for each in (*part.current_voters, *part.observers)}
    end = max(ends.values(), default=0)
    now_ms = int(time.time() * 1000)
    rows = []
    for role, each in [
        *(("leader" if v.replica_id == part.leader_id else "follower", v) for v in part.current_voters),
        *(("observer", o) for o in part.observers),
    ]:
        rows.append(
            {
                "node": each.replica_id,
                "role": role,
                "end": each.log_end_offset,
                "lag": end - each.log_end_offset,
                "last_fetch_ms": _ago(now_ms, each.last_fetch_timestamp),
                "last_caught_up_ms": _ago(now_ms, each.last_caught_up_timestamp),
            }
        )
    return Quorum(part.leader_id, part.leader_epoch, part.high_watermark, rows)


def _ago(now_ms: int, then_ms: int) -> int | None:
    return None if then_ms < 0 else max(0, now_ms - then_ms)
