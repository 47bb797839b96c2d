"""`trioka user`: the users that log in by SCRAM.

    trioka user create alice                        the password comes from a prompt, or from standard input
    trioka user passwd alice < password-file
    trioka user list

The password does not leave this machine: the request contains its PBKDF2 hash. A user has one credential per mechanism.
Users of PLAIN and of OAUTHBEARER are not in the cluster's metadata, and so not in this list.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final

import click

from trioka.protocol import errors
from trioka.protocol.errors import NONE
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from trioka.protocol.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_RANDOM_BYTES,
    SCRAM_MECHANISMS,
    salt_text,
    salted_password,
)

from .. import problems
from ..client.cluster_client import Kafka
from ..command_group import group
from ..options import confirmed, exit_code_of, with_execute_option, with_kafka, with_output
from ..terminal.failure import Exit, Failure, did_you_mean
from ..terminal.output import Column, show, write_stderr
from .passwords import read_password

Upsertion = AlterUserScramCredentialsRequest.Upsertion
Deletion = AlterUserScramCredentialsRequest.Deletion

MECHANISMS: Final = {mechanism.number: name for name, mechanism in SCRAM_MECHANISMS.items()}
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"

COLUMNS: Final = (Column("USER", "user"), Column("MECHANISM", "mechanism"), Column("ITERATIONS", "iterations"))
MECHANISM: Final = click.option(
    "--mechanism", type=click.Choice(list(SCRAM_MECHANISMS), case_sensitive=False), help=f"default {DEFAULT_MECHANISM}"
)
ITERATIONS: Final = click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), metavar="N", help=f"default {MIN_ITERATIONS}"
)

user = group("user", "Users that log in by SCRAM.", ls="list", add="create", rm="delete", remove="delete")


@user.command("list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@with_output
@with_kafka
def list_users(kafka: Kafka, names: tuple[str, ...], output: str) -> None:
    """Users and their mechanisms."""
    rows = [
        {"user": name, "mechanism": mechanism, "iterations": iterations}
        for name, mechanisms in sorted(credentials(kafka, names).items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    found = {row["user"] for row in rows}
    for name in names:
        if name not in found:
            raise _no_such_user(kafka, name)
    show(rows, COLUMNS, output, name="user")


@user.command("create")
@click.argument("name")
@MECHANISM
@ITERATIONS
@with_kafka
def create(kafka: Kafka, name: str, mechanism: str | None, iterations: int | None) -> None:
    """Creates a user. The password comes from a prompt or from standard input."""
    chosen = mechanism or DEFAULT_MECHANISM
    if chosen in credentials(kafka, [name]).get(name, {}):
        hints = [f"change the password: trioka user passwd {name}"]
        raise Failure(f"user '{name}' exists already, with {chosen}", exit_code=Exit.EXISTS, hints=hints)
    _set(kafka, name, {chosen: iterations or MIN_ITERATIONS}, read_password(name))
    write_stderr(f"user '{name}' can log in by {chosen}")


@user.command("passwd")
@click.argument("name")
@MECHANISM
@ITERATIONS
@with_kafka
def passwd(kafka: Kafka, name: str, mechanism: str | None, iterations: int | None) -> None:
    """Changes a password, for all mechanisms of the user or for one. It comes from a prompt or from standard input."""
    has = credentials(kafka, [name]).get(name, {})
    if not has:
        raise _no_such_user(kafka, name)
    if mechanism is not None and mechanism not in has:
        hints = [f"add it: trioka user create {name} --mechanism {mechanism}"]
        raise Failure(f"user '{name}' does not have {mechanism}", exit_code=Exit.NOT_FOUND, hints=hints)
    changed = {each: iterations or has[each] for each in has if mechanism in (None, each)}
    _set(kafka, name, changed, read_password(name))
    write_stderr(f"user '{name}' has a new password for {', '.join(changed)}; open connections stay")


@user.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="USER...")
@MECHANISM
@with_execute_option
@with_kafka
def delete(kafka: Kafka, names: tuple[str, ...], mechanism: str | None, execute: bool) -> int:
    """Deletes users, or one mechanism of theirs. There is no undo."""
    has = {name: credentials(kafka, [name]).get(name, {}) for name in dict.fromkeys(names)}
    rows = []
    for name, mechanisms in has.items():
        some = [{"user": name, "mechanism": each, "iterations": count} for each, count in mechanisms.items()]
        some = [row for row in some if mechanism in (None, row["mechanism"])]
        if not some:
            raise _no_such_user(kafka, name)
        rows += some
    show(rows, COLUMNS, "table")
    if not confirmed(execute, "Delete these credentials?"):
        return Exit.OK
    failures = []
    for row in rows:
        deletion = Deletion(name=str(row["user"]), mechanism=SCRAM_MECHANISMS[str(row["mechanism"])].number)
        failures += _alter(kafka, [deletion], [], f"user '{row['user']}' was not deleted")
    return exit_code_of(failures, len(rows))


def credentials(kafka: Kafka, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """The number of iterations by user and mechanism; all users if none is named."""
    wanted = [DescribeUserScramCredentialsRequest.User(name=name) for name in names] or None
    answer = kafka.ask_controller(DescribeUserScramCredentialsRequest(users=wanted), _described)
    if answer.error_code != NONE:
        raise problems.from_error_code(
            answer.error_code, f"{kafka.name} did not return its users", answer.error_message
        )
    found: dict[str, dict[str, int]] = {}
    for result in answer.results:
        if result.error_code not in (NONE, errors.ResourceNotFound.code):
            raise problems.from_error_code(
                result.error_code, f"{kafka.name} does not describe user '{result.user}'", result.error_message
            )
        if result.error_code == NONE:
            found[result.user] = {
                MECHANISMS.get(each.mechanism, str(each.mechanism)): each.iterations for each in result.credential_infos
            }
    return found


def _described(answer: Any) -> list[int]:
    return [answer.error_code, *(each.error_code for each in answer.results)]


def _set(kafka: Kafka, name: str, iterations: dict[str, int], password: str) -> None:
    """Set a credential per mechanism: Kafka accepts a user once per request, so each mechanism has a request."""
    for mechanism, count in iterations.items():
        salt = salt_text(secrets.token_bytes(SALT_RANDOM_BYTES))
        upsertion = Upsertion(
            name=name,
            mechanism=SCRAM_MECHANISMS[mechanism].number,
            iterations=count,
            salt=salt,
            salted_password=salted_password(SCRAM_MECHANISMS[mechanism], password, salt, count),
        )
        for failure in _alter(kafka, [], [upsertion], f"the password of user '{name}' was not set"):
            raise failure


def _alter(kafka: Kafka, deletions: list[Deletion], upsertions: list[Upsertion], what: str) -> list[Failure]:
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.results])
    return [
        problems.from_error_code(result.error_code, what, result.error_message)
        for result in answer.results
        if result.error_code != NONE
    ]


def _no_such_user(kafka: Kafka, name: str) -> Failure:
    hints = [*did_you_mean(name, credentials(kafka, [])), "see: trioka user list"]
    return problems.not_found(errors.ResourceNotFound, f"user '{name}' does not exist on {kafka.name}", hints)
