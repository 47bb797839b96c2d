"""`trioka quota`: limits for users, client ids and addresses.

    trioka quota set producer_byte_rate=1MB request_percentage=50 --user alice
    trioka quota set consumer_byte_rate=500KB --user-defaults --client-id etl
    trioka quota set connection_creation_rate=20 --ip 10.0.0.7
    trioka quota remove --user alice

`--user-defaults`, `--client-defaults` and `--ip-defaults` apply to every entity that has no quota of its own.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import click

from trioka.protocol.errors import NONE
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

from .. import problems
from ..client.cluster_client import Kafka
from ..command_group import group
from ..options import pairs, with_kafka, with_output
from ..terminal.failure import Exit, Failure, did_you_mean
from ..terminal.output import Column, show

R = TypeVar("R")
Entity: TypeAlias = Mapping[str, str | None]  # name by type; None is the default entity
Op = AlterClientQuotasRequest.Entry.Op

EXACT, DEFAULT, ANY = 0, 1, 2  # match types of a filter component, by Kafka's numbers
USER, CLIENT, IP = "user", "client-id", "ip"
FLAGS: Final = {USER: "--user", CLIENT: "--client-id", IP: "--ip"}
DEFAULT_FLAGS: Final = {USER: "--user-defaults", CLIENT: "--client-defaults", IP: "--ip-defaults"}
BYTE_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate")
CLIENT_KEYS: Final = (*BYTE_KEYS, "request_percentage", "controller_mutation_rate")
IP_KEYS: Final = ("connection_creation_rate",)
UNITS: Final = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")

COLUMNS: Final = (
    Column("USER", "user"),
    Column("CLIENT-ID", "client_id"),
    Column("IP", "ip"),
    Column("KEY", "key"),
    Column("VALUE", "value"),
)

quota = group("quota", "Quotas of users, client ids and addresses.", ls="list", rm="remove", delete="remove")


def with_entity(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the options that name an entity; the command gets them as `entity`."""

    @click.option("--user", metavar="NAME")
    @click.option("--user-defaults", is_flag=True, help="all users without a quota of their own")
    @click.option("--client-id", metavar="ID")
    @click.option("--client-defaults", is_flag=True, help="all client ids without a quota of their own")
    @click.option("--ip", metavar="ADDRESS")
    @click.option("--ip-defaults", is_flag=True, help="all addresses without a quota of their own")
    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> R:
        entity: dict[str, str | None] = {}
        for kind, name, default in (
            (USER, "user", "user_defaults"),
            (CLIENT, "client_id", "client_defaults"),
            (IP, "ip", "ip_defaults"),
        ):
            named, is_default = keywords.pop(name), keywords.pop(default)
            if named is not None and is_default:
                raise click.UsageError(f"give {FLAGS[kind]} or {DEFAULT_FLAGS[kind]}, not both.")
            if named is not None or is_default:
                entity[kind] = named
        if IP in entity and len(entity) > 1:
            raise click.UsageError("an address cannot be combined with a user or a client id.")
        return function(*arguments, entity=entity, **keywords)

    return wrapped


@quota.command("list")
@with_entity
@with_output
@with_kafka
def list_quotas(kafka: Kafka, entity: Entity, output: str) -> None:
    """All quotas, or those of the entities that are named."""
    rows = [
        {**_row(entry), "key": key, "value": value}
        for entry, values in described(kafka, entity, strict=False)
        for key, value in sorted(values.items())
    ]
    show(sorted(rows, key=lambda row: [str(row[column.key] or "") for column in COLUMNS]), COLUMNS, output, name="key")


@quota.command("set")
@click.argument("quotas", nargs=-1, required=True, metavar="KEY=VALUE...")
@with_entity
@with_kafka
def set_quota(kafka: Kafka, quotas: tuple[str, ...], entity: Entity) -> None:
    """Sets quotas of one entity. Rates of bytes may have a unit: 500KB, 1MB, 1MiB."""
    known = _known_keys(entity)
    ops = [
        Op(key=_known(key, known), value=_amount(key, text), remove=False)
        for key, text in pairs(quotas, "quota set").items()
    ]
    _alter(kafka, entity, ops)


@quota.command("remove")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@with_entity
@with_kafka
def remove(kafka: Kafka, keys: tuple[str, ...], entity: Entity) -> None:
    """Removes quotas of one entity: those that are named, or all."""
    known = _known_keys(entity)
    there = next((values for _, values in described(kafka, entity, strict=True)), {})
    missing = [key for key in keys if _known(key, known) not in there]
    if missing or not there:
        what = f"{said(entity)} has no quota" + (f" '{missing[0]}'" if missing else "")
        raise Failure(what, exit_code=Exit.NOT_FOUND, hints=["see: trioka quota list"])
    _alter(kafka, entity, [Op(key=key, value=0.0, remove=True) for key in keys or sorted(there)])


def described(kafka: Kafka, entity: Entity, *, strict: bool) -> list[tuple[Entity, dict[str, float]]]:
    """The quotas that match. `strict` leaves out entities with further components."""
    Component = DescribeClientQuotasRequest.Component
    components = [
        Component(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    answer = kafka.ask(DescribeClientQuotasRequest(components=components, strict=strict))
    if answer.error_code != NONE:
        raise problems.from_error_code(
            answer.error_code, f"{kafka.name} did not return its quotas", answer.error_message
        )
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


def said(entity: Entity) -> str:
    return " and ".join(f"{kind} '{name}'" if name is not None else f"default {kind}" for kind, name in entity.items())


def _alter(kafka: Kafka, entity: Entity, ops: Sequence[Op]) -> None:
    Entry = AlterClientQuotasRequest.Entry
    named = [Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(entries=[Entry(entity=named, ops=list(ops))], validate_only=False)
    answer = kafka.ask_controller(request, lambda entry: [each.error_code for each in entry.entries])
    for entry in answer.entries:
        if entry.error_code != NONE:
            what = f"the quotas of {said(entity)} were not changed"
            raise problems.from_error_code(entry.error_code, what, entry.error_message)


def _known_keys(entity: Entity) -> Sequence[str]:
    if not entity:
        raise click.UsageError("name an entity: --user, --client-id or --ip, or the defaults of one.")
    return IP_KEYS if IP in entity else CLIENT_KEYS


def _known(key: str, known: Sequence[str]) -> str:
    if key not in known:
        hints = did_you_mean(key, known)
        raise Failure(f"'{key}' is none of {', '.join(known)}", exit_code=Exit.USAGE, hints=hints)
    return key


def _amount(key: str, text: str) -> float:
    found = _AMOUNT.fullmatch(text.strip())
    unit = found[2].upper() if found else ""
    if found is None or unit not in UNITS or (unit and key not in BYTE_KEYS):
        example = "1MB" if key in BYTE_KEYS else "50"
        raise Failure(f"{key}={text} must be a number, such as {key}={example}", exit_code=Exit.USAGE)
    return float(found[1]) * UNITS[unit]


def _row(entity: Entity) -> dict[str, str | None]:
    names = {kind: "<default>" if name is None else name for kind, name in entity.items()}
    return {"user": names.get(USER), "client_id": names.get(CLIENT), "ip": names.get(IP)}
