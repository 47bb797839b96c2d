"""`trioka lag`: the lag of groups in records and in time, and the time until retention deletes unread records.

    TOPIC   PART  COMMITTED  END  LAG  TIME-LAG  IN/s  OUT/s  CATCH-UP  LOSES-DATA-IN  STATUS  MEMBER

TIME-LAG is the age of the first unread record, so it stays correct when writes stop. LOSES-DATA-IN is the time until
retention deletes that record. IN/s, OUT/s and CATCH-UP need two samples: they are shown with `-w`, and with `--sample
2s`. A partition is `stuck` if its group has committed nothing new for `STUCK_S`; within less time a consumer with the
usual commit interval of 5 s may just not have committed. With `--max` or `--max-time` the command ends with exit code
10 if a partition exceeds the limit.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import click

from trioka.protocol.errors import NONE

from ..client.cluster_client import Kafka, TopicPartition
from ..client.group_state import GroupState, all_groups, existing_group
from ..client.offsets import EARLIEST, LATEST, committed, list_offsets, written_at
from ..configs import TOPIC, described
from ..options import Duration, with_kafka, with_name_arguments, with_output
from ..terminal.failure import Exit
from ..terminal.output import Column, clear_terminal, flush, show, write_stderr, write_stdout

WATCH_S: Final = 2.0
STUCK_S: Final = 6.0
FOR_EVER: Final = -1

COLUMNS: Final = (
    Column("GROUP", "group"),
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("COMMITTED", "committed"),
    Column("END", "end"),
    Column("LAG", "lag"),
    Column("TIME-LAG", "time_lag_ms", "ms"),
    Column("IN/s", "in_per_s"),
    Column("OUT/s", "out_per_s"),
    Column("CATCH-UP", "catch_up_ms", "ms"),
    Column("LOSES-DATA-IN", "loses_data_in_ms", "ms"),
    Column("STATUS", "status"),
    Column("MEMBER", "client"),
)


class LagSample(NamedTuple):
    """One sample of one partition of one group; None: not known."""

    committed: int | None
    end: int | None
    first: int | None


Samples = Mapping[tuple[str, TopicPartition], LagSample]


@click.command("lag")
@with_name_arguments("group", required=False)
@click.option("--all", "everything", is_flag=True, help="all groups; the default without a name")
@click.option("--watch", "-w", is_flag=True, help="repeat until Ctrl-C, with rates")
@click.option("--sample", type=Duration(), metavar="TIME", help="take two samples with this interval, for the rates")
@click.option("--max", "max_lag", type=int, metavar="N", help="exit code 10 if a partition has a larger lag")
@click.option("--max-time", type=Duration(), metavar="TIME", help="exit code 10 if a partition has a larger time lag")
@with_output
@with_kafka
def lag(
    kafka: Kafka,
    names: tuple[str, ...],
    everything: bool,
    watch: bool,
    sample: int | None,
    max_lag: int | None,
    max_time: int | None,
    output: str,
) -> int:
    """The lag of groups: of those named, or of all."""
    if names and everything:
        raise click.UsageError("name groups, or use --all, not both.")
    before: Samples | None = None
    looked = time.monotonic()
    progressed: dict[tuple[str, TopicPartition], float] = {}
    interval_s = WATCH_S if sample is None else sample / 1000
    if sample is not None and not watch:
        before = _look(kafka, _states(kafka, names))
        note_progress(progressed, None, before, looked)
        time.sleep(interval_s)
    while True:
        kafka.forget()
        states = _states(kafka, names)
        now = _look(kafka, states)
        seconds, looked = time.monotonic() - looked, time.monotonic()
        note_progress(progressed, before, now, looked)
        rows = _rows(kafka, states, now, before, seconds, {key: looked - at for key, at in progressed.items()})
        if watch and output in ("table", "wide"):
            clear_terminal()
            write_stdout(f"{time.strftime('%H:%M:%S')}")
        # With one group in the request, its name would repeat in every line.
        show(rows, COLUMNS[len(names) == 1 and output in ("table", "wide") :], output, name="group")
        flush()
        if not watch:
            break
        before = now
        time.sleep(interval_s)
    beyond = [row for row in rows if _is_beyond(row, max_lag, max_time)]
    if beyond:
        write_stderr(f"{len(beyond)} of {len(rows)} partitions are beyond the limit")
        return Exit.UNHEALTHY
    return Exit.OK


def _states(kafka: Kafka, names: Iterable[str]) -> list[GroupState]:
    wanted = list(names) or [each["group"] for each in all_groups(kafka) if each["type"] in ("classic", "consumer")]
    return [existing_group(kafka, name) for name in wanted]


def _look(kafka: Kafka, states: Iterable[GroupState]) -> dict[tuple[str, TopicPartition], LagSample]:
    known = {state.group: committed(kafka, state.group) for state in states}
    readers = {state.group: state.readers() for state in states}
    places = {place for group in known for place in (*known[group], *readers[group])}
    first = list_offsets(kafka, dict.fromkeys(places, EARLIEST))
    end = list_offsets(kafka, dict.fromkeys(places, LATEST))
    return {
        (group, place): LagSample(
            known[group][place].offset if place in known[group] else None,
            end[place].offset if end[place].error == NONE else None,
            first[place].offset if first[place].error == NONE else None,
        )
        for group in known
        for place in sorted({*known[group], *readers[group]})
    }


def _rows(
    kafka: Kafka,
    states: Iterable[GroupState],
    now: Samples,
    before: Samples | None,
    seconds: float,
    idle_s: Mapping[tuple[str, TopicPartition], float],
) -> list[dict[str, Any]]:
    readers = {state.group: state.readers() for state in states}
    ages = _unread_since(kafka, now)
    retention = _retention(kafka, {place.topic for _, place in now})
    now_ms = int(time.time() * 1000)
    rows = []
    for (group, place), look in now.items():
        behind = None if look.committed is None or look.end is None else max(0, look.end - look.committed)
        written = ages.get((group, place))
        keeps = retention.get(place.topic, FOR_EVER)
        reader = readers[group].get(place)
        row = {
            "group": group,
            **place._asdict(),
            "committed": look.committed,
            "end": look.end,
            "lag": behind,
            "time_lag_ms": 0 if behind == 0 else None if written is None else max(0, now_ms - written),
            "loses_data_in_ms": None if written is None or keeps == FOR_EVER else max(0, written + keeps - now_ms),
            "client": None if reader is None else reader.client,
            "member": None if reader is None else reader.member,
            **rates(look, None if before is None else before.get((group, place)), seconds),
        }
        row["status"] = status(look, row, has_reader=reader is not None, idle_s=idle_s.get((group, place), 0.0))
        rows.append(row)
    return rows


def note_progress(
    progressed: dict[tuple[str, TopicPartition], float], before: Samples | None, now: Samples, at: float
) -> None:
    """Notes when each partition was last known to make progress: at its first sample, and at each new commit."""
    for key, sample in now.items():
        last = None if before is None else before.get(key)
        if key not in progressed or last is None or last.committed != sample.committed:
            progressed[key] = at


def rates(now: LagSample, before: LagSample | None, seconds: float) -> dict[str, float | int | None]:
    """Records written and read per second, and the time until the lag is 0 at this rate."""
    nothing: dict[str, float | int | None] = {"in_per_s": None, "out_per_s": None, "catch_up_ms": None}
    if before is None or seconds <= 0 or None in (*now, *before):
        return nothing
    assert now.end is not None and before.end is not None
    assert now.committed is not None and before.committed is not None
    arrives = (now.end - before.end) / seconds
    leaves = (now.committed - before.committed) / seconds
    behind = max(0, now.end - now.committed)
    catch_up = 0 if behind == 0 else None if leaves <= arrives else round(1000 * behind / (leaves - arrives))
    return {"in_per_s": round(arrives, 1), "out_per_s": round(leaves, 1), "catch_up_ms": catch_up}


def status(look: LagSample, row: Mapping[str, Any], *, has_reader: bool, idle_s: float) -> str:
    """One word: the most urgent state. `idle_s` is the time since the last progress, as far as it was sampled."""
    if look.committed is None or look.end is None:
        return "unknown"
    if look.first is not None and look.committed < look.first:
        return "lost"  # records were deleted before they were read
    if look.committed >= look.end:
        return "ok"
    if row["out_per_s"] == 0 and idle_s >= STUCK_S:
        return "stuck"
    return "lagging" if has_reader else "unread"


def _unread_since(
    kafka: Kafka, looks: Mapping[tuple[str, TopicPartition], LagSample]
) -> dict[tuple[str, TopicPartition], int]:
    """The timestamp of the first unread record of each partition."""
    found: dict[tuple[str, TopicPartition], int] = {}
    for group in dict.fromkeys(group for group, _ in looks):
        places = {
            place: max(look.committed, look.first or 0)
            for (each, place), look in looks.items()
            if each == group and look.committed is not None and look.end is not None and look.committed < look.end
        }
        found |= {(group, place): timestamp for place, timestamp in written_at(kafka, places).items()}
    return found


def _retention(kafka: Kafka, topics: set[str]) -> dict[str, int]:
    """The retention time of each topic, in milliseconds."""
    there = {topic.name for topic in kafka.cluster().topics}
    found = {}
    for topic, entries in described(kafka, TOPIC, sorted(topics & {name or "" for name in there})).items():
        values = {entry.name: entry.value for entry in entries}
        if "delete" in (values.get("cleanup.policy") or ""):
            found[topic] = int(values.get("retention.ms") or FOR_EVER)
    return found


def _is_beyond(row: Mapping[str, Any], max_lag: int | None, max_time: int | None) -> bool:
    is_far = max_lag is not None and row["lag"] is not None and row["lag"] > max_lag
    return is_far or (max_time is not None and row["time_lag_ms"] is not None and row["time_lag_ms"] > max_time)
