"""One driver at a time for a checkpoint on an object store: an object that its holder writes again every few seconds.

    checkpoint/lock.json    {"owner": "8f3a…", "count": 17}

The object is created, and replaced, only on a condition (`If-None-Match`, `If-Match`), so two drivers never both
succeed. A driver that finds the object waits: if it does not change for `LEASE_S`, its holder is dead, and the object
is replaced. A holder that could not write it for so long that another driver may soon take it delivers nothing more.
Only durations on one machine are compared, so clocks may differ.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..errors import InvalidPipeline, PipelineFailed
from ..installation.cache import Unavailable, Unreachable

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
OBJECT = "lock.json"
LEASE_S = 30.0
RENEW_S = 5.0
# A batch that was confirmed just before must be published within this time.
MARGIN_S = 10.0
# Hadoop's keys for S3, and those of the client that holds the lock. Without them it takes what the machine has.
HADOOP_KEYS = {
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "token",
}


class LockLost(PipelineFailed):
    """Another driver may have the checkpoint, so this one must stop as a whole."""


def has_store_lock(address: str) -> bool:
    return address.partition("://")[0] in SCHEMES


def open_store(address: str, value: Callable[[str], str | None]) -> Any:
    """The store at the address of a checkpoint; `value` gives settings of Hadoop."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise Unavailable("The lock of a checkpoint on an object store needs obstore: pip install obstore.") from None
    scheme, _, rest = address.partition("://")
    config = {name: found for key, name in HADOOP_KEYS.items() if (found := value(key))} if scheme[:2] == "s3" else {}
    options = {"allow_http": config.get("endpoint", "").startswith("http:")}
    try:
        return from_url(f"{SCHEMES[scheme]}://{rest}", config=config or None, client_options=options)  # type: ignore[call-overload]
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidPipeline(f"The checkpoint {address} is no address of a store: {_first_line(error)}.") from None


class StoreLock:
    """`owner` is a name that no other driver has. The store has obstore's methods `put` and `get`."""

    def __init__(
        self,
        store: Any,
        address: str,
        owner: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._store = store
        self._address = address
        self._owner = owner
        self._clock = clock
        self._wait = wait
        self._version: Mapping[str, Any] | None = None
        self._written = 0.0
        self._count = 0
        self._is_lost = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="checkpoint lock", daemon=True)

    def take(self) -> None:
        """Become the holder, as soon as another one is known to be dead; `InvalidPipeline` if it lives."""
        seen: tuple[Any, float] | None = None
        changes = 0
        while not self._try_create():
            found = self._read()
            if found is None:  # removed meanwhile
                self._wait(RENEW_S / 2)
                continue
            content, version = found
            if content.get("owner") is None:  # released
                if self._try_write(version):
                    break
                continue
            if seen is None or seen[0] != version:
                changes += seen is not None
                seen = version, self._clock()
            elif self._clock() - seen[1] > LEASE_S and self._try_write(version):
                break
            if changes > 1:
                raise InvalidPipeline(f"Another driver runs this pipeline: it holds the checkpoint {self._address}.")
            self._wait(RENEW_S / 2)
        self._thread.start()

    def confirm(self) -> None:
        """Raise `LockLost` if another driver may have the lock by now."""
        if self._is_lost or self._clock() - self._written > LEASE_S - MARGIN_S:
            raise LockLost(
                f"The lock of the checkpoint {self._address} is lost: another driver has it, or the store did not "
                f"answer for {LEASE_S - MARGIN_S:.0f} s. Nothing more is written."
            )

    def renew(self) -> None:
        """Write the object again; if another driver has replaced it, the lock is lost."""
        if self._version is not None and not self._try_write(self._version):
            self._is_lost = True

    def release(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(RENEW_S)
        with suppress(Unreachable):
            if self._version is not None and not self._is_lost:
                self._put(b"{}", self._version)
        self._version = None

    def _keep(self) -> None:
        while not self._end.wait(RENEW_S) and not self._is_lost:
            with suppress(Unreachable):  # the next try, or the end of the lease
                self.renew()

    def _try_create(self) -> bool:
        return self._wrote("create")

    def _try_write(self, version: Mapping[str, Any]) -> bool:
        return self._wrote(version)

    def _wrote(self, mode: Any) -> bool:
        now = self._clock()
        self._count += 1
        text = json.dumps({"owner": self._owner, "count": self._count})
        version = self._put(text.encode(), mode)
        if version is None:
            return False
        self._version, self._written = version, now
        return True

    def _put(self, content: bytes, mode: Any) -> Mapping[str, Any] | None:
        """The version that was written; None if the condition does not hold."""
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

        try:
            found = self._store.put(OBJECT, content, mode=mode)
            return _version(found)
        except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from None

    def _read(self) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        from obstore.exceptions import BaseError, NotFoundError

        try:
            found = self._store.get(OBJECT)
            content = json.loads(bytes(found.bytes()) or b"{}")
            return content, _version(found.meta)
        except (NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError, ValueError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"The checkpoint {self._address} cannot be locked: {_first_line(error)}.")


def _version(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition that an object is still the one that was found."""
    return {key: found[key] for key in ("e_tag", "version") if found.get(key) is not None}


def _first_line(error: Exception) -> str:
    """Without the debug output that obstore appends."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
