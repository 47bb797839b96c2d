"""A Kafka broker for a test, as a context manager for any test framework.

    with Broker(num_partitions=3) as kafka:
        client = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)

A keyword is a key of server.properties, with underscores for dots. The broker runs in a thread of this process, or with
`process=True` in one of its own, which can be killed and paused. Its data is in memory, its port any that is free, and
nothing is left of it at the end of the block. Without a block there are `start` and `stop`.

Every method here blocks until it is done, also when it is called from asyncio or trio.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from . import temp_dirs
from .api_faults import ApiFaults
from .client import TIMEOUT_S, Client, Payload, Record
from .clock_control import Clock
from .disks.corruption import flip_bit, tear
from .faults import Length, seconds_of
from .process import ProcessHost
from .runner import HasEnded, Host, Unresponsive

HOST: Final = "127.0.0.1"
DESCRIBE_S: Final = 2.0  # a broker that does not tell how it is within so long is what is wrong
DATA, WORDS = "data", "words.txt"  # below its folder: the log directory, and what a process has said


class Broker(ApiFaults):
    def __init__(self, *, process: bool = False, **configs: object) -> None:
        self._settings = keys_of(configs)
        self._is_process = process
        self._folder: str | None = None
        self._host: Host | None = None
        self._port = 0
        self.clock = Clock(self)

    def __repr__(self) -> str:
        return f"<trioka.testing.Broker {f'{HOST}:{self._port}' if self.is_running else 'not running'}>"

    # -- life ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> "Broker":
        """Starts it; anew, after `stop` or `kill`, with the data and at the port that it had."""
        if self.is_running:
            return self
        try:
            if self._folder is None:
                self._folder = temp_dirs.new_folder()
            if self._host is None:
                self._host = self._new_host(self._folder)
            self._host.stop()  # what is left of one that died
            self._port = self._host.start(self._port)
        except BaseException:
            self.close()
            raise
        return self

    def _new_host(self, folder: str) -> Host:
        if self._is_process:
            return ProcessHost(f"{folder}/{DATA}", f"{folder}/{WORDS}", self._settings)
        from .thread import ThreadHost

        return ThreadHost(f"{folder}/{DATA}", self._settings)

    def stop(self) -> None:
        """Stops it cleanly. Its data stays, for `start`, until `close`."""
        if self._host is not None:
            self._host.stop()

    def restart(self) -> None:
        """A clean stop and a start, with the same data at the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it, and removes its data."""
        try:
            self.stop()
        finally:
            self._host, self._port = None, 0
            folder, self._folder = self._folder, None
            if folder is not None:
                temp_dirs.remove(folder)

    @property
    def is_running(self) -> bool:
        return self._host is not None and self._host.is_running

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find it: host:port. The same after a restart."""
        if self._port == 0:
            raise Unresponsive("the broker is not running: use it in a `with`, or call start()")
        return f"{HOST}:{self._port}"

    @property
    def _home(self) -> Host:
        if self._host is None:
            raise Unresponsive("the broker is not running: use it in a `with`, or call start()")
        return self._host

    @property
    def _client(self) -> Client:
        host, _, port = self.bootstrap_servers.rpartition(":")
        return Client((host, int(port)))

    # -- topics, records, groups ---------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        """Creates a topic: `create_topic("orders", 3, cleanup_policy="compact")`. Returns its name."""
        self._client.create_topic(name, partitions, keys_of(configs))
        return name

    def produce(
        self,
        topic: str,
        *values: Payload,
        key: Payload = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> list[int]:
        """Writes records, in one batch, and returns their offsets. They are stamped with the broker's time."""
        stamp = self._home.tell("now_ms") if timestamp_ms is None else timestamp_ms
        return self._client.produce(topic, values, key=key, partition=partition, timestamp_ms=stamp, headers=headers)

    def records(self, topic: str, partition: int | None = None, *, committed: bool = False) -> list[Record]:
        """All records that are there now, by partition and offset; `committed`: without those of open and aborted
        transactions."""
        return self._client.records(topic, partition, committed)

    def consume(
        self,
        topic: str,
        count: int = 1,
        *,
        partition: int | None = None,
        committed: bool = False,
        timeout: Length = TIMEOUT_S,
    ) -> list[Record]:
        """The first so many records; waits until they are there, and raises TimeoutError if they do not come."""
        return self._client.consume(topic, count, partition, committed, seconds_of(timeout))

    def wait_group(self, group: str, lag: int = 0, *, topic: str | None = None, timeout: Length = TIMEOUT_S) -> None:
        """Waits until a group has committed all but `lag` records of the topics that it reads: instead of a sleep. A
        group that has committed nothing yet is waited for, too. TimeoutError says how far it is behind."""
        self._client.wait_group(group, lag, topic, seconds_of(timeout))

    # -- faults; those by API are in api_faults.py ---------------------------------------------------------------------

    def cut(self) -> None:
        """The network is cut: connections are closed, and new ones closed at once, until `heal`."""
        self._home.tell("cut")

    def disk_full(self) -> None:
        """Every write fails with ENOSPC. As in Kafka, a log directory that has met that is offline, and a broker that
        has no other one ends: from then on orders raise `HasEnded`, which says so, until `restart`."""
        self._home.tell("disk", is_full=True)

    def slow_disk(self, by: Length = "50ms") -> None:
        """Every write and every fsync takes so much longer."""
        self._home.tell("disk", slowness_s=seconds_of(by))

    def heal(self) -> None:
        """Takes back everything above: the network is mended, the disk has room and is quick, no fault is armed."""
        with suppress(HasEnded):  # it starts anew without a fault
            self._home.tell("heal")

    def flip_bit(self, topic: str, partition: int = 0, *, byte: int = -1, bit: int = 0) -> None:
        """Flips one bit of a partition's newest file: of its last byte, if `byte` says no other. Whoever reads the
        batch finds that its checksum is wrong."""
        flip_bit(f"{self._folder}/{DATA}", topic, partition, byte, bit)

    # -- a process only ------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9. `start` brings it back, with what it had written."""
        self._process("kill").kill()

    def tear(self, topic: str, partition: int = 0, *, lost: int = 1) -> None:
        """After `kill`: the last bytes that it wrote never came to the disk. What `start` finds is a torn batch, which
        was not flushed, and is cut off."""
        if self.is_running:
            raise ValueError("tear() is for a broker that was killed: what it has in its hands is not lost")
        tear(f"{self._folder}/{DATA}", topic, partition, lost)

    def pause(self) -> None:
        """SIGSTOP: connections stay, and nothing is answered."""
        self._process("pause").pause()

    def resume(self) -> None:
        self._process("resume").resume()

    def _process(self, what: str) -> ProcessHost:
        home = self._home
        if not isinstance(home, ProcessHost):
            raise ValueError(f"{what}() is for a broker in a process of its own: Broker(process=True)")
        return home

    # -- a look inside -------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """What it is busy with: open requests, groups, faults, topics and its last log lines. Never raises, never
        hangs."""
        if self._host is None:
            return "the broker is not running"
        try:
            return str(self._host.tell("describe", timeout_s=DESCRIBE_S))
        except Exception as error:
            return f"the broker does not say how it is: {error}\n{self._host.last_words}".rstrip()

    def tell(self, order: str, **details: Any) -> Any:
        """An order to the node itself; `Clock` and `Chaos` speak so."""
        return self._home.tell(order, **details)


def keys_of(configs: Mapping[str, object]) -> dict[str, str]:
    """Python's keywords as Kafka's keys: num_partitions=3 is num.partitions=3, and True is true."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }
