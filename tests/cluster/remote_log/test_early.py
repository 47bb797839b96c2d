"""What a leader uploads of a segment that is still written."""

from typing import Any

from support.remote_segments import a_partition, a_segment, lineage

from trioka.cluster.remote_log.early import (
    MAX_UPLOAD_MS,
    AbandonUpload,
    ActiveSegment,
    BeginUpload,
    EarlyStep,
    EarlyUpload,
    SendParts,
    decide_early,
)
from trioka.cluster.remote_log.plan import LocalSegment, LogFacts, Policy

PART = 100
NOW_MS = 1000
ACTIVE = ActiveSegment(base_offset=20, size_bytes=250)
POLICY = Policy(copies=True, deletes_all=False, retention_ms=-1, retention_bytes=-1, copies_early=True)


def facts(stable: int = 45, high_watermark: int = 45, start: int = 10) -> LogFacts:
    """A closed segment [10, 20), and the active one behind it."""
    closed = LocalSegment(base_offset=10, next_offset=20, size_bytes=100, max_timestamp_ms=0)
    return LogFacts(
        lineage=lineage(45),
        log_start_offset=0,
        replicated_log_start_offset=0,
        local_start_offset=start,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        segments=(closed,) if start == 10 else (),
        active_size_bytes=250,
    )


def upload(**changed: int) -> EarlyUpload:
    values: dict[str, Any] = {"base_offset": 20, "begun_ms": NOW_MS, "sent_bytes": 100, "checked_offset": 31}
    return EarlyUpload(segment_id=bytes(16), **(values | changed))


def decide(
    begun: EarlyUpload | None = None,
    log: LogFacts | None = None,
    policy: Policy = POLICY,
    active: ActiveSegment = ACTIVE,
    now_ms: int = NOW_MS,
    ended_at: int = -1,
    end: int = 19,
) -> EarlyStep | None:
    remote = a_partition(a_segment(0, end))
    return decide_early(
        active, log or facts(), remote, policy, begun, part_bytes=PART, now_ms=now_ms, ended_at=ended_at
    )


def test_an_upload_begins_when_the_active_segment_has_a_part_that_is_stable() -> None:
    assert decide() == BeginUpload(base_offset=20)
    assert decide(active=ActiveSegment(base_offset=20, size_bytes=99)) is None
    assert decide(log=facts(stable=20)) is None
    assert decide(log=facts(high_watermark=20)) is None


def test_closed_segments_come_first() -> None:
    assert decide(end=9) is None


def test_no_upload_begins_where_nothing_is_copied_or_not_early() -> None:
    assert decide(policy=Policy(copies=False, deletes_all=False, retention_ms=-1, retention_bytes=-1)) is None
    assert decide(policy=Policy(copies=True, deletes_all=False, retention_ms=-1, retention_bytes=-1)) is None


def test_parts_are_sent_up_to_what_is_stable_and_committed() -> None:
    assert decide(upload()) == SendParts(end_offset=45)
    assert decide(upload(), log=facts(stable=40)) == SendParts(end_offset=40)
    assert decide(upload(), log=facts(high_watermark=38)) == SendParts(end_offset=38)
    assert decide(upload(), log=facts(stable=31)) is None
    assert decide(upload(sent_bytes=200)) is None


def test_the_upload_of_a_segment_that_was_closed_waits_for_its_copy() -> None:
    assert decide(upload(base_offset=10)) is None


def test_an_upload_ends_with_its_segment_with_time_and_with_the_configuration() -> None:
    assert isinstance(decide(upload(base_offset=10), log=facts(start=20)), AbandonUpload)
    assert isinstance(decide(upload(), now_ms=NOW_MS + MAX_UPLOAD_MS + 1), AbandonUpload)
    off = Policy(copies=False, deletes_all=False, retention_ms=-1, retention_bytes=-1, copies_early=True)
    assert isinstance(decide(upload(), policy=off), AbandonUpload)


def test_an_upload_that_ended_is_not_begun_again_for_its_segment() -> None:
    assert decide(ended_at=20) is None
    assert decide(ended_at=10) == BeginUpload(base_offset=20)
