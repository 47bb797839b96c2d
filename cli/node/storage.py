r"""`trioka storage`: the directories of a node, before it is started for the first time, and what is in them.

    trioka storage random-uuid
    trioka storage format -t CLUSTER-ID -c server.properties
    trioka storage format -t CLUSTER-ID -c server.properties --initial-controllers 1@host-1:9093:UUID,2@host-2:9093:UUID
    trioka storage format -t CLUSTER-ID -c server.properties --release-version 4.0 \
        --add-scram 'SCRAM-SHA-256=[name=admin,password=secret]'
    trioka storage info -c server.properties

Commands, flags and files are those of Apache Kafka's `kafka-storage.sh`, and either may format for the other. A node
that is the only voter of its quorum need not be formatted: it does that itself when it starts.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import click

from trioka.broker.config.layers import ConfigError
from trioka.broker.config.listeners import Node
from trioka.broker.config.properties import parse_environment, parse_properties
from trioka.broker.config.server import load
from trioka.broker.membership.format import AlreadyFormatted, InitialVoter, directories_of, format_node
from trioka.cluster.controller.feature_changes import NEEDED
from trioka.cluster.image.feature_levels import RELEASES, SCRAM_SINCE, fresh_levels, metadata_version_of
from trioka.cluster.image.features import KRAFT_VERSION, METADATA_VERSION, NOT_SERVED, SUPPORTED
from trioka.cluster.image.partition import random_uuid
from trioka.cluster.quorum.metadata_log import LATEST_METADATA_VERSION, MetadataRecord
from trioka.cluster.security.scram import credential_of
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.metadata import FeatureLevelRecord
from trioka.protocol.primitives import uuid_from_text, uuid_text
from trioka.protocol.sasl.scram import SALT_RANDOM_BYTES
from trioka.storage.files.checkpoint import MetaProperties, read_meta_properties
from trioka.storage.files.disk import OsDisk
from trioka.storage.files.layout import META_PROPERTIES, CorruptFile

from ..command_group import group
from ..options import with_output
from ..terminal.failure import Exit, Failure, did_you_mean
from ..terminal.output import Column, show, write_stdout

FOUNDER: Final = re.compile(r"(\d{1,10})@(?:\[([^\]]+)\]|([^:@\[\]]+)):(\d{1,5}):([A-Za-z0-9_-]{22})")
COLUMNS: Final = (
    Column("DIRECTORY", "directory"),
    Column("CLUSTER-ID", "cluster_id"),
    Column("NODE", "node_id"),
    Column("DIRECTORY-ID", "directory_id"),
    Column("STATUS", "status"),
)

storage = group("storage", "The directories of a node: format them, look at them.")


@storage.command("random-uuid")
def random_uuid_command() -> None:
    """A new id, for a cluster or for a directory."""
    write_stdout(uuid_text(random_uuid(SystemRandom())))


@storage.command("format")
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="the same for all nodes of a cluster")
@click.option("-c", "--config", required=True, metavar="FILE", help="the node's server.properties")
@click.option("-s", "--standalone", is_flag=True, help="this controller is the only voter at first")
@click.option("-I", "--initial-controllers", metavar="LIST", help="the first voters: ID@HOST:PORT:DIRECTORY-ID,…")
@click.option("-N", "--no-initial-controllers", is_flag=True, help="this node joins an existing quorum")
@click.option(
    "-r", "--release-version", metavar="RELEASE", help="start with the features of this release: 4.0, 3.9-IV0"
)
@click.option("-f", "--feature", multiple=True, metavar="NAME=LEVEL", help="the first level of a feature; repeatable")
@click.option("-S", "--add-scram", multiple=True, metavar="CREDENTIAL", help="MECHANISM=[name=NAME,password=PASSWORD]")
@click.option("-g", "--ignore-formatted", is_flag=True, help="skip directories that are formatted")
def format_command(
    cluster_id: str,
    config: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    release_version: str | None,
    feature: tuple[str, ...],
    add_scram: tuple[str, ...],
    ignore_formatted: bool,
) -> None:
    """Writes what the node must find when it starts. Nothing that is there is changed."""
    if sum((standalone, initial_controllers is not None, no_initial_controllers)) > 1:
        raise Failure(
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other", exit_code=Exit.USAGE
        )
    node = _node(config)
    _check_cluster_id(cluster_id)
    random = SystemRandom()
    initial_voters = [_founder(text) for text in initial_controllers.split(",")] if initial_controllers else []
    if standalone:
        initial_voters = [_alone(node, random_uuid(random))]
    _check_founders(node, initial_voters, no_initial_controllers)
    has_voters_in_log = bool(initial_voters)
    levels = _levels(feature, release_version, has_voters_in_log or no_initial_controllers)
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    ]
    records += _credentials(add_scram, levels[METADATA_VERSION], random)
    try:
        made = format_node(
            OsDisk(),
            node,
            cluster_id=cluster_id,
            records=records,
            initial_voters=initial_voters,
            has_voters_in_log=has_voters_in_log,
            random=random,
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=ignore_formatted,
        )
    except AlreadyFormatted as error:
        raise Failure(str(error), exit_code=Exit.EXISTS) from None
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}") from None
    if not made:
        write_stdout("All of the log directories are already formatted.")
    for path in made:
        write_stdout(f"Formatting {path} with metadata.version {levels[METADATA_VERSION]}.")


@storage.command("info")
@click.option("-c", "--config", required=True, metavar="FILE", help="the node's server.properties")
@with_output
def info(config: str, output: str) -> int:
    """Whose directories these are, and whether they fit together."""
    rows, problems = [], 0
    found: list[MetaProperties] = []
    for path in directories_of(_node(config)):
        row: dict[str, object] = {"directory": path, "cluster_id": None, "node_id": None, "directory_id": None}
        row["status"] = status = _look(path, row, found)
        problems += status != "formatted"
        rows.append(row)
    show(rows, COLUMNS, output)
    return Exit.UNHEALTHY if problems else Exit.OK


def _look(path: str, row: dict[str, object], found: list[MetaProperties]) -> str:
    disk = OsDisk()
    if not disk.exists(path):
        return "does not exist"
    if not disk.exists(f"{path}/{META_PROPERTIES}"):
        return "not formatted"
    try:
        meta = read_meta_properties(disk, f"{path}/{META_PROPERTIES}")
    except (CorruptFile, ProtocolError) as error:
        return str(error)
    row["cluster_id"], row["node_id"] = meta.cluster_id, meta.node_id
    row["directory_id"] = None if meta.directory_id is None else uuid_text(meta.directory_id)
    found.append(meta)
    if meta.cluster_id != found[0].cluster_id:
        return "of another cluster than the first"
    return "formatted" if meta.node_id == found[0].node_id else "of another node than the first"


# -- checks of the arguments -------------------------------------------------------------------------------------------


def _node(config: str) -> Node:
    try:
        return load(parse_properties(Path(config).read_bytes()), environment=parse_environment(os.environ)).node
    except OSError as error:
        raise Failure(f"{config} cannot be read: {error.strerror}", exit_code=Exit.NOT_FOUND) from None
    except (ConfigError, ValueError) as error:
        raise Failure(str(error).removesuffix(".")) from None


def _check_cluster_id(cluster_id: str) -> None:
    """Kafka accepts any text, but its own ids always are UUIDs of 22 letters; the check finds typing errors."""
    if not cluster_id or cluster_id != cluster_id.strip() or not cluster_id.isprintable():
        raise Failure(
            f"--cluster-id '{cluster_id}' is no id; trioka storage random-uuid makes one", exit_code=Exit.USAGE
        )


def _founder(text: str) -> InitialVoter:
    matched = FOUNDER.fullmatch(text.strip())
    if matched is None or int(matched[4]) > 65535:
        raise Failure(
            f"--initial-controllers has '{text}', and must have ID@HOST:PORT:DIRECTORY-ID", exit_code=Exit.USAGE
        )
    return InitialVoter(int(matched[1]), uuid_from_text(matched[5]), matched[2] or matched[3], int(matched[4]))


def _alone(node: Node, directory: bytes) -> InitialVoter:
    if not node.is_controller:
        raise Failure("--standalone is for controllers, and process.roles is only broker", exit_code=Exit.USAGE)
    listener = node.controller_listeners[0]
    return InitialVoter(node.id, directory, listener.host or "localhost", listener.port)


def _check_founders(node: Node, initial_voters: Sequence[InitialVoter], joins: bool) -> None:
    if len({each.id for each in initial_voters}) < len(initial_voters) or len(
        {each.directory for each in initial_voters}
    ) < len(initial_voters):
        raise Failure("--initial-controllers names a node or a directory twice", exit_code=Exit.USAGE)
    if node.voters and (initial_voters or joins):
        raise Failure("controller.quorum.voters configures the voters, so this option cannot", exit_code=Exit.USAGE)
    if initial_voters and node.is_controller and node.id not in [each.id for each in initial_voters]:
        raise Failure(f"--initial-controllers does not name node {node.id}, which is this one", exit_code=Exit.USAGE)
    if node.is_controller and not node.voters and not initial_voters and not joins:
        raise Failure(
            "controller.quorum.voters is not set, so that the first voters must be named",
            exit_code=Exit.USAGE,
            hints=["with --standalone, --initial-controllers or --no-initial-controllers"],
        )


def _levels(said: Sequence[str], release: str | None, has_voters_in_log: bool) -> dict[str, int]:
    """The feature levels of a release (the newest if none is named), with the levels of the options in place of its
    own.
    """
    wanted: dict[str, int] = {}
    for text in said:
        name, _, level = text.partition("=")
        if name in NOT_SERVED and level != "0":
            raise Failure(f"{name} cannot be turned on: nothing here serves it yet", exit_code=Exit.USAGE)
        if name in NOT_SERVED:
            continue
        if name not in SUPPORTED:
            raise Failure(f"there is no feature '{name}'", exit_code=Exit.USAGE, hints=did_you_mean(name, SUPPORTED))
        if not level.isdigit() or int(level) not in SUPPORTED[name] or name in wanted:
            known = SUPPORTED[name]
            raise Failure(
                f"--feature {text} must be given once, with a level of {known.first} to {known.last}",
                exit_code=Exit.USAGE,
            )
        wanted[name] = int(level)
    kraft = wanted.pop(KRAFT_VERSION, int(has_voters_in_log))
    if kraft != int(has_voters_in_log):
        must = "in the log, which is kraft.version 1" if has_voters_in_log else "in the configuration: kraft.version 0"
        raise Failure(f"kraft.version cannot be {kraft}: the voters are {must}", exit_code=Exit.USAGE)
    fresh = fresh_levels(wanted.get(METADATA_VERSION, _metadata_version(release, wanted)))
    levels = {name: level for name, level in {**fresh, **wanted}.items() if level or name == METADATA_VERSION}
    for (feature, at), (needed, least) in NEEDED.items():
        if levels.get(feature) == at and levels.get(needed, 0) < least:
            raise Failure(f"{feature}={at} needs {needed} at {least} or above", exit_code=Exit.USAGE)
    return dict(sorted(levels.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0])))


def _metadata_version(release: str | None, wanted: Mapping[str, int]) -> int:
    if release is None:
        return LATEST_METADATA_VERSION
    if METADATA_VERSION in wanted:
        raise Failure(
            "--release-version and --feature metadata.version=… set the same level: give one", exit_code=Exit.USAGE
        )
    level = metadata_version_of(release)
    if level is None:
        known = list(RELEASES)
        raise Failure(
            f"there is no release '{release}'",
            exit_code=Exit.USAGE,
            hints=did_you_mean(release, RELEASES) or [f"they go from {known[0]} to {known[-1]}"],
        )
    return level


def _credentials(said: Sequence[str], metadata_version: int, random: Random) -> list[MetadataRecord]:
    """SCRAM credentials as records. Error messages never contain the argument, which holds a password."""
    if said and metadata_version < SCRAM_SINCE:
        raise Failure(f"--add-scram needs metadata.version {SCRAM_SINCE} (3.5-IV2) or above", exit_code=Exit.USAGE)
    try:
        return [credential_of(text, random.randbytes(SALT_RANDOM_BYTES)) for text in said]
    except ValueError as error:
        raise Failure(f"--add-scram: {error}", exit_code=Exit.USAGE) from None
