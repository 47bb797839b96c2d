"""The current values of each series, read from the broker's state at each scrape.

A broker may have ten thousand partitions, and clients that wait. So everything that iterates over partitions or groups
is a generator with pauses (`PAUSE`), and samples are made while they are written; between two pieces the event loop
serves ready connections. Values may be some milliseconds apart.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka import __version__
from trioka.cluster.image.partition import Partition
from trioka.protocol.errors import error_class

from ..config.trioka_keys import METRICS_MAX_PARTITIONS
from ..counters.latency import BOUNDS_S, ApiLatency, api_name
from ..counters.logins import NO_LOGINS, LoginCounts
from ..counters.traffic import Traffic
from ..quorum.remote import PURPOSES as QUORUM_PURPOSES
from ..replication.partitions import Replica
from . import series as s
from .groups import group_readings
from .loop_watch import LoopWatch
from .memory import memory_readings
from .quotas import quota_readings
from .samples import NO_LABELS, PAUSE, Sample, Steps, one
from .tier import tier_readings

if TYPE_CHECKING:
    from ..broker import Broker

PARTITIONS_AT_ONCE: Final = 500  # for sums, at a microsecond each
QUANTILES: Final = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
ONE_LOOP: Final = "0"  # the id of the only network processor


class DiskSpace(NamedTuple):
    """Sizes of a volume in bytes; None if unknown."""

    free: int | None
    total: int | None


def readings(broker: "Broker", watch: LoopWatch, disk_space: Mapping[str, DiskSpace], python: str) -> Steps[None]:
    """All readings, series by series. Before the broker has joined, only those that are available."""
    yield one(s.BUILD_INFO, 1, version=__version__, python=python)
    yield one(s.LOOP_LAG, watch.lag_s)
    yield one(s.NETWORK_IDLE, watch.idle)
    yield one(s.HANDLER_IDLE, watch.idle)
    yield from _requests(broker.dispatch.times.by_api())
    yield (
        s.ERRORS,
        [
            Sample({"request": api_name(key), "error": error_class(code).name}, count)
            for (key, code), count in sorted(broker.dispatch.errors.by_api.items())
        ],
    )
    yield from _connections(broker)
    yield from _directories(broker, disk_space)
    if broker.is_joined:
        left_out = yield from _partitions(broker)
        yield from _cluster(broker)
        yield from _quorum(broker, watch)
        left_out |= yield from group_readings(broker)
        left_out |= yield from quota_readings(broker)
        if broker.tier is not None and broker.tier.is_running:
            yield from tier_readings(broker.tier)
        else:
            yield from memory_readings(broker)
        yield s.LEFT_OUT, [Sample({"what": what}, count) for what, count in left_out.items()]


# -- requests and connections ------------------------------------------------------------------------------------------


def _requests(times: Mapping[str, ApiLatency]) -> Steps[None]:
    yield s.REQUESTS, [Sample({"request": name}, api.count) for name, api in times.items()]
    yield s.TOTAL_TIME, [sample for name, api in times.items() for sample in _summary(name, api)]
    yield s.REQUEST_DURATION, [sample for name, api in times.items() for sample in _histogram(name, api)]


def _summary(name: str, api: ApiLatency) -> Iterator[Sample]:
    for word, seconds in zip(QUANTILES, api.quantiles(list(QUANTILES.values())), strict=True):
        yield Sample({"request": name, "quantile": word}, seconds * 1000)
    yield Sample({"request": name}, api.count, "_count")
    yield Sample({"request": name}, api.seconds * 1000, "_sum")


def _histogram(name: str, api: ApiLatency) -> Iterator[Sample]:
    below = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), api.buckets, strict=True):
        below += count
        yield Sample({"api": name, "le": bound}, below, "_bucket")
    yield Sample({"api": name}, below, "_count")
    yield Sample({"api": name}, api.seconds, "_sum")


_LOGINS: Final[tuple[tuple[s.Series, Callable[[LoginCounts], int]], ...]] = (
    (s.SUCCESSFUL_AUTHENTICATIONS, lambda counts: counts.successful),
    (s.FAILED_AUTHENTICATIONS, lambda counts: counts.failed),
    (s.SUCCESSFUL_REAUTHENTICATIONS, lambda counts: counts.reauthentications),
    (s.FAILED_REAUTHENTICATIONS, lambda counts: counts.failed_reauthentications),
    (s.EXPIRED_CONNECTIONS_KILLED, lambda counts: counts.expired_killed),
)


def _connections(broker: "Broker") -> Steps[None]:
    by_listener = dict.fromkeys(broker.addresses, 0)
    for connection in broker.network.connections:
        by_listener[connection.listener] = by_listener.get(connection.listener, 0) + 1
    accepted = broker.network.accepted
    yield s.CONNECTIONS, [Sample({"listener": name}, count) for name, count in by_listener.items()]
    yield s.CONNECTION_COUNT, [_of_loop(name, count) for name, count in by_listener.items()]
    yield s.CONNECTION_CREATIONS, [_of_loop(name, accepted.get(name, 0)) for name in by_listener]
    logins = broker.login_counts
    for series, read in _LOGINS:
        yield series, [_of_loop(name, read(logins.get(name, NO_LOGINS))) for name in by_listener]
    if (tls := broker.listener_manager.tls) is not None:
        left_s = tls.seconds_left()
        yield s.TLS_CERTIFICATE_EXPIRY, [Sample({"listener": name}, seconds) for name, seconds in left_s.items()]
    if (handshakes := broker.network.handshakes) is not None:
        for series, counts in ((s.TLS_HANDSHAKES, handshakes.succeeded), (s.TLS_FAILURES, handshakes.failed)):
            yield series, [Sample({"listener": name}, count) for name, count in counts.items()]
    yield one(s.FETCH_SESSIONS, len(broker.fetch_sessions))
    yield one(s.PARKED, len(broker.purgatory) + broker.dispatch.running)


def _of_loop(listener: str, value: float) -> Sample:
    return Sample({"listener": listener, "networkProcessor": ONE_LOOP}, value)


# -- replicas ----------------------------------------------------------------------------------------------------------


def _directories(broker: "Broker", disk_space: Mapping[str, DiskSpace]) -> Steps[None]:
    offline = {directory.path: directory.failure is not None for directory in broker.directories}
    yield s.LOG_DIRECTORY_OFFLINE, [Sample({"directory": path}, failed) for path, failed in offline.items()]
    yield s.DIRECTORY_OFFLINE, [Sample({"logDirectory": path}, failed) for path, failed in offline.items()]
    yield one(s.OFFLINE_DIRECTORIES, sum(offline.values()))
    for series, values in (
        (s.LOG_DIRECTORY_FREE, {path: space.free for path, space in disk_space.items()}),
        (s.LOG_DIRECTORY_TOTAL, {path: space.total for path, space in disk_space.items()}),
    ):
        yield series, [Sample({"directory": path}, size) for path, size in values.items() if size is not None]


class _Sums:
    """Sums over all replicas."""

    def __init__(self, departed: Traffic) -> None:
        self.all = departed.copy()
        self.topics: dict[str, Traffic] = {}
        self.leaders = self.under_replicated = self.under_min = self.at_min = self.damaged = 0
        self.damaged_ranges = self.unhealed_ranges = 0

    def add(self, replica: Replica) -> None:
        self.all.add(replica)
        topic = self.topics.get(replica.topic)
        if topic is None:
            topic = self.topics[replica.topic] = Traffic()
        topic.add(replica)
        self.damaged += bool(replica.log.quarantine.damages)
        self.damaged_ranges += len(replica.log.quarantine.damages)
        if replica.leads:
            self.leaders += 1
            self.under_replicated += is_under_replicated(replica)
            self.under_min += replica.in_sync < replica.min_in_sync
            self.at_min += replica.in_sync == replica.min_in_sync


def is_under_replicated(replica: Replica) -> bool:
    return replica.in_sync < replica.replica_count


def _partitions(broker: "Broker") -> Steps[dict[str, int]]:
    replicas = list(broker.partitions)
    sums = _Sums(broker.partitions.departed)
    for number, replica in enumerate(replicas, start=1):
        sums.add(replica)
        sums.unhealed_ranges += broker.replication.unhealed(replica)
        if number % PARTITIONS_AT_ONCE == 0:
            yield PAUSE
    yield one(s.PARTITION_COUNT, len(replicas))
    yield one(s.LEADER_COUNT, sums.leaders)
    yield one(s.UNDER_REPLICATED, sums.under_replicated)
    yield one(s.UNDER_MIN_ISR, sums.under_min)
    yield one(s.AT_MIN_ISR, sums.at_min)
    yield one(s.DAMAGED_PARTITIONS, sums.damaged)
    for series, count in (
        (s.DAMAGED_RANGES, sums.damaged_ranges),
        (s.UNHEALED_RANGES, sums.unhealed_ranges),
        (s.HEALED_RANGES, broker.counts.damage_healed),
        (s.SCRUBBED_BYTES, broker.counts.scrubbed_bytes),
        (s.SCRUB_FOUND, broker.counts.damage_found),
        (s.ISR_SHRINKS, broker.counts.isr_shrinks),
        (s.ISR_EXPANDS, broker.counts.isr_expansions),
        (s.FAILED_ISR_UPDATES, broker.counts.isr_refusals),
        (s.REPLICATION_BYTES_IN, broker.replication.fetched.bytes),
        (s.REPLICATION_BYTES_OUT, broker.replication.sent.bytes),
    ):
        yield one(series, count)
    most = broker.config[METRICS_MAX_PARTITIONS]
    yield from _topics(broker, sums, most)
    replicas.sort(key=lambda each: (each.topic, each.index))
    reported = replicas[:most]
    for series, value in OF_REPLICAS.items():
        yield series, (Sample(_place(each), value(each)) for each in reported)
    for series, value in OF_LEADERS.items():
        yield series, (Sample(_place(each), value(each)) for each in reported if each.leads)
    return {"topics": max(0, len(sums.topics) - most), "partitions": len(replicas) - len(reported)}


def _place(replica: Replica) -> dict[str, str]:
    return {"topic": replica.topic, "partition": str(replica.index)}


def log_size(replica: Replica) -> int:
    return sum(segment.size for segment in replica.log.segments)


OF_REPLICAS: Final[Mapping[s.Series, Callable[[Replica], float]]] = {
    s.LOG_SIZE: log_size,
    s.LOG_SEGMENTS: lambda each: len(each.log.segments),
    s.LOG_START: lambda each: each.log.log_start_offset,
    s.LOG_END: lambda each: each.log.log_end_offset,
    s.SCRUB_LAST: lambda each: each.scrubbed_ms / 1000,
}
OF_LEADERS: Final[Mapping[s.Series, Callable[[Replica], float]]] = {
    s.PARTITION_AT_MIN_ISR: lambda each: each.in_sync == each.min_in_sync,
    s.PARTITION_UNDER_MIN_ISR: lambda each: each.in_sync < each.min_in_sync,
    s.PARTITION_UNDER_REPLICATED: is_under_replicated,
    s.CURRENT_OFFSET: lambda each: each.log.high_watermark,
    s.OLDEST_OFFSET: lambda each: each.log.log_start_offset,
}


def _topics(broker: "Broker", sums: _Sums, most: int) -> Steps[None]:
    """Each series for all topics together, and for each topic."""
    produces, fetches = broker.counts.failed_produces, broker.counts.failed_fetches
    topics = list(islice(sorted(sums.topics.items()), most))
    plain: tuple[tuple[s.Series, Callable[[Traffic], int]], ...] = (
        (s.BYTES_IN, lambda traffic: traffic.bytes_in),
        (s.MESSAGES_IN, lambda traffic: traffic.messages_in),
        (s.BYTES_OUT, lambda traffic: traffic.bytes_out),
    )
    for series, value in plain:
        of_each = (Sample({"topic": name}, value(traffic)) for name, traffic in topics)
        yield series, (Sample(NO_LABELS, value(sums.all)), *of_each)
    counted: tuple[tuple[s.Series, s.Series, Callable[[Traffic], int], Mapping[str, int]], ...] = (
        (s.PRODUCE_REQUESTS, s.FAILED_PRODUCE_REQUESTS, lambda traffic: traffic.batches_in, produces),
        (s.FETCH_REQUESTS, s.FAILED_FETCH_REQUESTS, lambda traffic: traffic.fetches, fetches),
    )
    for total, failed, value, failures in counted:
        all_failed = sum(failures.values())
        of_each = (Sample({"topic": name}, value(traffic) + failures.get(name, 0)) for name, traffic in topics)
        yield total, (Sample(NO_LABELS, value(sums.all) + all_failed), *of_each)
        failed_of_each = (Sample({"topic": name}, failures.get(name, 0)) for name, _ in topics)
        yield failed, (Sample(NO_LABELS, all_failed), *failed_of_each)


# -- the cluster -------------------------------------------------------------------------------------------------------


class _Map:
    """Counts from the metadata, over all partitions and over those that this node reports."""

    def __init__(self) -> None:
        self.partitions = self.offline = self.not_preferred = self.here_offline = self.reassigning = 0
        self.reported: list[tuple[str, Partition]] = []
        self.topics: list[tuple[str, int]] = []


def _cluster(broker: "Broker") -> Steps[None]:
    found = _Map()
    is_controller = broker.quorum.is_active
    for number, topic in enumerate(list(broker.metadata.topics)):
        first = topic.partitions.get(0)
        if first is not None and _is_reported(broker, first, is_controller):
            found.topics.append((topic.name, len(topic.partitions)))
        for index, partition in enumerate(list(topic.partitions.values())):
            _locate(broker, found, topic.name, partition, is_controller)
            if (number + index) % PARTITIONS_AT_ONCE == 0:
                yield PAUSE
    yield one(s.ACTIVE_CONTROLLER, is_controller)
    yield one(s.OFFLINE_REPLICAS, found.here_offline)
    yield one(s.REASSIGNING, found.reassigning)
    if is_controller:
        yield from _controller(broker, found)
    yield s.TOPIC_PARTITIONS, (Sample({"topic": name}, count) for name, count in found.topics)
    for series, value in OF_PARTITIONS.items():
        yield (
            series,
            (Sample({"topic": name, "partition": str(each.index)}, value(each)) for name, each in found.reported),
        )


def _is_reported(broker: "Broker", partition: Partition, is_controller: bool) -> bool:
    """A partition is reported by its leader, or by the controller if it has none."""
    return partition.leader == broker.node_id or (is_controller and not partition.has_leader)


def _locate(broker: "Broker", found: _Map, topic: str, partition: Partition, is_controller: bool) -> None:
    found.partitions += 1
    found.offline += not partition.has_leader
    found.not_preferred += not partition.has_preferred_leader
    if broker.node_id in partition.replicas:
        replica = broker.partitions.find(topic, partition.index)
        found.here_offline += replica is None or replica.log.closed or _is_offline(broker, replica)
    if partition.leader == broker.node_id:
        found.reassigning += partition.is_reassigning
    if _is_reported(broker, partition, is_controller) and len(found.reported) < broker.config[METRICS_MAX_PARTITIONS]:
        found.reported.append((topic, partition))


def _is_offline(broker: "Broker", replica: Replica) -> bool:
    parent = replica.log.directory.rpartition("/")[0]
    return any(directory.failure is not None and directory.path == parent for directory in broker.directories)


OF_PARTITIONS: Final[Mapping[s.Series, Callable[[Partition], float]]] = {
    s.PARTITION_LEADER: lambda each: each.leader,
    s.PARTITION_REPLICAS: lambda each: len(each.replicas),
    s.IN_SYNC_REPLICAS: lambda each: len(each.isr),
    s.LEADER_IS_PREFERRED: lambda each: each.has_preferred_leader,
    s.UNDER_REPLICATED_PARTITION: lambda each: len(each.isr) < len(each.replicas),
}


def _controller(broker: "Broker", found: _Map) -> Steps[None]:
    brokers = list(broker.metadata.brokers)
    active = [each for each in brokers if not each.fenced]
    yield one(s.ACTIVE_BROKERS, len(active))
    yield one(s.FENCED_BROKERS, len(brokers) - len(active))
    yield one(s.GLOBAL_TOPICS, len(broker.metadata.topics))
    yield one(s.GLOBAL_PARTITIONS, found.partitions)
    yield one(s.OFFLINE_PARTITIONS, found.offline)
    yield one(s.PREFERRED_IMBALANCE, found.not_preferred)
    yield one(s.UNCLEAN_ELECTIONS, broker.counts.unclean_elections)
    yield one(s.BROKERS, len(active))
    addresses = [(each.broker_id, each.listeners[0]) for each in active if each.listeners]
    yield (
        s.BROKER_INFO,
        [Sample({"id": str(number), "address": f"{at.host}:{at.port}"}, 1) for number, at in addresses],
    )


def _quorum(broker: "Broker", watch: LoopWatch) -> Steps[None]:
    quorum = broker.quorum
    leader = -1 if quorum.leader_id is None else quorum.leader_id
    average, longest = quorum.commit_latency_ms
    for series, value in (
        (s.CURRENT_LEADER, leader),
        (s.CURRENT_LEADER_PLAIN, leader),
        (s.CURRENT_EPOCH, quorum.epoch),
        (s.CURRENT_EPOCH_PLAIN, quorum.epoch),
        (s.QUORUM_HIGH_WATERMARK, quorum.high_watermark),
        (s.HIGH_WATERMARK_PLAIN, quorum.high_watermark),
        (s.QUORUM_LOG_END, quorum.log.log_end_offset),
        (s.LOG_END_PLAIN, quorum.log.log_end_offset),
        (s.COMMIT_LATENCY_AVERAGE, average),
        (s.COMMIT_LATENCY_PLAIN, average),
        (s.COMMIT_LATENCY_MAX, longest),
        (s.APPEND_RATE, watch.metadata_rate),
        (s.LAST_APPLIED, broker.metadata.offset),
    ):
        yield one(series, value)
    channels = [broker.peers.traffic[each] for each in QUORUM_PURPOSES if each in broker.peers.traffic]
    yield one(s.CHANNEL_BYTES_IN, sum(each.bytes_in for each in channels))
    yield one(s.CHANNEL_BYTES_OUT, sum(each.bytes_out for each in channels))
    yield one(s.CHANNEL_REQUESTS, sum(each.requests for each in channels))
    yield one(s.CHANNEL_RESPONSES, sum(each.answers for each in channels))
    yield one(s.QUORUM_STATE, 1, current_state="leader" if leader == broker.node_id else "follower")
