"""`trioka groups`: list, describe, reset-offsets, undo, delete. Commands that change offsets show a plan and can be
undone.
"""

import time
from typing import Any, Final

import click

from trioka.protocol.errors import NONE
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest

from .. import problems
from ..client.cluster_client import Kafka, TopicPartition
from ..client.group_state import GroupState, all_groups, existing_group, find_group
from ..client.offsets import LATEST, CommittedOffset, commit, committed, forget, list_offsets
from ..command_group import group
from ..options import (
    Duration,
    confirmed,
    exit_code_of,
    with_execute_option,
    with_kafka,
    with_name_arguments,
    with_output,
)
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr, write_stdout
from ..terminal.time_parsing import show_moment
from . import reset, undo

LIST_COLUMNS: Final = (
    Column("GROUP", "group"),
    Column("TYPE", "type"),
    Column("STATE", "state"),
    Column("PROTOCOL", "protocol", wide=True),
    Column("COORDINATOR", "coordinator", wide=True),
)
STATE_COLUMNS: Final = (
    Column("GROUP", "group"),
    Column("TYPE", "type"),
    Column("STATE", "state"),
    Column("ASSIGNOR", "assignor"),
    Column("COORDINATOR", "coordinator"),
    Column("MEMBERS", "member_count"),
)
OFFSET_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("COMMITTED", "committed"),
    Column("END", "end"),
    Column("LAG", "lag"),
    Column("CLIENT", "client"),
    Column("HOST", "host"),
    Column("MEMBER", "member", wide=True),
)
MEMBER_COLUMNS: Final = (
    Column("MEMBER", "member"),
    Column("INSTANCE", "instance", wide=True),
    Column("CLIENT", "client"),
    Column("HOST", "host"),
    Column("PARTITIONS", "partitions"),
)
PLAN_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("COMMITTED", "committed"),
    Column("NEW", "new"),
    Column("CHANGE", "change"),
)

groups = group("groups", "Groups of consumers.", ls="list", desc="describe", reset="reset_offsets", rm="delete")


@groups.command("list")
@click.option("--state", metavar="STATE", help="only groups in this state, such as Stable or Empty")
@with_output
@with_kafka
def list_groups(kafka: Kafka, output: str, state: str | None) -> None:
    """The groups, by name."""
    rows = [each for each in all_groups(kafka) if state is None or (each["state"] or "").lower() == state.lower()]
    show(rows, LIST_COLUMNS, output, name="group")


@groups.command("describe")
@with_name_arguments("group")
@click.option("--members", is_flag=True, help="show the members and their partitions")
@click.option("--state", "only_state", is_flag=True, help="show only the state of the group")
@click.option("--offsets", is_flag=True, help="the committed offsets (the default)")
@with_output
@with_kafka
def describe(kafka: Kafka, names: tuple[str, ...], output: str, members: bool, only_state: bool, offsets: bool) -> None:
    """State, offsets and members of groups."""
    states = [existing_group(kafka, name) for name in names]
    if only_state:
        show(map(_state_row, states), STATE_COLUMNS, output, name="group")
        return
    if members and not offsets:
        show([row for state in states for row in _member_rows(state)], MEMBER_COLUMNS, output, name="member")
        return
    if output in ("json", "yaml"):
        everything = [
            {**_state_row(state), "offsets": offset_rows(kafka, state), "members": _member_rows(state)}
            for state in states
        ]
        show(everything, (), output)
        return
    for number, state in enumerate(states):
        if number and output in ("table", "wide"):
            write_stdout("")
        show(offset_rows(kafka, state), OFFSET_COLUMNS, output, name="topic")
        if not state.members:
            write_stderr(f"group '{state.group}' has no members ({state.state})")


@groups.command("reset-offsets")
@with_name_arguments("group")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,P]", help="only this topic, or these partitions")
@click.option("--all-topics", is_flag=True, help="all partitions that the group has committed")
@click.option("--to-earliest", is_flag=True, help="to the first record")
@click.option("--to-latest", is_flag=True, help="to the end")
@click.option("--to-current", is_flag=True, help="to the committed offset; useful with several topics")
@click.option("--to-offset", type=int, metavar="N")
@click.option("--to-datetime", metavar="TIME", help="to the first record at or after it: 2026-11-16T08:00:00")
@click.option(
    "--by-duration", type=Duration(), metavar="TIME", help="to the first record of this duration before now: 1h, P1D"
)
@click.option("--shift-by", type=int, metavar="N", help="move by N records; back if N is negative")
@click.option("--dry-run", is_flag=True, help="only show the plan")
@with_execute_option
@with_output
@with_kafka
def reset_offsets(
    kafka: Kafka,
    names: tuple[str, ...],
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    output: str,
    **where: Any,
) -> int:
    """Sets what groups have committed. The plan is shown first, and `groups undo` takes it back."""
    target = reset.target_of(where, int(time.time() * 1000))
    if bool(topics) == all_topics:
        raise click.UsageError("give the topics: --topic TOPIC (repeatable) or --all-topics.")
    failures = []
    for name in names:
        state = find_group(kafka, name)
        if state is not None and state.is_active:
            raise _is_active(state, "its offsets cannot be set from outside")
        before = committed(kafka, name)
        places = list(before) if all_topics else reset.places(kafka, topics)
        if not places:
            raise Failure(f"group '{name}' has committed nothing", exit_code=Exit.NOT_FOUND)
        plan = reset.plan(kafka, target, {place: before[place].offset for place in before if place in places}, places)
        show(_plan_rows(name, before, plan), PLAN_COLUMNS, output, name="topic")
        if dry_run or not confirmed(execute, f"Reset group '{name}' so?"):
            continue
        past = undo.UndoEntry(
            int(time.time() * 1000), f"reset-offsets {target}", {place: before.get(place) for place in plan}
        )
        undo.remember(_cluster(kafka), name, past)
        failures += _commit(kafka, name, {place: CommittedOffset(offset) for place, offset in plan.items()})
        write_stderr(f"done; take it back: trioka groups undo --group {name}")
    return exit_code_of(failures, len(failures) + 1)


@groups.command("undo")
@with_name_arguments("group")
@with_execute_option
@with_output
@with_kafka
def take_back(kafka: Kafka, names: tuple[str, ...], execute: bool, output: str) -> int:
    """Brings back what a group had committed before the last reset-offsets or delete from this machine."""
    failures = []
    for name in names:
        pasts = undo.load(_cluster(kafka), name)
        if not pasts:
            hints = ["an undo exists on the machine and for the user that made the change"]
            raise Failure(f"there is nothing to undo for group '{name}'", exit_code=Exit.NOT_FOUND, hints=hints)
        state = find_group(kafka, name)
        if state is not None and state.is_active:
            raise _is_active(state, "its offsets cannot be set from outside")
        past, now = pasts[-1], committed(kafka, name)
        write_stderr(f"before {past.why} at {show_moment(past.at)}:")
        plan = {place: None if then is None else then.offset for place, then in past.offsets.items()}
        show(_plan_rows(name, now, plan), PLAN_COLUMNS, output, name="topic")
        if not confirmed(execute, f"Bring it back for group '{name}'?"):
            continue
        failures += _commit(kafka, name, {place: then for place, then in past.offsets.items() if then is not None})
        gone = [place for place, then in past.offsets.items() if then is None and place in now]
        failures += _failures(name, forget(kafka, name, gone)) if gone else []
        undo.save(_cluster(kafka), name, pasts[:-1])
    return exit_code_of(failures, len(failures) + 1)


@groups.command("delete")
@with_name_arguments("group")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,P]", help="only what is committed for this topic")
@with_execute_option
@with_kafka
def delete(kafka: Kafka, names: tuple[str, ...], topics: tuple[str, ...], execute: bool) -> int:
    """Deletes groups with what they have committed, or what they have committed for a topic."""
    states = [existing_group(kafka, name) for name in names]
    before = {name: committed(kafka, name) for name in names}
    chosen = set(reset.places(kafka, topics)) if topics else None
    doomed = {name: [place for place in before[name] if chosen is None or place in chosen] for name in names}
    rows = [{**_state_row(state), "offsets": len(doomed[state.group])} for state in states]
    show(rows, (Column("DELETE", "group"), Column("STATE", "state"), Column("OFFSETS", "offsets")), "table")
    for state in states:
        if state.is_active and not topics:
            raise _is_active(state, "it cannot be deleted")
    if not confirmed(execute, "Delete them?"):
        return Exit.OK
    failures = []
    for name in names:
        past = undo.UndoEntry(int(time.time() * 1000), "delete", {place: before[name][place] for place in doomed[name]})
        undo.remember(_cluster(kafka), name, past)
        if topics:
            failures += _failures(name, forget(kafka, name, doomed[name]))
            continue
        request = DeleteGroupsRequest(groups_names=[name])
        answer = kafka.ask_coordinator(name, request, lambda result: [each.error_code for each in result.results])
        failures += [
            problems.from_error_code(result.error_code, f"group '{name}' was not deleted")
            for result in answer.results
            if result.error_code != NONE
        ]
    return exit_code_of(failures, len(names))


def offset_rows(kafka: Kafka, state: GroupState) -> list[dict[str, Any]]:
    """The committed offsets and lag of a group, by partition."""
    known, readers = committed(kafka, state.group), state.readers()
    places = sorted({*known, *readers})
    ends = list_offsets(kafka, dict.fromkeys(places, LATEST))
    rows = []
    for place in places:
        at = known[place].offset if place in known else None
        end = ends[place].offset if ends[place].error == NONE else None
        reader = readers.get(place)
        rows.append(
            {
                "group": state.group,
                **place._asdict(),
                "committed": at,
                "end": end,
                "lag": None if at is None or end is None else max(0, end - at),
                "member": None if reader is None else reader.member,
                "client": None if reader is None else reader.client,
                "host": None if reader is None else reader.host,
            }
        )
    return rows


def _is_active(state: GroupState, consequence: str) -> Failure:
    hints = [f"stop its members: trioka groups describe {state.group} --members"]
    return Failure(f"group '{state.group}' has members ({state.state}), so {consequence}", hints=hints)


def _commit(kafka: Kafka, name: str, offsets: dict[TopicPartition, CommittedOffset]) -> list[Failure]:
    return _failures(name, commit(kafka, name, offsets)) if offsets else []


def _failures(name: str, result: dict[TopicPartition, int]) -> list[Failure]:
    return [
        problems.from_error_code(code, f"group '{name}' keeps its offset of {place}")
        for place, code in result.items()
        if code != NONE
    ]


def _plan_rows(
    name: str,
    before: dict[TopicPartition, CommittedOffset],
    plan: dict[TopicPartition, int | None] | dict[TopicPartition, int],
) -> list[dict[str, Any]]:
    rows = []
    for place, new in sorted(plan.items()):
        old = before[place].offset if place in before else None
        change = None if old is None or new is None else f"{new - old:+d}"
        rows.append({"group": name, **place._asdict(), "committed": old, "new": new, "change": change})
    return rows


def _member_rows(state: GroupState) -> list[dict[str, Any]]:
    return [
        {"group": state.group, **each._asdict(), "partitions": [str(place) for place in each.partitions]}
        for each in state.members
    ]


def _state_row(state: GroupState) -> dict[str, Any]:
    return {
        "group": state.group,
        "type": state.type,
        "state": state.state,
        "assignor": state.assignor,
        "coordinator": state.coordinator,
        "member_count": len(state.members),
    }


def _cluster(kafka: Kafka) -> str:
    return kafka.cluster().cluster_id or kafka.name
