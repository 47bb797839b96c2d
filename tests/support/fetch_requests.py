"""Fetch requests and their answers in few words, for the tests of fetch sessions.

The module under test is an argument, so that a test can be shown a copy with a mistake in it.
"""

from collections.abc import Collection
from random import Random
from types import ModuleType
from typing import Any

from trioka.protocol.errors import InvalidFetchSessionEpoch
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse

BY_NAME, BY_ID = 12, 13  # versions
EVICTION_MS = 120_000
LAST = 2**31 - 1

Result = FetchResponse.Topic.Partition
Place = tuple[str | bytes, int]  # a topic's name or id, and a partition


def cache(broker: ModuleType, slots: int = 10, *, random: Random | None = None, **limits: int) -> Any:
    return broker.FetchSessions(slots, EVICTION_MS, random or Random(1), **limits)


def request(
    session_id: int,
    epoch: int,
    *places: Place,
    forget: Collection[Place] = (),
    offset: int = 0,
    max_bytes: int = 1000,
) -> FetchRequest:
    """Topics are given by name or by id; adjacent ones are not joined, so that any order is possible. A request with an
    `offset` sets all the other fields too, to numbers that follow it."""

    def topic(name: str | bytes) -> dict[str, Any]:
        return {"topic": name} if isinstance(name, str) else {"topic_id": name}

    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.Topic(
                **topic(name),
                partitions=[
                    FetchRequest.Topic.Partition(
                        partition=partition,
                        current_leader_epoch=offset + 1 if offset else -1,
                        fetch_offset=offset,
                        last_fetched_epoch=offset + 2 if offset else -1,
                        log_start_offset=offset + 3 if offset else -1,
                        partition_max_bytes=max_bytes,
                    )
                ],
            )
            for name, partition in places
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopicsData(**topic(name), partitions=[partition]) for name, partition in forget
        ],
    )


def result(partition: int, **said: Any) -> Result:
    quiet = {"error_code": 0, "high_watermark": 5, "log_start_offset": 0, "aborted_transactions": None, "records": None}
    return Result(partition_index=partition, **{**quiet, **said})


def opened(sessions: Any, asking: FetchRequest, version: int = BY_NAME, now_ms: int = 0, **how: Any) -> Any:
    names = how.pop("names", {}).get
    return sessions.open(asking, version, now_ms, names, is_follower=how.pop("follower", False))


def fetch(
    sessions: Any,
    asking: FetchRequest,
    version: int = BY_NAME,
    now_ms: int = 0,
    *,
    said: dict[Any, dict[str, Any]] | None = None,
    **how: Any,
) -> FetchResponse:
    """Opens a request and answers it: with `said` for one partition, and without changes for the others."""
    context = opened(sessions, asking, version, now_ms, **how)
    results = [(asked, result(asked.partition, **(said or {}).get(asked.key, {}))) for asked in context.selected]
    response = context.answer(results, now_ms)
    assert isinstance(response, FetchResponse)
    return response


def started(sessions: Any, *places: Place, **how: Any) -> int:
    """The id of a new session, or 0."""
    return fetch(sessions, request(0, 0, *places), **how).session_id


def answered(response: FetchResponse) -> list[Place]:
    return [(t.topic or t.topic_id, p.partition_index) for t in response.responses for p in t.partitions]


def places(count: int) -> list[Place]:
    return [("a", partition) for partition in range(count)]


def is_there(sessions: Any, session_id: int) -> bool:
    """Sends an epoch that is always wrong, so that the session does not change."""
    context = opened(sessions, request(session_id, -2))
    return bool(context.error_code == InvalidFetchSessionEpoch.code)
