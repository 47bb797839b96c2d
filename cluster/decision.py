"""The answer of a controller: records to append, and an outcome for each item of the request.

A decision changes nothing. Its records are appended to the metadata log in one batch, and take effect once they are
replayed; the responses are sent when that has happened on the broker that received the request. An item of a request
that fails never prevents the others: its outcome carries the error.
"""

from typing import Final, Generic, TypeVar

from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.lazy_dataclass import frozen

from .quorum.metadata_log import MetadataRecord

Reply = TypeVar("Reply", covariant=True)


@frozen
class ItemResult:
    """Done, or not and why. Where Kafka leaves the words to the client there is an error and no message."""

    error: type[KafkaError] | None = None
    message: str | None = None

    @property
    def code(self) -> int:
        return NONE if self.error is None else self.error.code

    @classmethod
    def of(cls, error: KafkaError) -> "ItemResult":
        """The outcome for an exception; an exception without arguments has no message."""
        return cls(error=type(error), message=str(error) if error.args else None)


DONE: Final = ItemResult()


@frozen
class Decision(Generic[Reply]):
    records: tuple[MetadataRecord, ...]
    replies: tuple[Reply, ...]
