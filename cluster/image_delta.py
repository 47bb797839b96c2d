"""What a replayed record has changed, as data.

`Metadata.replay` returns these, in the order in which they happened, and the broker acts on them: it opens and closes
logs, becomes leader or follower, applies a configuration. What was and what is now stand side by side, so that nobody
has to remember the former.
"""

from typing import TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from .acls import AccessRule
from .brokers import Broker, ControllerNode
from .configs import Resource
from .partition import Partition
from .quotas import QuotaEntity
from .security_image import DelegationToken, ScramCredential


@frozen
class TopicCreated:
    """A topic exists, so far without partitions; they follow one by one."""

    topic_id: bytes
    name: str


@frozen
class TopicDeleted:
    """A topic is gone, with all that it had. Its configuration goes without a word of its own."""

    topic_id: bytes
    name: str
    partitions: tuple[Partition, ...]


@frozen
class PartitionChanged:
    """A partition is new (`before` is None), or another than it was."""

    topic_id: bytes
    name: str
    index: int
    before: Partition | None
    after: Partition


@frozen
class ConfigChanged:
    """A key of a resource has this value; None: it has none of its own any more."""

    resource: Resource
    key: str
    value: str | None


@frozen
class BrokerChanged:
    """A broker has registered (`before` is None), changed, or was forgotten (`after` is None)."""

    broker_id: int
    before: Broker | None
    after: Broker | None


@frozen
class ControllerChanged:
    before: ControllerNode | None
    after: ControllerNode


@frozen
class FeatureChanged:
    """The cluster works at this level now; 0: without the feature."""

    name: str
    level: int


@frozen
class QuotaChanged:
    entity: QuotaEntity
    key: str
    value: float | None


@frozen
class ProducerIdsChanged:
    next_producer_id: int


@frozen
class AccessRuleChanged:
    """A rule exists (`before` is None) or is gone (`after` is None)."""

    before: AccessRule | None
    after: AccessRule | None


@frozen
class ScramChanged:
    name: str
    mechanism: int
    after: ScramCredential | None


@frozen
class TokenChanged:
    token_id: str
    after: DelegationToken | None


Change: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | PartitionChanged
    | ConfigChanged
    | BrokerChanged
    | ControllerChanged
    | FeatureChanged
    | QuotaChanged
    | ProducerIdsChanged
    | AccessRuleChanged
    | ScramChanged
    | TokenChanged
)
