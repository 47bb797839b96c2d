"""What a replayed record has changed, as data.

`Metadata.replay` returns these, in the order in which they happened, and the broker acts on them: it opens and closes
logs, becomes leader or follower, applies a configuration. Old and new state stand side by side, so that no code
has to remember the former.
"""

from typing import TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from .acls import AccessRule
from .brokers import Broker, ControllerNode
from .configs import ConfigResource
from .partition import Partition
from .quotas import QuotaEntity
from .security_image import DelegationToken, ScramCredential


@frozen
class TopicCreated:
    """A topic was created, without partitions so far; they follow one by one."""

    topic_id: bytes
    name: str


@frozen
class TopicDeleted:
    """A topic was deleted, with its partitions. Its configuration goes without an event of its own."""

    topic_id: bytes
    name: str
    partitions: tuple[Partition, ...]


@frozen
class PartitionChanged:
    """A partition is new (`before` is None), or has changed."""

    topic_id: bytes
    name: str
    index: int
    before: Partition | None
    after: Partition


@frozen
class ConfigChanged:
    """A key of a resource has this value; None: it has none of its own any more."""

    resource: ConfigResource
    key: str
    value: str | None


@frozen
class BrokerChanged:
    """A broker has registered (`before` is None), changed, or was removed (`after` is None)."""

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
    """A rule was created (`before` is None) or deleted (`after` is None)."""

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
