"""Group settings. Times are in milliseconds."""

from collections.abc import Callable
from dataclasses import field
from random import Random

from trioka.protocol.lazy_dataclass import frozen

from .client import Client
from .deadlines import Deadlines
from .topics import Topics

DAY_MS = 86_400_000


@frozen
class ClassicSettings:
    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1


@frozen
class ConsumerSettings:
    """The settings of one group, which may have its own values."""

    assignors: tuple[str, ...] = ("uniform", "range")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    max_size: int = 2**31 - 1
    may_upgrade: bool = True  # from the classic protocol
    may_downgrade: bool = True
    regex_refresh_interval_ms: int = 600_000


@frozen
class OffsetSettings:
    retention_ms: int = 7 * DAY_MS
    check_interval_ms: int = 600_000
    max_metadata_bytes: int = 4096


@frozen
class CoordinatorContext:
    """What groups use from outside: current settings, topics, deadlines (whose keys start with group id and kind),
    randomness for member ids, and which topics a client may describe."""

    classic: Callable[[], ClassicSettings]
    consumer: Callable[[str], ConsumerSettings]
    offsets: Callable[[], OffsetSettings]
    topics: Topics
    deadlines: Deadlines[tuple[str, ...]]
    random: Random
    may_describe: Callable[[Client, str], bool] = lambda client, topic: True
    pattern_askers: dict[str, Client] = field(default_factory=dict)  # soft: last client, by group
