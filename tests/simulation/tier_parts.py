"""The parts of the world of tiered storage (tier_world.py): a replica, its jobs, and how bad the faults are."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import NamedTuple

from trioka.cluster.remote_log.jobs import Command, Job
from trioka.cluster.remote_log.metadata import Lineage, RemotePartition, RemoteSegment
from trioka.cluster.remote_log.plan import LocalSegment, LogFacts
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.files.checkpoint import EpochEntry

ABOUT = TopicIdPartition(bytes(range(16)), "orders", 0)
NODES = range(3)
RECORD_BYTES = 10


class Violation(AssertionError):
    """A promise was broken."""


class Row(NamedTuple):
    """A record: the epoch of its leader, and what it says."""

    epoch: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """How bad it is."""

    steps: int = 600
    failures: float = 0.05  # of requests to the store, and of appends to the metadata topic
    unclean: float = 0.15  # how often, in comparison
    kill: float = 1.0
    elect: float = 1.0
    replace: float = 0.3  # a replica by a new, empty one
    reassign: float = 0.5  # to a new replica, which leads then, while a segment is copied
    expire: float = 0.2  # objects that a lifecycle rule deletes
    deletes_topic: bool = False  # at the end

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"faults of the tier {seed}")
        return cls(
            failures=random.choice([0.0, 0.02, 0.1, 0.3]),
            unclean=random.choice([0.0, 0.15, 0.4]),
            kill=random.choice([0.0, 1.0]),
            elect=random.choice([0.5, 1.0, 3.0]),
            replace=random.choice([0.0, 0.3]),
            expire=random.choice([0.0, 0.0, 0.4]),
            deletes_topic=random.random() < 0.3,
            reassign=random.choice([0.0, 0.5, 2.0]),
        )


CALM = {
    "failures": 0.0,
    "unclean": 0.0,
    "kill": 0.0,
    "replace": 0.0,
    "reassign": 0.0,
    "expire": 0.0,
    "deletes_topic": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Mistakes of the parts around the decisions, which the broker's own code must not make either."""

    writes_no_epoch_record: bool = False
    sweeps_started: bool = False  # the sweep knows only finished segments
    sweeps_without_replay: bool = False  # the sweep lists, and does not replay afterwards
    decides_before_replay: bool = False  # a new leader decides before its epoch's record is read back
    deletes_locally_what_is_not_covered: bool = False
    keeps_uploads_over_leaderships: bool = False  # an early upload goes on in a later leadership of the same broker


@dataclass(slots=True)
class BegunUpload:
    """An early upload: what was sent of a segment that is still written."""

    segment_id: bytes
    base_offset: int
    epoch: int
    begun_ms: int
    rows: list[Row] = field(default_factory=list)


class Running:
    """A job in progress: its next command, and where the record that it waits for is."""

    def __init__(
        self, job: Job, segment: RemoteSegment, epoch: int, *, deletes: bool, begun: BegunUpload | None = None
    ) -> None:
        self.job = job
        self.segment = segment
        self.epoch = epoch
        self.deletes = deletes
        self.begun = begun  # the upload that a copy completes
        self.command: Command = next(job)
        self.waits_for: int | None = None
        self.content: tuple[object, ...] = ()


class SimBroker:
    """One replica, with what it has replayed of the metadata topic."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.log: list[Row] = []
        self.borders = [0]  # base offsets of its segments
        self.local_start = 0
        self.log_start = 0
        self.high_watermark = 0  # as it knows it
        self.image = RemotePartition(ABOUT)
        self.replayed = 0
        self.counted: dict[int, bool] = {}
        self.is_up = True
        self.epoch = -1  # in which it believes to lead; -1: it follows
        self.epoch_record_at: int | None = None
        self.fetched_in = -1  # the last epoch in which it fetched
        self.starts = dict.fromkeys(NODES, 0)  # of its followers, as of their fetches in its epoch
        self.isr = set(NODES)  # as the controller has confirmed it
        self.jobs: list[Running] = []
        self.missing: set[bytes] = set()
        self.upload: BegunUpload | None = None
        self.upload_ended_at = -1

    def lineage(self) -> Lineage:
        found: list[EpochEntry] = []
        for offset, row in enumerate(self.log):
            if not found or found[-1].epoch != row.epoch:
                found.append(EpochEntry(row.epoch, offset))
        # As the cache of a real log: nothing from before the log start is known.
        kept = [entry for entry in found if entry.start_offset > self.log_start]
        before = [entry for entry in found if entry.start_offset <= self.log_start]
        if before:
            kept.insert(0, EpochEntry(before[-1].epoch, self.log_start))
        return Lineage(tuple(kept), len(self.log))

    def facts(self, last_stable_offset: int) -> LogFacts:
        borders = [border for border in self.borders if border >= self.local_start or border == self.borders[-1]]
        closed = tuple(
            LocalSegment(
                base_offset=base,
                next_offset=end,
                size_bytes=(end - base) * RECORD_BYTES,
                max_timestamp_ms=self.log[end - 1].value,
            )
            for base, end in pairwise(borders)
        )
        return LogFacts(
            lineage=self.lineage(),
            log_start_offset=self.log_start,
            replicated_log_start_offset=min(
                self.log_start, *(self.starts[node] for node in self.isr if node != self.node), self.log_start
            ),
            local_start_offset=self.local_start,
            high_watermark=min(self.high_watermark, len(self.log)),
            last_stable_offset=min(last_stable_offset, self.high_watermark, len(self.log)),
            segments=closed,
            active_size_bytes=(len(self.log) - borders[-1]) * RECORD_BYTES,
        )
