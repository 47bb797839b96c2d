"""`trioka acl`: access rules, and which of them decides a request.

trioka acl add User:bob read,describe topic:orders
trioka acl add User:bob write topic:logs- --resource-pattern-type prefixed
trioka acl add 'User:*' delete topic:orders --deny
trioka acl can User:bob write topic:orders        ends with exit code 4 if bob may not
trioka acl remove --principal User:bob -y
"""

from typing import Any, Final

import click

from trioka.protocol.errors import NONE
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.describe_acls import DescribeAclsRequest

from .. import problems
from ..client.cluster_client import Kafka
from ..command_group import group
from ..configs import BROKER, described
from ..options import confirmed, exit_code_of, with_execute_option, with_kafka, with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr, write_stdout
from . import resources as words
from .acl_decision import Rule, decide

ANY_HOST: Final = "*"
A_HOST: Final = "127.0.0.1"  # the default client address of `can`
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"

COLUMNS: Final = (
    Column("RESOURCE", "resource"),
    Column("PATTERN", "pattern"),
    Column("PRINCIPAL", "principal"),
    Column("PERMISSION", "permission"),
    Column("OPERATION", "operation"),
    Column("HOST", "host"),
)

acl = group("acl", "Access rules.", ls="list", create="add", rm="remove", delete="remove")


def with_filter(function: Any) -> Any:
    """Adds the options that select rules."""
    for option in reversed(
        (
            click.option("--principal", metavar="PRINCIPAL", help="such as User:bob"),
            click.option("--resource", metavar="TYPE:NAME", help="such as topic:orders, or cluster"),
            click.option(
                "--resource-pattern-type",
                type=words.PATTERN_FILTER,
                help="match: all rules that apply to the resource; default any",
            ),
            click.option("--operation", metavar="OPERATION", help="such as READ"),
            click.option("--host", metavar="ADDRESS", help="rules for this address"),
        )
    ):
        function = option(function)
    return function


@acl.command("list")
@with_filter
@with_output
@with_kafka
def list_rules(
    kafka: Kafka,
    principal: str | None,
    resource: str | None,
    resource_pattern_type: str | None,
    operation: str | None,
    host: str | None,
    output: str,
) -> None:
    """All rules, or those that the options select."""
    selected = _filter(principal, resource, resource_pattern_type, operation, host)
    show([_row(rule) for rule in rules_of(kafka, selected)], COLUMNS, output, name="principal")


@acl.command("add")
@click.argument("principal")
@click.argument("operations", metavar="OPERATION[,OPERATION]...")
@click.argument("resource", metavar="TYPE:NAME")
@click.option("--deny", is_flag=True, help="deny; a denial wins over every rule that allows")
@click.option("--host", default=ANY_HOST, metavar="ADDRESS", help="only from this address; default *, from everywhere")
@click.option(
    "--resource-pattern-type",
    type=words.PATTERN,
    default="literal",
    help="prefixed: all resources whose names begin with this",
)
@with_kafka
def add(
    kafka: Kafka, principal: str, operations: str, resource: str, deny: bool, host: str, resource_pattern_type: str
) -> None:
    """Allows a principal to do something with a resource."""
    kind, name = words.resource(resource)
    rules = [
        Rule(
            resource_type=kind,
            resource_name=name,
            pattern_type=words.PATTERNS[resource_pattern_type.lower()],
            principal=words.principal(principal),
            host=host,
            operation=words.operation(each.strip()),
            permission_type=words.DENY if deny else words.ALLOW,
        )
        for each in operations.split(",")
    ]
    creations = [CreateAclsRequest.Creation(**_creation(rule)) for rule in rules]
    answer = kafka.ask_controller(
        CreateAclsRequest(creations=creations), lambda result: [each.error_code for each in result.results]
    )
    for rule, result in zip(rules, answer.results, strict=True):
        if result.error_code != NONE:
            raise problems.from_error_code(result.error_code, f"not added: {rule.words()}", result.error_message)
    for rule in rules:
        write_stderr(f"added: {rule.words()}")


@acl.command("remove")
@with_filter
@with_execute_option
@with_kafka
def remove(
    kafka: Kafka,
    principal: str | None,
    resource: str | None,
    resource_pattern_type: str | None,
    operation: str | None,
    host: str | None,
    execute: bool,
) -> int:
    """Removes the rules that the options select. There is no undo."""
    if not (principal or resource or operation or host):
        raise click.UsageError("select rules: --principal, --resource, --operation or --host.")
    found = rules_of(kafka, _filter(principal, resource, resource_pattern_type, operation, host))
    if not found:
        raise Failure("no rule is selected", exit_code=Exit.NOT_FOUND, hints=["see: trioka acl list"])
    show([_row(rule) for rule in found], COLUMNS, "table")
    if not confirmed(execute, "Remove these rules?"):
        return Exit.OK
    filters = [DeleteAclsRequest.Filter(**_exactly(rule)) for rule in found]  # exactly the rules that were shown
    answer = kafka.ask_controller(
        DeleteAclsRequest(filters=filters), lambda result: [each.error_code for each in result.filter_results]
    )
    failures = [
        problems.from_error_code(result.error_code, f"not removed: {rule.words()}", result.error_message)
        for rule, result in zip(found, answer.filter_results, strict=True)
        if result.error_code != NONE
    ]
    return exit_code_of(failures, len(found))


@acl.command("can")
@click.argument("principal")
@click.argument("operation")
@click.argument("resource", metavar="TYPE:NAME")
@click.option("--host", default=A_HOST, metavar="ADDRESS", help=f"from this address; default {A_HOST}")
@with_output
@with_kafka
def can(kafka: Kafka, principal: str, operation: str, resource: str, host: str, output: str) -> int:
    """Whether a principal may do something, and which rule decides. Exit code 4 if it may not."""
    who, wanted, (kind, name) = words.principal(principal), words.operation(operation), words.resource(resource)
    if wanted == words.OPERATIONS["ALL"]:
        raise Failure("ALL is valid only in rules; name one operation", exit_code=Exit.USAGE)
    about = {
        **_filter(None, None, None, None, None),
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": words.PATTERNS["match"],
    }
    decision = decide(
        rules_of(kafka, about),
        principal=who,
        host=host,
        operation=wanted,
        resource=(kind, name),
    )
    row = {
        "principal": who,
        "operation": words.word(words.OPERATIONS, wanted),
        "resource": f"{words.word(words.RESOURCE_TYPES, kind)}:{name}",
        "host": host,
        "allowed": decision.allowed,
        "because": decision.reason,
        "rule": None if decision.rule is None else _row(decision.rule),
    }
    if output in ("table", "wide"):
        write_stdout(f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}")
    else:
        show([row], CAN_COLUMNS, output, name="allowed")
    if decision.rule is None and (hidden := _hidden_keys(kafka)):
        write_stderr(f"note: the broker has {' and '.join(hidden)} set and hides the value, which may allow it")
    return Exit.OK if decision.allowed else Exit.UNAUTHORISED


CAN_COLUMNS: Final = tuple(
    Column(key.upper(), key) for key in ("principal", "operation", "resource", "host", "allowed", "because")
)


def rules_of(kafka: Kafka, selected: dict[str, Any]) -> list[Rule]:
    answer = kafka.ask(DescribeAclsRequest(**selected))
    if answer.error_code != NONE:
        raise problems.from_error_code(
            answer.error_code, f"{kafka.name} did not return its access rules", answer.error_message
        )
    return sorted(
        Rule(
            resource_type=about.resource_type,
            resource_name=about.resource_name,
            pattern_type=about.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for about in answer.resources
        for each in about.acls
    )


def _hidden_keys(kafka: Kafka) -> list[str]:
    """The keys that allow access without a rule, if they are set: DescribeConfigs hides their values."""
    node = str(kafka.cluster().brokers[0].node_id)
    try:
        entries = described(kafka, BROKER, [node])[node]
    except Failure:
        return []  # this user is not authorized to describe the configuration
    return [entry.name for entry in entries if entry.name in (SUPER_USERS, ALLOW_EVERYONE)]


def _filter(
    principal: str | None, resource: str | None, pattern: str | None, operation: str | None, host: str | None
) -> dict[str, Any]:
    """The fields of DescribeAcls and of a filter of DeleteAcls."""
    kind, name = (words.ANY, None) if resource is None else words.resource(resource)
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": words.PATTERNS[(pattern or "any").lower()],
        "principal_filter": None if principal is None else words.principal(principal),
        "host_filter": host,
        "operation": words.ANY if operation is None else words.operation(operation),
        "permission_type": words.ANY,
    }


def _exactly(rule: Rule) -> dict[str, Any]:
    return {
        "resource_type_filter": rule.resource_type,
        "resource_name_filter": rule.resource_name,
        "pattern_type_filter": rule.pattern_type,
        "principal_filter": rule.principal,
        "host_filter": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission_type,
    }


def _creation(rule: Rule) -> dict[str, Any]:
    fields = rule._asdict()
    return {"resource_pattern_type": fields.pop("pattern_type"), **fields}


def _row(rule: Rule) -> dict[str, str]:
    return {
        "resource": f"{words.word(words.RESOURCE_TYPES, rule.resource_type)}:{rule.resource_name}",
        "pattern": words.word(words.PATTERNS, rule.pattern_type),
        "principal": rule.principal,
        "permission": words.word(words.PERMISSIONS, rule.permission_type),
        "operation": words.word(words.OPERATIONS, rule.operation),
        "host": rule.host,
    }
