"""Keys of groups and of client metrics subscriptions, and the loggers whose level clients can change.

A group inherits keys that it does not set from the broker. A value that it sets must be within the broker's limits.
"""

import re
from typing import Final

from . import coordinator_keys as coordinator
from . import share_keys as share
from .key import LATER_SHARE, LATER_STREAMS, MINUTE_MS, Key, client_metrics_key, group_key
from .values import Boolean, Int, List, String

_DURATION: Final = (
    r"(?i)by_duration:\+?P(?!T?$)(\+?[0-9]+D)?(T(?=[0-9+])(\+?[0-9]+H)?(\+?[0-9]+M)?(\+?[0-9]+([.,][0-9]{0,9})?S)?)?"
)


def is_offset_reset(text: str) -> str | None:
    if text in ("earliest", "latest") or (text.startswith("by_duration:") and re.fullmatch(_DURATION, text)):
        return None
    return "must be earliest, latest or by_duration: with a duration, such as by_duration:PT1H"


# fmt: off

CONSUMER_SESSION_TIMEOUT_MS = group_key("consumer.session.timeout.ms", Int(min=1), 45_000,
    coordinator.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    doc="Time in milliseconds without a heartbeat after which a member is removed from its consumer group.")
CONSUMER_HEARTBEAT_INTERVAL_MS = group_key("consumer.heartbeat.interval.ms", Int(min=1), 5_000,
    coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    doc="Heartbeat interval, in milliseconds, that the broker sets for members of a consumer group.")
CONSUMER_ASSIGNMENT_INTERVAL_MS = group_key("consumer.assignment.interval.ms", Int(min=0), 1_000,
    coordinator.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    doc="Minimum time, in milliseconds, between two assignments of a consumer group.")

SHARE_SESSION_TIMEOUT_MS = group_key("share.session.timeout.ms", Int(min=1), 45_000,
    share.GROUP_SHARE_SESSION_TIMEOUT_MS, effect=LATER_SHARE,
    doc="Time in milliseconds without a heartbeat after which a member is removed from its share group.")
SHARE_HEARTBEAT_INTERVAL_MS = group_key("share.heartbeat.interval.ms", Int(min=1), 5_000,
    share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, effect=LATER_SHARE,
    doc="Heartbeat interval, in milliseconds, that the broker sets for members of a share group.")
SHARE_ASSIGNMENT_INTERVAL_MS = group_key("share.assignment.interval.ms", Int(min=0), 1_000,
    share.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, effect=LATER_SHARE,
    doc="Minimum time, in milliseconds, between two assignments of a share group.")
SHARE_RECORD_LOCK_DURATION_MS = group_key("share.record.lock.duration.ms", Int(min=1_000), 30_000,
    share.GROUP_SHARE_RECORD_LOCK_DURATION_MS, effect=LATER_SHARE,
    doc="Time in milliseconds for which a delivered record is locked to the member that acquired it.")
SHARE_DELIVERY_COUNT_LIMIT = group_key("share.delivery.count.limit", Int(min=2), 5,
    share.GROUP_SHARE_DELIVERY_COUNT_LIMIT, effect=LATER_SHARE,
    doc="Number of times a record is delivered before a share group gives up on it.")
SHARE_PARTITION_MAX_RECORD_LOCKS = group_key("share.partition.max.record.locks", Int(min=100), 2_000,
    share.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, effect=LATER_SHARE,
    doc="Maximum number of records of one partition that members may hold locked at a time.")
SHARE_AUTO_OFFSET_RESET = group_key("share.auto.offset.reset", String(check=is_offset_reset), "latest",
    effect=LATER_SHARE,
    doc="Start of a share group in a partition without state: earliest, latest, or by_duration:<ISO 8601 duration> "
        "before now.")
SHARE_ISOLATION_LEVEL = group_key("share.isolation.level", String(one_of=("read_committed", "read_uncommitted")),
    "read_uncommitted", effect=LATER_SHARE,
    doc="Whether a share group receives records of transactions that are not committed.")
SHARE_RENEW_ACKNOWLEDGE_ENABLE = group_key("share.renew.acknowledge.enable", Boolean(), True, effect=LATER_SHARE,
    doc="Whether a member may extend the lock on a record it has acquired.")

STREAMS_SESSION_TIMEOUT_MS = group_key("streams.session.timeout.ms", Int(min=1), 45_000,
    share.GROUP_STREAMS_SESSION_TIMEOUT_MS, effect=LATER_STREAMS,
    doc="Time in milliseconds without a heartbeat after which a member is removed from its streams group.")
STREAMS_HEARTBEAT_INTERVAL_MS = group_key("streams.heartbeat.interval.ms", Int(min=1), 5_000,
    share.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, effect=LATER_STREAMS,
    doc="Heartbeat interval, in milliseconds, that the broker sets for members of a streams group.")
STREAMS_ASSIGNMENT_INTERVAL_MS = group_key("streams.assignment.interval.ms", Int(min=0), 1_000,
    share.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS, effect=LATER_STREAMS,
    doc="Minimum time, in milliseconds, between two assignments of a streams group.")
STREAMS_INITIAL_REBALANCE_DELAY_MS = group_key("streams.initial.rebalance.delay.ms", Int(min=0), 3_000,
    share.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS, effect=LATER_STREAMS,
    doc="Time in milliseconds that a new streams group waits for more members before its first assignment.")
STREAMS_NUM_STANDBY_REPLICAS = group_key("streams.num.standby.replicas", Int(min=0), 0,
    share.GROUP_STREAMS_NUM_STANDBY_REPLICAS, effect=LATER_STREAMS,
    doc="Number of standby replicas of each task's state.")

# Client metrics subscriptions.

METRICS = client_metrics_key("metrics", List(), (),
    doc="Prefixes of the names of the metrics that clients push; * selects all metrics.")
INTERVAL_MS = client_metrics_key("interval.ms", Int(), 5 * MINUTE_MS,
    doc="Interval, in milliseconds, at which clients push metrics: from 100 to 3600000.")
MATCH = client_metrics_key("match", List(), (),
    doc="Clients that the subscription applies to: comma-separated patterns such as client_id=web-.*; empty selects "
        "all clients.")

# fmt: on


# A group key, and the broker keys of its lower and upper limit.
GROUP_BOUNDS: Final[tuple[tuple[Key[int], Key[int] | None, Key[int]], ...]] = (
    (
        CONSUMER_SESSION_TIMEOUT_MS,
        coordinator.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        coordinator.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    ),
    (
        CONSUMER_HEARTBEAT_INTERVAL_MS,
        coordinator.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        coordinator.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        CONSUMER_ASSIGNMENT_INTERVAL_MS,
        coordinator.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        coordinator.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (SHARE_SESSION_TIMEOUT_MS, share.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, share.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (
        SHARE_HEARTBEAT_INTERVAL_MS,
        share.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
        share.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        SHARE_ASSIGNMENT_INTERVAL_MS,
        share.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
        share.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (
        SHARE_RECORD_LOCK_DURATION_MS,
        share.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        share.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (
        SHARE_DELIVERY_COUNT_LIMIT,
        share.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
        share.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    ),
    (
        SHARE_PARTITION_MAX_RECORD_LOCKS,
        share.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        share.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    (
        STREAMS_SESSION_TIMEOUT_MS,
        share.GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
        share.GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    ),
    (
        STREAMS_HEARTBEAT_INTERVAL_MS,
        share.GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
        share.GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        STREAMS_ASSIGNMENT_INTERVAL_MS,
        share.GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
        share.GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (STREAMS_NUM_STANDBY_REPLICAS, None, share.GROUP_STREAMS_MAX_STANDBY_REPLICAS),
)

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 60 * MINUTE_MS
MATCH_LABELS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

# The loggers of BROKER_LOGGER resources: the root and the packages. Levels have Log4j's names and Python's numbers.
ROOT_LOGGER: Final = "root"
LOGGERS: Final = (
    ROOT_LOGGER,
    "trioka",
    "trioka.broker",
    "trioka.lifecycle",
    "trioka.cluster",
    "trioka.coordinator",
    "trioka.storage",
    "trioka.protocol",
)
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
