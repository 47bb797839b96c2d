"""What a controller answers: records to be appended, and for each thing that was asked an outcome.

A decision changes nothing. Its records are appended to the metadata log in one batch, and what they say is true once
they are replayed; the replies are sent when that has happened on the broker that was asked. One item of a request
that cannot be done never hinders the others: its outcome carries the error.
"""

from typing import Final, Generic, TypeVar

from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.lazy_dataclass import frozen

from .metadata_log import MetadataRecord

Reply = TypeVar("Reply", covariant=True)


@frozen
class Outcome:
    """Done, or not and why. Where Kafka leaves the words to the client there is an error and no message."""

    error: type[KafkaError] | None = None
    message: str | None = None

    @property
    def code(self) -> int:
        return NONE if self.error is None else self.error.code

    @classmethod
    def of(cls, error: KafkaError) -> "Outcome":
        """The outcome that an exception stands for; one that was raised without words has no message."""
        return cls(error=type(error), message=str(error) if error.args else None)


DONE: Final = Outcome()


@frozen
class Decision(Generic[Reply]):
    records: tuple[MetadataRecord, ...]
    replies: tuple[Reply, ...]
