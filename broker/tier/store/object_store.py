"""What tiered storage requires of an object store: its operations, their errors and limits.

    if not await store.create(key, manifest): …         # the key exists already, with other bytes
    view = await store.get_range(key, start, length)    # a memoryview, not a copy

Conditional creation is what all fencing stands on: of several clients that create one key, exactly one succeeds. A
broker verifies that when it starts (`probe.py`). Nothing else is required: no updates by etag, no attributes, no ranges
from the end, because not every store has them.

Every operation ends after a bounded time, with a result or with an ObjectStoreError. After an error it is unknown
whether a write took place. `obstore_client.py` is the implementation; simulations have their own.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

from trioka.storage.files.disk import Buffer

Data: TypeAlias = Buffer

PART_BYTES: Final = 8 * 1024 * 1024  # of a multipart upload. S3 demands at least 5 MiB, and at most 10,000 parts
UPLOADS_AT_ONCE: Final = 4  # parts of one object in flight; each holds PART_BYTES
MAX_OBJECT_BYTES: Final = 256 * 1024 * 1024  # `get` refuses a larger object: those are read by ranges
MAX_LISTED: Final = 1_000_000  # `list` refuses more, about 200 MB of names; `list_pages` has no such limit
MAX_ERROR_TEXT: Final = 300  # characters of a store's error text that go into an exception and so into the log


class ObjectStoreError(Exception):
    """An operation failed. Whether a write took place is unknown."""


class ObjectNotFound(ObjectStoreError):
    """There is no object of that name."""


class ObjectStoreTimeout(ObjectStoreError):
    """The store did not answer before the deadline."""


class ObjectStoreRefused(Exception):
    """The configured store cannot be used. The text is one sentence for the operator."""


class ObjectInfo(NamedTuple):
    """One object of a listing."""

    key: str
    size: int
    last_modified_ms: int


Listing: TypeAlias = list[ObjectInfo]


class ObjectWriter(Protocol):
    """An upload in parts. The object appears when `close` returns. A writer that failed must not be used again."""

    async def write(self, data: Data) -> None:
        """Send the bytes; fastest with PART_BYTES or more. They may be changed after the return."""

    async def close(self) -> None:
        """Complete the object."""

    def abandon(self) -> None:
        """Never complete it. The store keeps the parts, invisible, until a lifecycle rule for incomplete uploads
        deletes them."""


class ObjectStore(Protocol):
    """The objects below one prefix of a bucket. Keys are relative to the prefix."""

    @property
    def url(self) -> str:
        """Without credentials: for log lines."""

    async def create(self, key: str, data: Data) -> bool:
        """Write an object unless the key exists. False: it exists, with other bytes. True if it has the same bytes:
        then an earlier attempt succeeded and its response was lost."""

    async def put(self, key: str, data: Data) -> None:
        """Write an object, or replace it."""

    async def get(self, key: str, max_bytes: int = MAX_OBJECT_BYTES) -> memoryview:
        """The whole object; an error if it has more than `max_bytes`. Raises ObjectNotFound."""

    async def get_range(self, key: str, start: int, length: int) -> memoryview:
        """`length` bytes, or fewer if the object ends before. Raises ObjectNotFound."""

    async def size(self, key: str) -> int:
        """The object's size in bytes. Raises ObjectNotFound."""

    async def list(self, prefix: str) -> Listing:
        """All objects below a folder, sorted by key; "" lists everything."""

    def list_pages(self, prefix: str) -> AsyncIterator[Listing]:
        """The same without the limit and without the order, page by page."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a key without an object is no error. After an error, any of them may remain."""

    async def open_writer(self, key: str, parts_at_once: int = UPLOADS_AT_ONCE) -> ObjectWriter:
        """Begin an upload in parts of PART_BYTES."""
