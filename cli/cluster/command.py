"""`trioka cluster`: a cluster of real processes on this machine (up, down, ps, logs, kill, start, pause, resume), and
the state of any Kafka cluster as clients see it; `cluster/health.py`, `cluster/under_replicated.py` and
`cluster/reassign.py` have the other commands.

The cluster that `up` starts is kept in the user's state folder until `down --delete-data`; without a
`--bootstrap-server` these commands use it if it exists. `--name` tells several of them apart.
"""

import shutil
import signal
import time
from typing import Final

import click

from ..command_group import group
from ..node.flags import DEFAULT_PORT
from ..options import with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr, write_stdout
from .cluster_name import local_folder, with_cluster_name
from .health import brokers, quorum, status
from .local_cluster import MAX_NODES, PAUSED, RUNNING, STOPPED, LocalCluster, existing_cluster
from .reassign import drain, elect_leaders, reassign
from .under_replicated import under_replicated

FOLLOW_S: Final = 0.2

PS_COLUMNS: Final = (
    Column("NODE", "node"),
    Column("STATE", "state"),
    Column("PID", "pid"),
    Column("ADDRESS", "address"),
    Column("ROLES", "roles"),
    Column("DATA", "data", wide=True),
)

cluster = group("cluster", "Starts a cluster on this machine; shows and changes the state of any.")
for command in (status, under_replicated, brokers, quorum, drain, reassign, elect_leaders):
    cluster.add_command(command)

METRICS_ON_A_FREE_PORT: Final = "127.0.0.1:0"

with_node = click.argument("node", type=int, metavar="NODE")


@cluster.command("up")
@click.option(
    "--nodes", type=click.IntRange(1, MAX_NODES), default=3, metavar="N", help="the number of nodes; default 3"
)
@click.option("--port", type=int, default=DEFAULT_PORT, metavar="N", help="of the first node; 0 takes free ports")
@click.option("--override", multiple=True, metavar="KEY=VALUE", help="set a key on all nodes; repeatable")
@click.option("--metrics", is_flag=True, help="serve metrics and health of each node over HTTP, on free ports")
@with_cluster_name
def up(nodes: int, port: int, override: tuple[str, ...], metrics: bool, cluster_name: str | None) -> None:
    """Starts a local cluster, or those of its nodes that are not running."""
    overrides = dict(_override(each) for each in override)
    folder = local_folder(cluster_name)
    flag = "" if cluster_name is None else f" --name {cluster_name}"
    found = LocalCluster.load(folder)
    is_new = found is None
    if found is None:
        had_folder = folder.exists()
        try:
            http = METRICS_ON_A_FREE_PORT if metrics else ""
            found = LocalCluster.found(folder, nodes, port, lambda _: http, overrides)
        except BaseException:
            if not had_folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    elif len(found.nodes) != nodes or overrides or metrics:
        write_stderr(
            f"the cluster exists, with {len(found.nodes)} nodes and its settings; for another one, run first: "
            f"trioka cluster down{flag} --delete-data"
        )
    started = time.monotonic()
    stopped = [node_id for node_id in found.nodes if found.state(node_id) == STOPPED]
    try:
        found.check_ports(stopped)
        for node_id in stopped:
            found.spawn(node_id)
        found.wait_ready([node_id for node_id in found.nodes if found.state(node_id) == RUNNING])
        if is_new and metrics:
            found.wait_metrics()
    except BaseException:
        found.stop(stopped)
        if is_new:
            found.delete()
        raise
    addresses = ",".join(f"localhost:{node.port}" for node in found.nodes.values())
    write_stdout(f"{len(found.nodes)} nodes ready in {time.monotonic() - started:.1f} s · {addresses}")
    for node_id, address in found.metrics.items():
        write_stderr(f"metrics of node {node_id}: {address}")
    write_stderr(f"to use it: export KAFKA_BOOTSTRAP_SERVERS={addresses}      its state: trioka cluster status{flag}")


def _override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise click.UsageError(f"--override {text} must be KEY=VALUE.")
    return key.strip(), value.strip()


@cluster.command("down")
@click.option("--delete-data", is_flag=True, help="and delete the cluster with all its data")
@with_cluster_name
def down(delete_data: bool, cluster_name: str | None) -> None:
    """Stops all nodes. Their data stays for the next `up`."""
    found = existing_cluster(cluster_name)
    killed = found.stop(found.nodes)
    if killed:
        write_stderr(f"killed, since it did not stop: node {', '.join(map(str, killed))}")
    if delete_data:
        found.delete()
    write_stdout(
        f"{len(found.nodes)} nodes stopped" + (" · data deleted" if delete_data else f" · data in {found.folder}")
    )


@cluster.command("ps")
@with_output
@with_cluster_name
def ps(output: str, cluster_name: str | None) -> None:
    """The nodes and their processes."""
    found = existing_cluster(cluster_name)
    rows = []
    for node in found.nodes.values():
        state = found.state(node.id)
        rows.append(
            {
                "node": node.id,
                "state": state,
                "pid": None if state == STOPPED else found.pids[node.id],
                "address": f"localhost:{node.port}",
                "roles": node.roles,
                "data": str(found.folder_of(node.id) / "data"),
            }
        )
    show(rows, PS_COLUMNS, output, name="node")


@cluster.command("logs")
@with_node
@click.option(
    "--lines", "-n", type=click.IntRange(1, 1_000_000), default=100, metavar="N", help="the last N lines; default 100"
)
@click.option("--follow", "-f", is_flag=True, help="wait for more, until Ctrl-C")
@with_cluster_name
def logs(node: int, lines: int, follow: bool, cluster_name: str | None) -> None:
    """Prints the log of a node."""
    found = existing_cluster(cluster_name)
    found.node(node)
    path = found.log_of(node)
    if not path.exists():
        raise Failure(f"node {node} has no log yet", exit_code=Exit.NOT_FOUND)
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file.read().splitlines()[-lines:]:
            write_stdout(line)
        while follow:
            for line in file.read().splitlines():
                write_stdout(line)
            time.sleep(FOLLOW_S)


@cluster.command("kill")
@with_node
@with_cluster_name
def kill(node: int, cluster_name: str | None) -> None:
    """Kills a node: kill -9."""
    found = _running(node, cluster_name)
    found.send(node, signal.SIGKILL)
    found.wait_state(node, STOPPED)
    write_stdout(f"node {node} killed")


@cluster.command("start")
@with_node
@with_cluster_name
def start(node: int, cluster_name: str | None) -> None:
    """Starts a node that is not running."""
    found = existing_cluster(cluster_name)
    found.node(node)
    if found.state(node) != STOPPED:
        raise Failure(f"node {node} is {found.state(node)} already", exit_code=Exit.EXISTS)
    found.spawn(node)
    found.wait_ready([node])
    write_stdout(f"node {node} is ready")


@cluster.command("pause")
@with_node
@with_cluster_name
def pause(node: int, cluster_name: str | None) -> None:
    """Pauses a node, like an overloaded machine: SIGSTOP."""
    found = _running(node, cluster_name)
    found.send(node, signal.SIGSTOP)
    found.wait_state(node, PAUSED)
    write_stdout(f"node {node} paused; to resume it: trioka cluster resume {node}")


@cluster.command("resume")
@with_node
@with_cluster_name
def resume(node: int, cluster_name: str | None) -> None:
    """Resumes a paused node."""
    found = _running(node, cluster_name)
    if found.state(node) != PAUSED:
        raise Failure(f"node {node} is not paused", exit_code=Exit.FAILED)
    found.send(node, signal.SIGCONT)
    found.wait_state(node, RUNNING)
    write_stdout(f"node {node} resumed")


def _running(node: int, cluster_name: str | None) -> LocalCluster:
    found = existing_cluster(cluster_name)
    found.node(node)
    if found.state(node) == STOPPED:
        hints = [f"start it: trioka cluster start {node}"]
        raise Failure(f"node {node} is not running", exit_code=Exit.NOT_FOUND, hints=hints)
    return found
