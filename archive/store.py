"""The object store, read only: obstore with deadlines, and its errors by meaning.

obstore's own retries of a refused connection take up to three minutes. Here a request may take `TIMEOUT_S`, and with
its few retries `RETRY_TIMEOUT_S`: a reader of an archive can be started again.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any, Final, NamedTuple

from .errors import AccessDenied, ArchiveError, DamagedSegment, InvalidUrl, MissingObject, StoreUnavailable

TIMEOUT_S: Final = 60
CONNECT_TIMEOUT_S: Final = 10
RETRY_TIMEOUT_S: Final = 90
MAX_RETRIES: Final = 4
STATUS: Final = re.compile(r"\bstatus code: (\d{3})[ \w]*")  # what follows is the server's text
URL_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file")


class StoredObject(NamedTuple):
    key: str
    size: int


class StoreOptions(dict[str, str]):
    """Options of the store, which may be credentials: their values are in no message and no plan."""

    def __repr__(self) -> str:
        return f"<options of the store: {', '.join(sorted(self)) or 'none'}>"


class ReadOnlyStore:
    """The objects below a URL. Keys are relative to it. Safe in several threads."""

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, *, timeout_s: float = RETRY_TIMEOUT_S
    ) -> None:
        """`timeout_s`: of a request with its retries."""
        self.url = url
        self.name = url_without_query(url)
        self.options = StoreOptions(options or {})
        self._obstore = load_obstore()
        self.store_error: type[Exception] = self._obstore.exceptions.BaseError
        exceptions = self._obstore.exceptions
        self.access_errors = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        self._store = _open(self._obstore, url, self.options, timeout_s)

    def directories(self, prefix: str) -> list[str]:
        """The names directly below `prefix`, which is empty or ends with a slash, that have objects below them."""
        with named(self, prefix):
            found = self._obstore.list_with_delimiter(self._store, prefix=prefix or None)
            return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """All objects below `prefix`, in any order."""
        with named(self, prefix):
            for chunk in self._obstore.list(self._store, prefix=prefix or None):
                for found in chunk:
                    yield StoredObject(found["path"], found["size"])

    def read(self, key: str, *, limit: int) -> bytes:
        """A whole object of at most `limit` bytes."""
        with named(self, key):
            result = self._obstore.get(self._store, key)
            size = result.meta["size"]
            if size > limit:
                raise DamagedSegment(f"{self.name}: {key} has {size} bytes, the limit is {limit}")
            return bytes(result.bytes())

    def read_range(self, key: str, start: int, size: int) -> memoryview:
        """Up to `size` bytes: fewer if the object ends before."""
        with named(self, key):
            return memoryview(self._obstore.get_range(self._store, key, start=start, length=size))

    def size_of(self, key: str) -> int:
        with named(self, key):
            size: int = self._obstore.head(self._store, key)["size"]
            return size


def url_without_query(url: str) -> str:
    """The URL for messages: a query may be a credential."""
    return url.partition("?")[0]


def load_obstore() -> ModuleType:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise ArchiveError("reading an archive needs obstore: pip install 'trioka[archive]'") from error
    return obstore


def _open(obstore: ModuleType, url: str, options: Mapping[str, str], timeout_s: float) -> Any:
    """`options` are obstore's configuration (`region`, `endpoint`, `access_key_id` …) and `allow_http`, which a store
    without TLS needs."""
    scheme = url.partition("://")[0]
    if scheme not in URL_SCHEMES or "://" not in url:
        raise InvalidUrl(f"{url!r} is not the URL of a store: s3://bucket/prefix, gs://…, az://… or file:///directory")
    own = dict(options)
    extra: dict[str, Any] = {}
    if scheme != "file":
        extra = {
            "client_options": {
                "timeout": timedelta(seconds=min(TIMEOUT_S, timeout_s)),
                "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, timeout_s)),
                "allow_http": own.pop("allow_http", "false").lower() == "true",
            },
            "retry_config": {"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=timeout_s)},
            "config": own or None,
        }
    elif own:
        raise InvalidUrl(f"{url_without_query(url)}: a directory has no option {next(iter(own))!r}")
    try:
        return obstore.store.from_url(url, **extra)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        raise InvalidUrl(f"{url_without_query(url)}: {_first_line(error)}") from error


@contextmanager
def named(store: "ReadOnlyStore", key: str) -> Iterator[None]:
    """Errors of the store as those of the archive, with the name of the object; without a key, of a list."""
    try:
        yield
    except FileNotFoundError as error:
        if not key or key.endswith("/"):
            raise StoreUnavailable(f"{store.name}: there is no such bucket or directory") from error
        raise MissingObject(f"{store.name}: there is no object {key}") from error
    except (*store.access_errors, PermissionError) as error:
        raise AccessDenied(f"{store.name}: {key or 'the list'}: {_first_line(error)}") from error
    except (store.store_error, OSError) as error:
        status = STATUS.search(str(error))  # of a list: the library has no errors of its own for it
        if status is not None and status[1] in ("401", "403"):
            raise AccessDenied(f"{store.name}: {key or 'the list'}: {status[0]}") from error
        if status is not None and status[1] == "404":
            raise StoreUnavailable(f"{store.name}: there is no such bucket") from error
        raise StoreUnavailable(f"{store.name}: {key or 'the list'}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """Without the debug output that obstore appends, and without a page that the server sent."""
    line = str(error).strip().partition("\n")[0]
    status = STATUS.search(line)
    return (line if status is None else line[: status.end()]) or type(error).__name__
