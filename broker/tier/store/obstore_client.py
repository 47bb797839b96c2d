"""The object store by the library obstore: S3, Google Cloud Storage, Azure Blob Storage, and a local directory.

obstore is an extra, `trioka[tier]`; only a broker with trioka.tier.url loads this module. Its calls block, so they run
in worker threads, at most as many as the limiter allows. They do not hold Python's global lock while they wait.

**Deadlines.** Each attempt of an HTTP request has a timeout, the retries of a request have one together, and the wait
for the thread is cancelled after that. Then the thread is abandoned: it ends by its own timeouts, and until then it
occupies its place in the limiter, so hanging requests cannot add up.

**Secrets.** Credentials go from the configuration into obstore and nowhere else. Texts of errors are cut, and lose the
queries of URLs (Azure and presigned URLs carry signatures there) and any configured secret.

file:// is for tests and for a file system that replicates by itself: obstore does not sync the files that it writes.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import obstore
import trio
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

from .object_store import (
    MAX_ERROR_TEXT,
    MAX_LISTED,
    MAX_OBJECT_BYTES,
    PART_BYTES,
    UPLOADS_AT_ONCE,
    Data,
    Listing,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreRefused,
    ObjectStoreTimeout,
)
from .store_options import StoreOptions

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

T = TypeVar("T")

SLOWEST_BYTES_PER_SECOND: Final = 1024 * 1024  # a large write may take longer than the deadline, at this rate
GRACE_S: Final = 0.5  # for the backoff between attempts
DELETES_AT_ONCE: Final = 1000  # keys of one bulk request, as S3 allows
MIN_SECRET: Final = 4  # characters; hiding single letters would spoil a text and hide nothing
LIST_PAGE: Final = 1000
QUERY_TEXT: Final = re.compile(r"\?[^\s'\")]*")


def open_store(options: StoreOptions, limiter: trio.CapacityLimiter) -> "ObstoreClient":
    """The store of trioka.tier.url. Raises ObjectStoreRefused; sends no request."""
    try:
        return ObstoreClient(_backend(options), options, limiter)
    except (BaseError, ValueError, OSError, TypeError) as error:
        raise ObjectStoreRefused(
            f"trioka.tier.url {options.url} cannot be used: {_error_text(error, options)}"
        ) from None


def _backend(options: StoreOptions) -> "S3Store | GCSStore | AzureStore | LocalStore":
    parts = urlsplit(options.url)
    timeout = timedelta(milliseconds=options.request_timeout_ms)
    client: ClientConfig = {"timeout": timeout, "connect_timeout": min(timeout, timedelta(seconds=5))}
    if options.endpoint is not None and options.endpoint.startswith("http://"):
        client["allow_http"] = True
    retry: RetryConfig = {
        "max_retries": options.retries,
        "retry_timeout": timeout,
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    }
    if parts.scheme == "file":
        return LocalStore(prefix=parts.path, mkdir=True)
    if parts.scheme == "gs":
        return GCSStore.from_url(options.url, client_options=client, retry_config=retry)
    if parts.scheme == "az":
        azure: dict[str, Any] = {"endpoint": options.endpoint} if options.endpoint is not None else {}
        if options.access_key is not None:
            azure["account_name"] = options.access_key
        if options.secret_key is not None:
            azure["account_key"] = options.secret_key
        return AzureStore.from_url(options.url, client_options=client, retry_config=retry, **azure)
    s3: dict[str, Any] = {"virtual_hosted_style_request": not options.path_style}
    for name, value in (
        ("endpoint", options.endpoint),
        ("region", options.region),
        ("access_key_id", options.access_key),
        ("secret_access_key", options.secret_key),
    ):
        if value is not None:
            s3[name] = value
    return S3Store.from_url(options.url, client_options=client, retry_config=retry, **s3)


def _error_text(error: BaseException, options: StoreOptions) -> str:
    text = QUERY_TEXT.sub("?…", str(error).partition("\n\nDebug source:")[0])
    for secret in (options.secret_key, options.access_key):
        if secret and len(secret) >= MIN_SECRET:
            text = text.replace(secret, "[hidden]")
    text = " ".join(text.split())
    return text if len(text) <= MAX_ERROR_TEXT else text[:MAX_ERROR_TEXT] + "…"


class ObstoreClient:
    """An ObjectStore (object_store.py) over obstore."""

    def __init__(
        self,
        backend: "S3Store | GCSStore | AzureStore | LocalStore",
        options: StoreOptions,
        limiter: trio.CapacityLimiter,
    ) -> None:
        self.url: Final = options.url
        self._backend: Final = backend
        self._options: Final = options
        self._limiter: Final = limiter
        # The attempts of a request begin within the timeout, so the last one ends within two.
        self._deadline: Final = 2 * options.request_timeout_ms / 1000 + GRACE_S

    async def create(self, key: str, data: Data) -> bool:
        try:
            await self._run(partial(self._put, key, data, create=True), f"create {key}", len(data))
        except _Exists:
            return await self._has(key, data)
        return True

    async def _has(self, key: str, data: Data) -> bool:
        try:
            return await self.get(key, max_bytes=len(data)) == memoryview(data)
        except (_TooLarge, ObjectNotFound):
            return False

    async def put(self, key: str, data: Data) -> None:
        await self._run(partial(self._put, key, data, create=False), f"put {key}", len(data))

    def _put(self, key: str, data: Data, *, create: bool) -> None:
        if create:
            obstore.put(self._backend, key, data, mode="create", use_multipart=False)
        else:
            obstore.put(self._backend, key, data, chunk_size=PART_BYTES, max_concurrency=UPLOADS_AT_ONCE)

    async def get(self, key: str, max_bytes: int = MAX_OBJECT_BYTES) -> memoryview:
        return await self._run(partial(self._get, key, max_bytes), f"get {key}", max_bytes)

    def _get(self, key: str, max_bytes: int) -> memoryview:
        result = obstore.get(self._backend, key)
        size = result.meta["size"]
        if size > max_bytes:
            raise _TooLarge(f"the object has {size} bytes, more than {max_bytes}")
        return memoryview(result.bytes())

    async def get_range(self, key: str, start: int, length: int) -> memoryview:
        return await self._run(partial(self._get_range, key, start, length), f"get {key} at {start}", length)

    def _get_range(self, key: str, start: int, length: int) -> memoryview:
        return memoryview(obstore.get_range(self._backend, key, start=start, length=length))

    async def size(self, key: str) -> int:
        return await self._run(lambda: int(obstore.head(self._backend, key)["size"]), f"head {key}")

    async def list(self, prefix: str) -> Listing:
        found: Listing = []
        async for page in self.list_pages(prefix):
            found += page
            if len(found) > MAX_LISTED:
                raise ObjectStoreError(f"{self.url}: there are more than {MAX_LISTED} objects below '{prefix}'")
        return sorted(found)

    async def list_pages(self, prefix: str) -> AsyncIterator[Listing]:
        stream = await self._run(
            lambda: obstore.list(self._backend, prefix or None, chunk_size=LIST_PAGE), f"list {prefix}"
        )
        while page := await self._run(partial(next, stream, ()), f"list {prefix}"):
            yield [
                ObjectInfo(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000)) for each in page
            ]

    async def delete(self, keys: Iterable[str]) -> None:
        rest = iter(keys)
        while some := list(islice(rest, DELETES_AT_ONCE)):
            await self._run(partial(self._delete, some), f"delete {some[0]}" + (" and others" if some[1:] else ""))

    def _delete(self, keys: Sequence[str]) -> None:
        if isinstance(self._backend, S3Store):
            obstore.delete(self._backend, keys)
            return
        for key in keys:  # the others report a missing key, and not for which of several
            with suppress(NotFoundError, FileNotFoundError):
                obstore.delete(self._backend, key)

    async def open_writer(self, key: str, parts_at_once: int = UPLOADS_AT_ONCE) -> "ObstoreWriter":
        writer = await self._run(
            lambda: obstore.open_writer(self._backend, key, buffer_size=PART_BYTES, max_concurrency=parts_at_once),
            f"begin {key}",
        )
        return ObstoreWriter(self._run, writer, key)

    async def _run(self, call: Callable[[], T], what: str, size: int = 0) -> T:
        """The result of a blocking call in a thread."""
        options = self._options
        # Of a `get` without a known size the limit counts, so a large limit allows a long wait: cap it.
        seconds = self._deadline + min(size, MAX_OBJECT_BYTES) / SLOWEST_BYTES_PER_SECOND
        try:
            with trio.fail_after(seconds):
                return await trio.to_thread.run_sync(
                    partial(_off_the_loop, call), limiter=self._limiter, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            raise ObjectStoreTimeout(f"{self.url}: {what}: no answer within {seconds:.0f} s") from None
        except AlreadyExistsError:
            raise _Exists(f"{self.url}: {what}: the object exists already") from None
        except (NotFoundError, FileNotFoundError):
            raise ObjectNotFound(f"{self.url}: {what}: there is no such object") from None
        except _TooLarge as error:
            raise _TooLarge(f"{self.url}: {what}: {error}") from None
        except (BaseError, OSError, ValueError) as error:
            raise ObjectStoreError(f"{self.url}: {what}: {_error_text(error, options)}") from None


class _Exists(ObjectStoreError):
    """A conditional create found the key."""


class _TooLarge(ObjectStoreError):
    """An object is larger than the caller accepts."""


def _off_the_loop(call: Callable[[], T]) -> T:
    assert not trio.lowlevel.in_trio_run(), "a request to the object store would block the event loop"
    return call()


class ObstoreWriter:
    """An ObjectWriter (object_store.py)."""

    def __init__(self, run: Callable[..., Any], writer: Any, key: str) -> None:
        self._run: Final = run
        self._writer: Any = writer
        self._key: Final = key

    async def write(self, data: Data) -> None:
        await self._use(lambda writer: writer.write(data), f"write {self._key}", len(data))

    async def close(self) -> None:
        await self._use(lambda writer: writer.close(), f"complete {self._key}", UPLOADS_AT_ONCE * PART_BYTES)
        self._writer = None

    async def _use(self, call: Callable[[Any], object], what: str, size: int) -> None:
        writer, self._writer = self._writer, None  # stays None if the call fails or is cancelled
        if writer is None:
            raise ObjectStoreError(f"{what}: the upload failed before, or was abandoned")
        await self._run(lambda: call(writer), what, size)
        self._writer = writer

    def abandon(self) -> None:
        self._writer = None
