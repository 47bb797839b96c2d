"""Validation of schema ids: records of some topics must begin with the id of a schema that is registered for them.

    0x00 | schema id, four bytes, big-endian | data

Which subjects have an id is requested from the schema registry and cached. A Produce request whose ids are all known is
checked at once; otherwise it waits until the unknown ones are requested. That an id has a subject stays true
for long enough, so it is kept; that it has not is requested again after `RETRY_S`. While the registry does not answer,
records with unknown ids are refused with an error that producers retry.
"""

import json
import ssl
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import trio

from trioka.protocol.batch import headers, records
from trioka.protocol.errors import InvalidRecord, KafkaError, ProtocolError, RequestTimedOut
from trioka.storage.append_validation import RecordError, RejectedRecords
from trioka.storage.log_config import SchemaIdRules, SubjectStrategy

from ..config.layers import Config
from ..config.schema_keys import SCHEMA_REGISTRY_URL, SCHEMA_REGISTRY_USER_INFO

MAX_KNOWN: Final = 10_000  # ids in the cache; the least recently used one goes first
MAX_LOOKUPS: Final = 100  # unknown ids that one request may have
MAX_NAMED: Final = 100  # records named in an error
MAX_DECOMPRESSED_BYTES: Final = 128 << 20
MAX_CONNECTIONS: Final = 8  # to the registry at once
RETRY_S: Final = 10.0
HEADER_BYTES: Final = 5
MAGIC: Final = 0


class LookupFailed(Exception):
    """The registry cannot say which subjects have an id; the message gives the reason."""


Lookup: TypeAlias = Callable[[int], Awaitable[frozenset[str]]]


class _Rule(NamedTuple):
    """Where the schema of a key or a value must be registered: under one subject, one with a prefix, or any."""

    side: str
    subject: str | None
    prefix: str

    def allows(self, subject: str) -> bool:
        return subject.startswith(self.prefix) if self.subject is None else subject == self.subject


@lru_cache(1000)
def _rule(topic: str, side: str, strategy: SubjectStrategy | None) -> _Rule | None:
    if strategy is None:
        return None
    if strategy == "topic":
        return _Rule(side, f"{topic}-{side}", "")
    return _Rule(side, None, f"{topic}-" if strategy == "topic_record" else "")


def schema_ids_of(config: Config, now: Callable[[], float]) -> "SchemaIds | None":
    """None without the address of a registry."""
    urls, login = config[SCHEMA_REGISTRY_URL], config[SCHEMA_REGISTRY_USER_INFO]
    return SchemaIds(registry_lookup(urls, None if login is None else login.value), now) if urls else None


class _CachedSubjects:
    __slots__ = ("expires", "subjects")

    def __init__(self, subjects: frozenset[str], expires: float) -> None:
        self.subjects = subjects
        self.expires = expires  # when a missing subject is requested again


class SchemaIds:
    def __init__(self, lookup: Lookup, now: Callable[[], float]) -> None:
        self._lookup = lookup
        self._now = now
        self._known: OrderedDict[int, _CachedSubjects] = OrderedDict()
        self._limiter = trio.CapacityLimiter(MAX_CONNECTIONS)
        self._failure = ""

    def unknown(self, topic: str, rules: SchemaIdRules, data: Any) -> set[int]:
        """The ids in these records that have to be requested before `check`. Of damaged records there are none: the
        log refuses those.
        """
        found: set[int] = set()
        try:
            for _, rule, field in _fields(topic, rules, data):
                number = _id_of(field)
                if number is not None and not self._accepts(number, rule) and self._is_stale(number):
                    found.add(number)
                    if len(found) > MAX_LOOKUPS:
                        break
        except (KafkaError, ProtocolError):
            return set()
        return found

    async def look_up(self, numbers: set[int]) -> None:
        async with trio.open_nursery() as nursery:
            for number in sorted(numbers)[:MAX_LOOKUPS]:
                nursery.start_soon(self._look_up, number)

    async def _look_up(self, number: int) -> None:
        try:
            async with self._limiter:
                subjects = await self._lookup(number)
        except LookupFailed as error:
            self._failure = str(error)
            return
        self._known[number] = _CachedSubjects(subjects, self._now() + RETRY_S)
        self._known.move_to_end(number)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def check(self, topic: str, rules: SchemaIdRules, data: Any) -> None:
        """Raises InvalidRecord, which names the records, or RequestTimedOut for ids that could not be requested."""
        wrong: list[RecordError] = []
        try:
            for index, rule, field in _fields(topic, rules, data):
                text = self._refusal(rule, field)
                if text is not None and len(wrong) < MAX_NAMED:
                    wrong.append(RecordError(index, text))
        except ProtocolError:
            return  # the log refuses it
        if wrong:
            what = f"{len(wrong)} records of {topic} have no valid schema id: {wrong[0].message}"
            raise InvalidRecord(what) from RejectedRecords(tuple(wrong))

    def _refusal(self, rule: _Rule, field: bytes) -> str | None:
        number = _id_of(field)
        if number is None:
            return f"the {rule.side} does not begin with the id of a schema"
        if self._accepts(number, rule):
            return None
        known = self._known.get(number)
        if known is None:
            raise RequestTimedOut(f"the schema registry was not reached for id {number}: {self._failure}")
        where = rule.subject or f"{rule.prefix}…"
        if not known.subjects:
            return f"the {rule.side} has the schema id {number}, which is not registered"
        return f"the {rule.side} has the schema id {number}, which is not registered for subject {where}"

    def _accepts(self, number: int, rule: _Rule) -> bool:
        known = self._known.get(number)
        return known is not None and any(rule.allows(subject) for subject in known.subjects)

    def _is_stale(self, number: int) -> bool:
        known = self._known.get(number)
        return known is None or known.expires <= self._now()


def _fields(topic: str, rules: SchemaIdRules, data: Any) -> Iterator[tuple[int, _Rule, bytes]]:
    """The keys and values that need an id, with the index of their record in the batch."""
    key, value = _rule(topic, "key", rules.key), _rule(topic, "value", rules.value)
    for header in headers(data):
        for index, record in enumerate(records(data, header, limit=MAX_DECOMPRESSED_BYTES)):
            if key is not None and record.key is not None:
                yield index, key, record.key
            if value is not None and record.value is not None:
                yield index, value, record.value


def _id_of(field: bytes) -> int | None:
    if len(field) < HEADER_BYTES or field[0] != MAGIC:
        return None
    return int.from_bytes(field[1:HEADER_BYTES])


# -- the registry ------------------------------------------------------------------------------------------------------

TIMEOUT_S: Final = 5.0
MAX_RESPONSE_BYTES: Final = 4 << 20
OK, NOT_FOUND = 200, 404


def registry_lookup(urls: tuple[str, ...], user_info: str | None) -> Lookup:
    """Requests ids from the first of these registries that answers."""
    from ..security.http_get import GetFailed, http_get

    headers = [] if user_info is None else [("Authorization", f"Basic {b64encode(user_info.encode()).decode()}")]
    contexts: dict[str, ssl.SSLContext] = {}

    async def subjects_of(url: str, number: int) -> frozenset[str]:
        parts = urlsplit(f"{url.rstrip('/')}/schemas/ids/{number}/subjects")
        if parts.scheme == "https" and not contexts:  # loading the system's certificates takes tens of milliseconds
            contexts["https"] = await trio.to_thread.run_sync(ssl.create_default_context)
        with trio.fail_after(TIMEOUT_S):
            status, body = await http_get(
                parts, contexts.get(parts.scheme), max_bytes=MAX_RESPONSE_BYTES, headers=headers
            )
        if status == NOT_FOUND:
            return frozenset()
        found = json.loads(body) if status == OK else None
        if not isinstance(found, list):
            raise LookupFailed(f"{url} answered with status {status} and no list of subjects")
        return frozenset(each for each in found if isinstance(each, str))

    async def lookup(number: int) -> frozenset[str]:
        reason = ""
        for url in urls:
            try:
                return await subjects_of(url, number)
            except trio.TooSlowError:
                reason = f"{url} did not answer within {TIMEOUT_S:g} s"
            except (GetFailed, LookupFailed, ValueError) as error:
                reason = str(error)
        raise LookupFailed(reason)

    return lookup
