"""Consumer instances: members of groups that a gateway keeps for callers, between requests.

An instance is a consumer of librdkafka. It lives in the gateway that created it, and belongs to the user who did; it
expires after `rest.consumer.idle.ms` without a request. There are at most `rest.max.consumers` of them. Its requests
are served one after the other, in threads.

What a response to GET records has brought counts as read when the next request for records comes, or when the instance
is deleted: a response that is lost is not committed.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as RdError

from ..cluster_access import OAUTHBEARER, ClusterAccess, Login
from ..producing.librdkafka_errors import as_kafka_error
from ..producing.writer import LOG as CLIENT_LOG
from ..producing.writer import RECONNECT_MS, TOKEN_S
from ..v1 import types_pb2
from .errors import BAD_INSTANCE_CONFIG, INSTANCE_EXISTS, NO_INSTANCE, WRONG_SUBSCRIPTION, RestError
from .formats import BINARY, FORMATS
from .requests import JsonObject, list_of, name_of, object_of, whole, whole_text

LOG: Final = logging.getLogger("trioka.gateway.rest")
CLOSING_THREADS: Final = 8  # beside one for each instance: a request may wait for records for a minute
DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS = 1000, 60_000
DEFAULT_BYTES, MAX_BYTES = 1 << 20, 32 << 20
MAX_RECORDS: Final = 10_000  # of a response
MAX_PLACES: Final = 10_000  # partitions of a request
REQUEST_S: Final = 10.0
BEGINNING, END = -2, -1
POLL_S: Final = 0.1
MAX_DIGITS: Final = 12
FETCH_MIN_BYTES: Final = re.compile("-?[0-9]+")
IGNORED: Final = frozenset({RdError._PARTITION_EOF, RdError._TRANSPORT, RdError._ALL_BROKERS_DOWN})

T = TypeVar("T")


class InstanceId(NamedTuple):
    login: Login | None
    group: str
    name: str


class Options(NamedTuple):
    """The body of POST /consumers/G."""

    name: str
    form: str
    reset: str
    commits: bool
    fetch_min_bytes: int


def options_of(body: object) -> Options:
    """Values are strings in Confluent's examples, so both are taken."""
    found = object_of({} if body is None else body)
    name = found.get("name", found.get("id"))
    form = found.get("format", BINARY)
    reset = found.get("auto.offset.reset", "earliest")
    commits = str(found.get("auto.commit.enable", found.get("enable.auto.commit", True))).lower()
    least = str(found.get("fetch.min.bytes", 1))
    if form not in FORMATS:
        raise RestError(BAD_INSTANCE_CONFIG, f"'format' must be one of {', '.join(FORMATS)}.")
    if reset not in ("earliest", "latest", "none"):
        raise RestError(BAD_INSTANCE_CONFIG, "'auto.offset.reset' must be earliest, latest or none.")
    if commits not in ("true", "false"):
        raise RestError(BAD_INSTANCE_CONFIG, "'auto.commit.enable' must be true or false.")
    if len(least) > MAX_DIGITS or FETCH_MIN_BYTES.fullmatch(least) is None or int(least) > MAX_BYTES:
        raise RestError(BAD_INSTANCE_CONFIG, f"'fetch.min.bytes' must be a whole number up to {MAX_BYTES}.")
    made = f"rest-consumer-{secrets.token_hex(8)}" if name is None else name_of(name, "name of the instance")
    return Options(made, form, reset, commits == "true", max(1, int(least)))


class Instance:
    """All methods but the constructor block; `lock` is held around them."""

    def __init__(self, access: ClusterAccess, number: InstanceId, options: Options, idle_s: float) -> None:
        self.id, self.options = number, options
        self.lock = asyncio.Lock()
        self.last_used = time.monotonic()
        self._idle_s = idle_s
        self._is_subscribed = self._is_assigned = False
        self._topics: list[str] = []
        self._error: RdError | None = None
        self._delivered: dict[tuple[str, int], int] = {}  # the positions behind what the last response brought
        idle_ms = int(idle_s * 1000)
        self._consumer = Consumer(
            _client_settings(access)
            | {
                "group.id": number.group,
                "auto.offset.reset": {"none": "error"}.get(options.reset, options.reset),
                "enable.auto.commit": options.commits,
                "enable.auto.offset.store": False,
                "fetch.min.bytes": options.fetch_min_bytes,
                "max.poll.interval.ms": max(300_000, idle_ms + 60_000),
                "queued.max.messages.kbytes": 4 * 1024,
                "logger": CLIENT_LOG,
                "error_cb": self._failed,
            }
        )

    def is_expired(self, now: float) -> bool:
        return not self.lock.locked() and now - self.last_used > self._idle_s

    def _failed(self, error: RdError) -> None:
        if error.fatal() or error.code() == RdError._AUTHENTICATION:
            self._error = error

    # -- subscription and assignment -----------------------------------------------------------------------------------

    def subscribe(self, body: JsonObject) -> None:
        if self._is_assigned:
            raise RestError(WRONG_SUBSCRIPTION, "The instance has an assignment; delete that before it subscribes.")
        pattern = body.get("topic_pattern")
        if (pattern is None) == (body.get("topics") is None):
            raise RestError(422, "A subscription has 'topics' or 'topic_pattern'.")
        if pattern is not None:
            topics = [f"^{name_of(pattern, 'pattern').removeprefix('^')}"]
        else:
            topics = [name_of(each, "topic") for each in list_of(body, "topics", MAX_PLACES)]
        if not topics:
            raise RestError(422, "The field 'topics' is empty.")
        self._consumer.subscribe(topics)
        self._is_subscribed = True
        self._topics = topics

    def subscription(self) -> dict[str, list[str]]:
        return {"topics": self._topics if self._is_subscribed else []}

    def unsubscribe(self) -> None:
        self._keep_delivered()
        self._consumer.unsubscribe()
        self._consumer.unassign()
        self._is_subscribed = self._is_assigned = False

    def assign(self, body: JsonObject) -> None:
        if self._is_subscribed:
            raise RestError(WRONG_SUBSCRIPTION, "The instance has a subscription; delete that before it is assigned.")
        places = places_of(body, "partitions")
        self._consumer.assign(places)
        self._is_assigned = bool(places)

    def assignments(self) -> dict[str, list[dict[str, Any]]]:
        found = sorted(self._consumer.assignment(), key=lambda each: (each.topic, each.partition))
        return {"partitions": [{"topic": each.topic, "partition": each.partition} for each in found]}

    def seek(self, places: list[TopicPartition]) -> None:
        """A member of a group polls until its partitions are assigned to it."""
        deadline = time.monotonic() + REQUEST_S
        while self._is_subscribed and not self._consumer.assignment() and time.monotonic() < deadline:
            self._held(self._consumer.poll(POLL_S))
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        for each in places:
            if (each.topic, each.partition) not in assigned:
                raise RestError(WRONG_SUBSCRIPTION, f"{each.topic}-{each.partition} is not assigned to the instance.")
        for each in places:
            self._delivered.pop((each.topic, each.partition), None)
            self._seek(each, deadline)

    def _seek(self, place: TopicPartition, deadline: float) -> None:
        """A partition that was assigned just now cannot be moved before its fetcher runs."""
        while True:
            try:
                self._consumer.seek(place)
                return
            except KafkaException as error:
                if error.args[0].code() != RdError._STATE or time.monotonic() > deadline:
                    raise
            self._held(self._consumer.poll(POLL_S))

    def _held(self, message: Message | None) -> None:
        """A record that came while the instance waited for its partitions is read again."""
        if message is not None and message.error() is None:
            record = _record_of(message)
            self._consumer.seek(TopicPartition(*_place_of(message), record.offset))

    # -- records -------------------------------------------------------------------------------------------------------

    def records(self, timeout_ms: int, most: int) -> list[tuple[str, int, types_pb2.Record]]:
        if not self._is_subscribed and not self._is_assigned:
            raise RestError(WRONG_SUBSCRIPTION, "The instance has neither a subscription nor an assignment.")
        self._keep_delivered()
        deadline = time.monotonic() + timeout_ms / 1000
        found: list[tuple[str, int, types_pb2.Record]] = []
        size = 0
        while len(found) < MAX_RECORDS and size < most:
            left_s = deadline - time.monotonic()
            message = self._consumer.poll(0 if found else max(0.0, min(left_s, POLL_S)))
            if self._error is not None:
                raise as_kafka_error(self._error, f"group {self.id.group!r}")
            if message is None:
                if found or left_s <= 0:
                    break
                continue
            error = message.error()
            if error is not None:
                if error.code() in IGNORED:
                    continue
                if found:
                    break
                raise as_kafka_error(error, f"group {self.id.group!r}")
            record = _record_of(message)
            size += len(record.key) + len(record.value)
            if found and size > most:
                self._held(message)
                break
            found.append((*_place_of(message), record))
        for topic, partition, record in found:
            self._delivered[topic, partition] = record.offset + 1
        return found

    def give_back(self, found: list[tuple[str, int, types_pb2.Record]]) -> None:
        """Records that could not be shown: the next request gets them again."""
        first: dict[tuple[str, int], int] = {}
        for topic, partition, record in found:
            first[topic, partition] = min(record.offset, first.get((topic, partition), record.offset))
            self._delivered.pop((topic, partition), None)
        for (topic, partition), offset in first.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))

    def _keep_delivered(self) -> None:
        """What was delivered may be committed from now on."""
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        places = [TopicPartition(*place, offset) for place, offset in self._delivered.items() if place in assigned]
        self._delivered.clear()
        if places:
            self._consumer.store_offsets(offsets=places)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(self, body: object) -> None:
        """The offsets of the body, each of the record that was read last; without a body, all that was delivered."""
        if body:
            places = places_of(object_of(body), "offsets", with_offset=True)
            # The dialect commits the offset of the last record, Kafka the one of the next.
            places = [TopicPartition(each.topic, each.partition, each.offset + 1) for each in places]
        else:
            self._keep_delivered()
            places = None
        try:
            done = self._consumer.commit(**({} if places is None else {"offsets": places}), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() == RdError._NO_OFFSET:
                return
            raise
        for each in done or ():
            if each.error is not None:
                raise as_kafka_error(each.error, f"{each.topic}-{each.partition}")

    def committed(self, body: JsonObject) -> dict[str, list[dict[str, Any]]]:
        found = self._consumer.committed(places_of(body, "partitions"), REQUEST_S)
        return {
            "offsets": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": each.offset,
                    "metadata": each.metadata or "",
                }
                for each in found
                if each.offset >= 0
            ]
        }

    def close(self) -> None:
        try:
            self._keep_delivered()
        except KafkaException as error:
            LOG.warning("offsets of the consumer instance %s are not committed: %s", self.id.name, error)
        self._consumer.close()


def _client_settings(access: ClusterAccess) -> dict[str, Any]:
    settings = access.librdkafka() | {
        "client.id": "trioka-gateway",
        "log_level": 3,
        "reconnect.backoff.max.ms": RECONNECT_MS,
    }
    if access.login is not None and access.login.mechanism == OAUTHBEARER:
        token = access.login.password
        settings["oauth_cb"] = lambda _config: (token, time.time() + TOKEN_S)
    return settings


def _record_of(message: Message) -> types_pb2.Record:
    _, timestamp = message.timestamp()
    record = types_pb2.Record(
        key=message.key(), value=message.value(), offset=message.offset() or 0, timestamp_ms=max(0, timestamp)
    )
    headers: Any = message.headers() or ()
    for key, value in headers:
        record.headers.append(types_pb2.Header(key=key, value=value))
    return record


def _place_of(message: Message) -> tuple[str, int]:
    return str(message.topic()), int(message.partition() or 0)


def places_of(
    body: JsonObject, name: str, *, with_offset: bool = False, offset: int | None = None
) -> list[TopicPartition]:
    found = []
    for each in list_of(body, name, MAX_PLACES):
        row = object_of(each)
        topic, partition = name_of(row.get("topic"), "topic"), whole(row.get("partition"), "partition", 0, 2**31 - 1)
        if with_offset:
            found.append(TopicPartition(topic, partition, whole(row.get("offset"), "offset", 0)))
        elif offset is not None:
            found.append(TopicPartition(topic, partition, offset))
        else:
            found.append(TopicPartition(topic, partition))
    return found


class Instances:
    def __init__(self, access: ClusterAccess, *, most: int, idle_s: float) -> None:
        self._access, self._most, self._idle_s = access, most, idle_s
        self._found: dict[InstanceId, Instance] = {}
        self._threads = ThreadPoolExecutor(most + CLOSING_THREADS, thread_name_prefix="rest-consumer")
        self._closing: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._found)

    async def create(self, login: Login | None, group: str, body: object) -> Instance:
        options = options_of(body)
        number = InstanceId(login, name_of(group, "group"), options.name)
        if number in self._found:
            raise RestError(INSTANCE_EXISTS, f"The group '{group}' has an instance '{options.name}' already.")
        if len(self._found) >= self._most:
            text = f"There are {self._most} consumer instances, the most that this gateway keeps (rest.max.consumers)."
            raise RestError(429, text)
        instance = self._found[number] = Instance(self._access.as_caller(login), number, options, self._idle_s)
        return instance

    def _named(self, login: Login | None, group: str, name: str) -> Instance:
        instance = self._found.get(InstanceId(login, group, name))
        if instance is None:
            raise RestError(NO_INSTANCE, f"The group '{group[:100]}' has no instance '{name[:100]}' here.")
        return instance

    async def use(self, login: Login | None, group: str, name: str, do: Callable[[Instance], T]) -> T:
        """Call `do` in a thread, alone with the instance."""
        instance = self._named(login, group, name)
        async with instance.lock:
            if self._found.get(instance.id) is not instance:
                raise RestError(NO_INSTANCE, f"The instance '{name[:100]}' was deleted meanwhile.")
            try:
                return await self._run(do, instance)
            finally:
                instance.last_used = time.monotonic()

    async def _run(self, do: Callable[[Instance], T], instance: Instance) -> T:
        def call() -> T:
            try:
                return do(instance)
            except KafkaException as error:
                raise as_kafka_error(error, f"group {instance.id.group!r}") from None

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, call))

    async def delete(self, login: Login | None, group: str, name: str) -> None:
        instance = self._named(login, group, name)
        async with instance.lock:
            if self._found.pop(instance.id, None) is instance:
                await self._run(Instance.close, instance)

    def expire(self) -> int:
        """Close what nobody has used for too long. Returns how many."""
        now = time.monotonic()
        expired = [each for each in self._found.values() if each.is_expired(now)]
        for each in expired:
            del self._found[each.id]
            task = asyncio.ensure_future(self._run(Instance.close, each))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return len(expired)

    async def close(self) -> None:
        for each in list(self._found.values()):
            self._found.pop(each.id, None)
            self._closing.add(asyncio.ensure_future(self._run(Instance.close, each)))
        if self._closing:
            await asyncio.wait(self._closing)
        await asyncio.to_thread(self._threads.shutdown)


def limits_of(query: Mapping[str, str]) -> tuple[int, int]:
    """The timeout in ms and the bytes of GET records."""
    timeout_ms = whole_text(query.get("timeout", str(DEFAULT_TIMEOUT_MS)), "timeout", 0, MAX_TIMEOUT_MS)
    most = whole_text(query.get("max_bytes", str(DEFAULT_BYTES)), "max_bytes", -1, MAX_BYTES)
    return timeout_ms, DEFAULT_BYTES if most < 0 else most
