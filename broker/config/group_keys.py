"""Keys of groups, of client metrics subscriptions, and the loggers whose level can be changed from afar.

A group that sets nothing takes what the broker says; what it sets must lie between the broker's min and max.
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
    doc="A member of a consumer group that is silent for so long is removed.")
CONSUMER_HEARTBEAT_INTERVAL_MS = group_key("consumer.heartbeat.interval.ms", Int(min=1), 5_000,
    coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    doc="How often a member of a consumer group is told to speak up.")
CONSUMER_ASSIGNMENT_INTERVAL_MS = group_key("consumer.assignment.interval.ms", Int(min=0), 1_000,
    coordinator.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    doc="The least time between two assignments of a consumer group.")

SHARE_SESSION_TIMEOUT_MS = group_key("share.session.timeout.ms", Int(min=1), 45_000,
    share.GROUP_SHARE_SESSION_TIMEOUT_MS, effect=LATER_SHARE,
    doc="A member of a share group that is silent for so long is removed.")
SHARE_HEARTBEAT_INTERVAL_MS = group_key("share.heartbeat.interval.ms", Int(min=1), 5_000,
    share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, effect=LATER_SHARE,
    doc="How often a member of a share group is told to speak up.")
SHARE_ASSIGNMENT_INTERVAL_MS = group_key("share.assignment.interval.ms", Int(min=0), 1_000,
    share.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, effect=LATER_SHARE,
    doc="The least time between two assignments of a share group.")
SHARE_RECORD_LOCK_DURATION_MS = group_key("share.record.lock.duration.ms", Int(min=1_000), 30_000,
    share.GROUP_SHARE_RECORD_LOCK_DURATION_MS, effect=LATER_SHARE,
    doc="How long a record is kept for the member that got it.")
SHARE_DELIVERY_COUNT_LIMIT = group_key("share.delivery.count.limit", Int(min=2), 5,
    share.GROUP_SHARE_DELIVERY_COUNT_LIMIT, effect=LATER_SHARE,
    doc="How many times a record is delivered before it is given up.")
SHARE_PARTITION_MAX_RECORD_LOCKS = group_key("share.partition.max.record.locks", Int(min=100), 2_000,
    share.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, effect=LATER_SHARE,
    doc="How many records of a partition may be with members at a time.")
SHARE_AUTO_OFFSET_RESET = group_key("share.auto.offset.reset", String(check=is_offset_reset), "latest",
    effect=LATER_SHARE,
    doc="Where a share group begins in a partition: earliest, latest, or by_duration: and how long ago.")
SHARE_ISOLATION_LEVEL = group_key("share.isolation.level", String(one_of=("read_committed", "read_uncommitted")),
    "read_uncommitted", effect=LATER_SHARE,
    doc="Whether a share group gets records of transactions that are not committed.")
SHARE_RENEW_ACKNOWLEDGE_ENABLE = group_key("share.renew.acknowledge.enable", Boolean(), True, effect=LATER_SHARE,
    doc="Whether a member may ask for more time with a record.")

STREAMS_SESSION_TIMEOUT_MS = group_key("streams.session.timeout.ms", Int(min=1), 45_000,
    share.GROUP_STREAMS_SESSION_TIMEOUT_MS, effect=LATER_STREAMS,
    doc="A member of a streams group that is silent for so long is removed.")
STREAMS_HEARTBEAT_INTERVAL_MS = group_key("streams.heartbeat.interval.ms", Int(min=1), 5_000,
    share.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, effect=LATER_STREAMS,
    doc="How often a member of a streams group is told to speak up.")
STREAMS_ASSIGNMENT_INTERVAL_MS = group_key("streams.assignment.interval.ms", Int(min=0), 1_000,
    share.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS, effect=LATER_STREAMS,
    doc="The least time between two assignments of a streams group.")
STREAMS_INITIAL_REBALANCE_DELAY_MS = group_key("streams.initial.rebalance.delay.ms", Int(min=0), 3_000,
    share.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS, effect=LATER_STREAMS,
    doc="How long a new streams group waits for more members before its first assignment.")
STREAMS_NUM_STANDBY_REPLICAS = group_key("streams.num.standby.replicas", Int(min=0), 0,
    share.GROUP_STREAMS_NUM_STANDBY_REPLICAS, effect=LATER_STREAMS,
    doc="How many standby copies of its state a task gets.")

# Client metrics subscriptions.

METRICS = client_metrics_key("metrics", List(), (),
    doc="What the names of the metrics start with that clients shall push; * is all of them.")
INTERVAL_MS = client_metrics_key("interval.ms", Int(), 5 * MINUTE_MS,
    doc="How often clients push them: between 100 ms and an hour.")
MATCH = client_metrics_key("match", List(), (),
    doc="Which clients: patterns such as client_id=web-.* between commas; empty is all.")

# fmt: on


# A group's value must not be below the broker's value of the second key, nor above that of the third.
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
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

# The loggers that BROKER_LOGGER knows: one for the whole, one for each room. Levels are Log4j's words for Python's.
ROOT_LOGGER: Final = "root"
LOGGERS: Final = (
    ROOT_LOGGER,
    "trioka",
    "trioka.broker",
    "trioka.cluster",
    "trioka.coordinator",
    "trioka.storage",
    "trioka.protocol",
)
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
