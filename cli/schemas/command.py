"""`trioka schemas`: list, show, add, check and delete schemas of a registry with Confluent's interface."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ..client.registry_client import DEFAULT_REGISTRY, ENVIRONMENT, RegistryClient, RegistryFailure, field, rows
from ..client.settings import DEFAULT_TIMEOUT_S
from ..command_group import group
from ..options import Duration, confirmed, with_execute_option, with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr, write_stdout

R = TypeVar("R")
MAX_SCHEMA_BYTES: Final = 4 << 20
TYPES: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, NO_LEVEL = 40401, 40402, 40408

schemas = group("schemas", "Schemas of a registry, such as that of `trioka dev --registry`.", create="add")


def with_registry(function: Callable[..., R]) -> Callable[..., R]:
    """Adds `--registry` and `--timeout`, and passes on `registry`."""

    def wrapped(*arguments: Any, registry_url: str | None, timeout: int | None, **keywords: Any) -> R:
        timeout_s = DEFAULT_TIMEOUT_S if timeout is None else timeout / 1000
        return function(*arguments, registry=RegistryClient(registry_url, timeout_s), **keywords)

    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    where = f"default ${ENVIRONMENT} or {DEFAULT_REGISTRY}"
    url = click.option("--registry", "registry_url", metavar="URL", help=where)
    limit = click.option("--timeout", type=Duration(), metavar="TIME", help=f"default {DEFAULT_TIMEOUT_S:g}s")
    return url(limit(wrapped))


COLUMNS: Final = (
    Column("SUBJECT", "subject"),
    Column("VERSION", "version"),
    Column("ID", "id"),
    Column("TYPE", "type"),
    Column("LEVEL", "level"),
    Column("REFERENCES", "references", wide=True),
)


@schemas.command("list")
@click.option("--prefix", default="", metavar="TEXT", help="only subjects that begin so")
@with_output
@with_registry
def list_schemas(registry: RegistryClient, prefix: str, output: str) -> None:
    """The newest version of every subject."""
    query = {"latestOnly": "true", **({"subjectPrefix": prefix} if prefix else {})}
    table = [
        {
            "subject": field(each, "subject"),
            "version": field(each, "version"),
            "id": field(each, "id"),
            "type": each.get("schemaType", "AVRO"),
            "level": _level(registry, str(each["subject"])),
            "references": [
                f"{field(one, 'subject')}:{field(one, 'version')}" for one in rows(each.get("references") or [])
            ],
        }
        for each in rows(registry.get("schemas", **query))
    ]
    show(table, COLUMNS, output, name="subject")


def _level(registry: RegistryClient, subject: str) -> str:
    try:
        return str(field(registry.get("config", subject, defaultToGlobal="true"), "compatibilityLevel"))
    except RegistryFailure as failure:
        if failure.error_code not in (NO_LEVEL, SUBJECT_NOT_FOUND):
            raise
        return "-"


@schemas.command("show")
@click.argument("subject", required=False)
@click.option("--version", default="latest", metavar="N", help="default: the newest")
@click.option("--id", "number", type=click.IntRange(min=0), metavar="N", help="a schema by its id")
@with_registry
def show_schema(registry: RegistryClient, subject: str | None, version: str, number: int | None) -> None:
    """The text of a schema."""
    if (subject is None) == (number is None):
        raise click.UsageError("name a subject, or an --id.")
    if subject is not None:
        write_stdout(str(field(registry.get("subjects", subject, "versions", version), "schema")))
    else:
        write_stdout(str(field(registry.get("schemas", "ids", str(number)), "schema")))


def with_schema(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the subject and the file of a schema."""
    reference = click.option(
        "--reference", multiple=True, metavar="NAME=SUBJECT:N", help="a schema that this one refers to by NAME"
    )
    kind = click.option(
        "--type",
        "kind",
        type=click.Choice(sorted(TYPES.values()), case_sensitive=False),
        help="default: by the ending .avsc, .proto or .json",
    )
    file = click.argument("file", type=click.Path())
    return click.argument("subject")(file(kind(reference(function))))


@schemas.command("add")
@with_schema
@with_registry
def add_schema(registry: RegistryClient, subject: str, file: str, kind: str | None, reference: tuple[str, ...]) -> None:
    """Register a schema, and print its id."""
    body = _body(file, kind, reference)
    write_stdout(str(field(registry.request("POST", ("subjects", subject, "versions"), body=body), "id")))


@schemas.command("check")
@with_schema
@with_registry
def check_schema(
    registry: RegistryClient, subject: str, file: str, kind: str | None, reference: tuple[str, ...]
) -> int:
    """Whether a schema could be added: exit code 0, or 10 with the reasons."""
    body = _body(file, kind, reference)
    path = ("compatibility", "subjects", subject, "versions")
    found = registry.request("POST", path, {"verbose": "true"}, body)
    if field(found, "is_compatible"):
        return Exit.OK
    for message in rows(found.get("messages") or []):
        write_stdout(str(message))
    write_stderr(f"the schema is incompatible with subject '{subject}'")
    return Exit.UNHEALTHY


@schemas.command("delete")
@click.argument("subject")
@click.option("--version", metavar="N", help="only this version")
@click.option("--permanent", is_flag=True, help="for good, after a deletion without it")
@with_execute_option
@with_registry
def delete_schema(
    registry: RegistryClient, subject: str, version: str | None, permanent: bool, execute: bool
) -> int | None:
    """Delete a subject, or one version. Its ids can be read until it is deleted --permanent."""
    what = f"subject '{subject}'" if version is None else f"version {version} of subject '{subject}'"
    deleted = {"deleted": "true"} if permanent else {}
    versions = rows(registry.get("subjects", subject, "versions", **deleted))
    if version is None:
        write_stderr(f"{what} has the versions {', '.join(map(str, versions))}")
    if not confirmed(execute, f"Delete {what}{' for good' if permanent else ''}?"):
        return None
    path = ("subjects", subject) if version is None else ("subjects", subject, "versions", version)
    registry.request("DELETE", path, {"permanent": "true"} if permanent else {})
    return None


def _body(file: str, kind: str | None, references: tuple[str, ...]) -> dict[str, Any]:
    """The request that carries a schema."""
    found = kind or TYPES.get(Path(file).suffix)
    if found is None:
        raise click.UsageError(f"{file} ends with none of {', '.join(TYPES)}: give --type.")
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(MAX_SCHEMA_BYTES).decode()
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}", exit_code=Exit.NOT_FOUND) from None
    except UnicodeDecodeError:
        raise Failure(f"{file} is no text in UTF-8", exit_code=Exit.USAGE) from None
    body: dict[str, Any] = {"schema": text, "schemaType": found.upper()}
    if references:
        body["references"] = [_reference(each) for each in references]
    return body


def _reference(text: str) -> dict[str, Any]:
    name, mark, target = text.partition("=")
    subject, colon, version = target.rpartition(":")
    if not (mark and colon and name and subject and version.isascii() and version.isdecimal()):
        raise click.UsageError(f"--reference {text} must be NAME=SUBJECT:VERSION.")
    return {"name": name, "subject": subject, "version": int(version)}
