"""`trioka token`: delegation tokens, which authenticate a user for a limited time.

    trioka token create --max-life-time 1d --renewer User:spark
    trioka token renew TOKEN-ID
    trioka token expire TOKEN-ID
    trioka token list

A token logs in by SCRAM: its id is the user name, its HMAC the password. The HMAC is printed once, by `create`; the
other commands take the id of the token, and ask the cluster for the HMAC.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import click

from trioka.protocol import errors
from trioka.protocol.errors import NONE
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

from .. import problems
from ..client.cluster_client import Kafka
from ..command_group import group
from ..options import Duration, with_kafka, with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr
from ..terminal.time_parsing import show_moment

AS_CONFIGURED: Final = -1  # the maximum that the broker allows
AT_ONCE: Final = -1  # as the period after which a token expires
_PRINCIPAL: Final = re.compile(r"([A-Za-z]+):(.+)")

COLUMNS: Final = (
    Column("TOKEN-ID", "token_id"),
    Column("OWNER", "owner"),
    Column("REQUESTER", "requester"),
    Column("RENEWERS", "renewers"),
    Column("ISSUED", "issued", wide=True),
    Column("EXPIRES", "expires"),
    Column("LAST-RENEWAL", "max_time"),
)
CREATED: Final = (
    Column("TOKEN-ID", "token_id"),
    Column("HMAC", "hmac"),
    Column("OWNER", "owner"),
    Column("EXPIRES", "expires"),
    Column("LAST-RENEWAL", "max_time"),
)

token = group("token", "Delegation tokens.", ls="list", delete="expire")


@token.command("create")
@click.option("--owner", metavar="PRINCIPAL", help="default: the current user; another one needs CREATE_TOKENS")
@click.option("--renewer", "renewers", multiple=True, metavar="PRINCIPAL", help="a user that may renew it; repeatable")
@click.option("--max-life-time", type=Duration(), metavar="TIME", help="default: as long as the broker allows")
@with_output
@with_kafka
def create(kafka: Kafka, owner: str | None, renewers: tuple[str, ...], max_life_time: int | None, output: str) -> None:
    """Creates a token, and prints its HMAC once."""
    kind, name = principal(owner) if owner is not None else ("", "")
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[
            CreateDelegationTokenRequest.Renewer(principal_type=kind, principal_name=name)
            for kind, name in map(principal, renewers)
        ],
        max_lifetime_ms=AS_CONFIGURED if max_life_time is None else max_life_time,
    )
    result = kafka.ask_controller(request, _error)
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, "the token was not created")
    row = {
        "token_id": result.token_id,
        "hmac": b64encode(result.hmac).decode(),
        "owner": f"{result.principal_type}:{result.principal_name}",
        "expires": show_moment(result.expiry_timestamp_ms),
        "max_time": show_moment(result.max_timestamp_ms),
    }
    show([row], CREATED, output, name="token_id")


@token.command("renew")
@click.argument("token_id")
@click.option("--renew-time-period", type=Duration(), metavar="TIME", help="default: the broker's setting")
@with_kafka
def renew(kafka: Kafka, token_id: str, renew_time_period: int | None) -> None:
    """Lengthens the life of a token, at most to its last renewal time."""
    period = AS_CONFIGURED if renew_time_period is None else renew_time_period
    request = RenewDelegationTokenRequest(hmac=_hmac_of(kafka, token_id), renew_period_ms=period)
    result = kafka.ask_controller(request, _error)
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, f"token '{token_id}' was not renewed")
    write_stderr(f"token '{token_id}' expires {show_moment(result.expiry_timestamp_ms)}")


@token.command("expire")
@click.argument("token_id")
@click.option("--expiry-time-period", type=Duration(), metavar="TIME", help="default: at once, which deletes the token")
@with_kafka
def expire(kafka: Kafka, token_id: str, expiry_time_period: int | None) -> None:
    """Ends the life of a token, at once or after a time."""
    period = AT_ONCE if expiry_time_period is None else expiry_time_period
    request = ExpireDelegationTokenRequest(hmac=_hmac_of(kafka, token_id), expiry_time_period_ms=period)
    result = kafka.ask_controller(request, _error)
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, f"token '{token_id}' was not changed")
    write_stderr(f"token '{token_id}' expires {show_moment(result.expiry_timestamp_ms)}")


@token.command("list")
@click.option("--owner", "owners", multiple=True, metavar="PRINCIPAL", help="only tokens of this user; repeatable")
@with_output
@with_kafka
def list_tokens(kafka: Kafka, owners: tuple[str, ...], output: str) -> None:
    """The tokens that this user may see, without their HMACs."""
    rows = [
        {
            "token_id": each.token_id,
            "owner": f"{each.principal_type}:{each.principal_name}",
            "requester": _principal_text(each.token_requester_principal_type, each.token_requester_principal_name),
            "renewers": [f"{one.principal_type}:{one.principal_name}" for one in each.renewers],
            "issued": show_moment(each.issue_timestamp),
            "expires": show_moment(each.expiry_timestamp),
            "max_time": show_moment(each.max_timestamp),
        }
        for each in described(kafka, owners)
    ]
    show(sorted(rows, key=lambda row: str(row["token_id"])), COLUMNS, output, name="token_id")


def principal(text: str) -> tuple[str, str]:
    found = _PRINCIPAL.fullmatch(text)
    if found is None:
        raise Failure(f"'{text}' is no principal; User:ann is one", exit_code=Exit.USAGE)
    return found[1], found[2]


def described(kafka: Kafka, owners: Sequence[str] = ()) -> list[Any]:
    Owner = DescribeDelegationTokenRequest.Owner
    wanted = [Owner(principal_type=kind, principal_name=name) for kind, name in map(principal, owners)] or None
    response = kafka.ask(DescribeDelegationTokenRequest(owners=wanted))
    if response.error_code != NONE:
        raise problems.from_error_code(response.error_code, f"{kafka.name} did not return its tokens")
    return list(response.tokens)


def _hmac_of(kafka: Kafka, token_id: str) -> bytes:
    found = next((each for each in described(kafka) if each.token_id == token_id), None)
    if found is None:
        what = f"there is no token '{token_id}' that this user may see"
        raise problems.not_found(errors.DelegationTokenNotFound, what, ["see: trioka token list"])
    return bytes(found.hmac)


def _principal_text(kind: str, name: str) -> str | None:
    return f"{kind}:{name}" if name else None


def _error(result: Any) -> list[int]:
    return [result.error_code]
