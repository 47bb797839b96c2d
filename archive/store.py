"""The object store, read only: obstore with deadlines, and its errors by meaning.

obstore's own retries of a refused connection take up to three minutes. Here a request may take `TIMEOUT_S`, and with
its few retries `RETRY_TIMEOUT_S`: a reader of an archive can be started again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .errors import ArchiveError, DamagedSegment, InvalidUrl, MissingObject, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT_S: Final = 60
CONNECT_TIMEOUT_S: Final = 10
RETRY_TIMEOUT_S: Final = 90
MAX_RETRIES: Final = 4
URL_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file", "memory")


class StoredObject(NamedTuple):
    key: str
    size: int


class ReadOnlyStore:
    """The objects below a URL. Keys are relative to it. Safe in several threads."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.options = dict(options or {})
        self._store = open_store(url, self.options)

    def directories(self, prefix: str) -> list[str]:
        """The names directly below `prefix`, which is empty or ends with a slash, that have objects below them."""
        import obstore

        with _named(self.url, prefix):
            found = obstore.list_with_delimiter(self._store, prefix=prefix or None)
            return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """All objects below `prefix`, in any order."""
        import obstore

        with _named(self.url, prefix):
            for chunk in obstore.list(self._store, prefix=prefix or None):
                for found in chunk:
                    yield StoredObject(found["path"], found["size"])

    def read(self, key: str, *, limit: int) -> bytes:
        """A whole object of at most `limit` bytes."""
        import obstore

        with _named(self.url, key):
            result = obstore.get(self._store, key)
            size = result.meta["size"]
            if size > limit:
                raise DamagedSegment(f"{self.url}: {key} has {size} bytes, the limit is {limit}")
            return bytes(result.bytes())

    def read_range(self, key: str, start: int, size: int) -> memoryview:
        """Up to `size` bytes: fewer if the object ends before."""
        import obstore

        with _named(self.url, key):
            return memoryview(obstore.get_range(self._store, key, start=start, length=size))

    def size_of(self, key: str) -> int:
        import obstore

        with _named(self.url, key):
            size: int = obstore.head(self._store, key)["size"]
            return size


def open_store(url: str, options: Mapping[str, str]) -> "ObjectStore":
    """`options` are obstore's configuration (`region`, `endpoint`, `access_key_id` …) and `allow_http`, which a store
    without TLS needs."""
    scheme = url.partition("://")[0]
    if scheme not in URL_SCHEMES or "://" not in url:
        raise InvalidUrl(f"{url!r} is not the URL of a store: s3://bucket/prefix, gs://…, az://… or file:///directory")
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise ArchiveError("reading an archive needs obstore: pip install 'trioka[archive]'") from error
    own = dict(options)
    extra: dict[str, Any] = {}
    if scheme not in ("file", "memory"):
        extra = {
            "client_options": {
                "timeout": timedelta(seconds=TIMEOUT_S),
                "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                "allow_http": own.pop("allow_http", "false").lower() == "true",
            },
            "retry_config": {"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)},
            "config": own or None,
        }
    elif own:
        raise InvalidUrl(f"{url}: a {scheme} store has no option {next(iter(own))!r}")
    try:
        return from_url(url, **extra)
    except Exception as error:
        raise InvalidUrl(f"{url}: {_first_line(error)}") from error


@contextmanager
def _named(url: str, key: str) -> Iterator[None]:
    """Errors of the store as those of the archive, with the name of the object."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        raise MissingObject(f"{url}: there is no object {key}") from error
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"{url}: {key or 'the list'}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """Without the debug output that obstore appends."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
