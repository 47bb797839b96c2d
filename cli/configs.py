"""`trioka config`: the configuration of topics, brokers and groups, and a check of a server.properties before its use.

    trioka config show --topic orders        trioka config set retention.ms=3600000 --topic orders
    trioka config get num.partitions         trioka config lint server.properties

Without a resource the command uses the broker that was reached first; `--broker default` means all brokers.
"""

import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from trioka.protocol.errors import NONE, UnknownTopicOrPartition
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

from . import problems
from .client.cluster_client import Kafka
from .command_group import group
from .options import pairs, with_kafka, with_output
from .terminal.failure import Exit, Failure, did_you_mean
from .terminal.output import Column, show, write_stderr, write_stdout

R = TypeVar("R")
Entry = DescribeConfigsResponse.Result.Config

TOPIC, BROKER, GROUP = 2, 4, 32  # kinds of resource, by Kafka's numbers
KINDS: Final = {TOPIC: "topic", BROKER: "broker", GROUP: "group"}
DYNAMIC_TOPIC: Final = 1
SOURCES: Final = {
    1: "topic",
    2: "this broker",
    3: "all brokers",
    4: "server.properties",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
DEFAULT: Final = 5
ALL_BROKERS: Final = 3
OWN_SOURCE: Final = {TOPIC: DYNAMIC_TOPIC, BROKER: 2, GROUP: 8}
APPLY_TIMEOUT_S: Final = 2.0
LOOK_AGAIN_S: Final = 0.02
SET, DELETE = 0, 1

COLUMNS: Final = (
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("SOURCE", "source"),
    Column("READ-ONLY", "read_only", wide=True),
    Column("SENSITIVE", "sensitive", wide=True),
)

config = group("config", "Configuration of topics, brokers and groups.", describe="show", delete="unset")


class Resource(NamedTuple):
    kind: int
    name: str

    def __str__(self) -> str:
        return f"{KINDS[self.kind]} '{self.name}'" if self.name else "all brokers"


class Change(NamedTuple):
    """A new value of a key; None resets it to its default."""

    key: str
    value: str | None


def with_resource(function: Callable[..., R]) -> Callable[..., R]:
    """Adds `--topic`, `--broker` and `--group`; the command gets exactly one of them, or none, as `resource`."""

    @click.option("--topic", metavar="NAME")
    @click.option("--broker", metavar="ID", help="a broker's number, or 'default' for all brokers")
    @click.option("--group", "group_name", metavar="NAME")
    @functools.wraps(function)
    def wrapped(*arguments: Any, topic: str | None, broker: str | None, group_name: str | None, **keywords: Any) -> R:
        named = [
            Resource(kind, name)
            for kind, name in ((TOPIC, topic), (BROKER, broker), (GROUP, group_name))
            if name is not None
        ]
        if len(named) > 1:
            raise click.UsageError("name one resource: --topic, --broker or --group.")
        resource = named[0] if named else None
        if resource == Resource(BROKER, "default"):
            resource = Resource(BROKER, "")
        return function(*arguments, resource=resource, **keywords)

    return wrapped


@config.command("show")
@with_resource
@click.option("--all", "everything", is_flag=True, help="include defaults")
@with_output
@with_kafka
def show_config(kafka: Kafka, resource: Resource | None, everything: bool, output: str) -> None:
    """What is set; with --all also what has its default."""
    requested = _resource(kafka, resource)
    entries = described(kafka, requested.kind, [requested.name])[requested.name]
    if not everything:
        entries = [entry for entry in entries if _is_set(requested, entry)]
    show([_row(entry) for entry in entries], COLUMNS, output, name="key")


@config.command("get")
@click.argument("key")
@with_resource
@with_kafka
def get(kafka: Kafka, key: str, resource: Resource | None) -> None:
    """One value, and nothing else."""
    requested = _resource(kafka, resource)
    entries = {entry.name: entry for entry in described(kafka, requested.kind, [requested.name])[requested.name]}
    if key not in entries:
        hints = [
            *did_you_mean(key, entries),
            f"see: trioka config show --all --{KINDS[requested.kind]} {requested.name}",
        ]
        raise Failure(f"{requested} has no key '{key}'", exit_code=Exit.NOT_FOUND, hints=hints)
    write_stdout(entries[key].value or "")


@config.command("set")
@click.argument("settings_", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--dry-run", is_flag=True, help="only check whether it could be set")
@with_resource
@with_kafka
def set_config(kafka: Kafka, settings_: tuple[str, ...], resource: Resource | None, dry_run: bool) -> None:
    """Sets values, while the broker runs."""
    changes = [Change(key, value) for key, value in pairs(settings_, "config set").items()]
    _alter(kafka, resource, changes, dry_run=dry_run)


@config.command("unset")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@with_resource
@with_kafka
def unset(kafka: Kafka, keys: tuple[str, ...], resource: Resource | None) -> None:
    """Resets keys to their defaults."""
    _alter(kafka, resource, [Change(key, None) for key in keys])


@config.command("lint")
@click.argument("file", metavar="server.properties")
def lint(file: str) -> int:
    """Lists all errors of a server.properties; exit code 1 if a broker would not start with it."""
    from .config_reference import lint as judge

    remarks, errors = judge(file, os.environ)
    for remark in remarks:
        write_stdout(f"note: {remark}")
    if errors:
        for error in errors[:-1]:
            write_stderr(f"error: {error}")
        raise Failure(errors[-1])
    write_stdout("ok")
    return Exit.OK


def described(kafka: Kafka, kind: int, names: Sequence[str]) -> dict[str, list[Entry]]:
    """All keys of resources of one kind, by the resource's name."""
    if not names:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names
        ]
    )
    is_one_broker = kind == BROKER and names[0] != ""  # only the broker itself reports the values of its file
    answer = kafka.ask_node(int(names[0]), request) if is_one_broker else kafka.ask(request)
    found = {}
    for result in answer.results:
        if result.error_code == UnknownTopicOrPartition.code and kind == TOPIC:
            raise kafka.no_such_topic(result.resource_name)
        if result.error_code != NONE:
            what = f"the configuration of {Resource(kind, result.resource_name)} is not known"
            raise problems.from_error_code(result.error_code, what, result.error_message)
        found[result.resource_name] = sorted(result.configs, key=lambda entry: entry.name)
    return found


def alter_configs(
    kafka: Kafka, kind: int, name: str, changes: Sequence[Change], *, dry_run: bool = False
) -> Failure | None:
    """Alter configurations; return the failures."""
    ResourceChange = IncrementalAlterConfigsRequest.Resource
    configs = [
        ResourceChange.Config(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in changes
    ]
    requested = ResourceChange(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[requested], validate_only=dry_run)
    if kind == BROKER and name:  # a broker accepts its own configuration only itself
        answer = kafka.ask_node(int(name), request)
    else:
        answer = kafka.ask_controller(request, lambda response: [each.error_code for each in response.responses])
    (response,) = answer.responses
    if response.error_code == UnknownTopicOrPartition.code and kind == TOPIC:
        return kafka.no_such_topic(name)
    if response.error_code != NONE:
        what = f"{Resource(kind, name)} keeps its configuration"
        hints = unknown_keys(kind, [key for key, _ in changes])
        return problems.from_error_code(response.error_code, what, response.error_message, hints)
    if not dry_run:
        _wait_until_applied(kafka, Resource(kind, name), changes)
    return None


def _wait_until_applied(kafka: Kafka, resource: Resource, changes: Sequence[Change]) -> None:
    """Wait until the brokers apply a change: Kafka confirms it earlier, and the next request should see it. A value
    that the broker reformats never compares equal; the wait ends with the time limit.
    """
    own = OWN_SOURCE[resource.kind] if resource.name else ALL_BROKERS
    deadline = time.monotonic() + APPLY_TIMEOUT_S
    while time.monotonic() < deadline:
        entries = described(kafka, resource.kind, [resource.name])[resource.name]
        seen = {entry.name: entry.value for entry in entries if entry.config_source == own}
        secret = {entry.name for entry in entries if entry.is_sensitive}
        if all(seen.get(key) == value or key in secret for key, value in changes):
            return
        time.sleep(LOOK_AGAIN_S)


def unknown_keys(kind: int, keys: Iterable[str]) -> list[str]:
    """A suggestion for each key that no resource of this kind has."""
    from .config_reference import declared_keys

    known = [name for name, places in declared_keys().items() if KINDS[kind] in dict(places)]
    return [hint for key in keys if key not in known for hint in did_you_mean(key, known)]


def _alter(kafka: Kafka, resource: Resource | None, changes: Sequence[Change], *, dry_run: bool = False) -> None:
    requested = _resource(kafka, resource)
    failure = alter_configs(kafka, requested.kind, requested.name, changes, dry_run=dry_run)
    if failure is not None:
        raise failure
    write_stderr(f"{requested} {'could be' if dry_run else 'is'} configured so")


def _resource(kafka: Kafka, named: Resource | None) -> Resource:
    if named is None:
        first = kafka.first()
        brokers = kafka.cluster().brokers
        here = [each.node_id for each in brokers if (each.host, each.port) == (first.host, first.port)]
        return Resource(BROKER, str(here[0] if here else brokers[0].node_id))
    if named.kind == BROKER and named.name and not named.name.isdigit():
        raise click.UsageError(f"--broker {named.name} must be a number, or 'default'.")
    return named


def _is_set(resource: Resource, entry: Entry) -> bool:
    return bool(entry.config_source == DYNAMIC_TOPIC if resource.kind == TOPIC else entry.config_source != DEFAULT)


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": SOURCES.get(entry.config_source, str(entry.config_source)),
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
    }
