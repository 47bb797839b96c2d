"""A Kafka broker for a test, as a context manager for any test framework.

    with Broker(num_partitions=3) as kafka:
        client = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)

A keyword is a key of server.properties, with underscores for dots. The broker runs in a thread of this process, or with
`process=True` in its own process, which can be killed and paused. Its data is in memory, its port is any free one, and
everything is removed at the end of the block. Without a block, use `start` and `close`.

    with Broker(tls=True, sasl=True) as kafka:
        client = KafkaProducer(**kafka.client_config("kafka-python"))

With `tls` it has a certificate for localhost, signed by its own authority; with `sasl` clients authenticate, and ACLs
are enforced. The user of `client_config` is a super user.

Every method here blocks until it is done, also when it is called from asyncio or trio.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from trioka.cli.node.secured import CLIENTS, Access

from . import temp_dirs
from .api_faults import ApiFaults
from .client import Client, Record
from .clock_control import Clock
from .disks.corruption import flip_bit, tear
from .faults import Length, seconds_of
from .process import ProcessHost
from .runner import HasEnded, Host, Unresponsive
from .topic_calls import TopicCalls

if TYPE_CHECKING:
    from .registry import TestRegistry
    from .secured import Secured

HOST: Final = "127.0.0.1"
LISTENER: Final = "PLAINTEXT"  # the name of the listener with every security protocol
DESCRIBE_S: Final = 2.0  # time limit of a broker's own description
DATA, WORDS = "data", "words.txt"  # in the broker's folder: the log directory, and the output of its process


class Broker(ApiFaults, TopicCalls):
    def __init__(self, *, process: bool = False, tls: bool = False, sasl: bool = False, **configs: object) -> None:
        self._settings = keys_of(configs)
        self._is_tls, self._is_sasl = tls, sasl
        self._secured: Secured | None = None
        self._is_process = process
        self._folder: str | None = None
        self._host: Host | None = None
        self._registry: TestRegistry | None = None
        self._port = 0
        self.clock = Clock(self)

    def __repr__(self) -> str:
        return f"<trioka.testing.Broker {f'{HOST}:{self._port}' if self.is_running else 'not running'}>"

    # -- start and stop
    # -------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> "Broker":
        """Start the broker; after `stop` or `kill`, start it again with the same data at the same port."""
        if self.is_running:
            return self
        try:
            if self._folder is None:
                self._folder = temp_dirs.new_folder()
            if self._host is None:
                self._host = self._new_host(self._folder)
            self._host.stop()  # clean up after a broker that died
            is_new, self._port = self._port == 0, self._host.start(self._port)
            if is_new and self._secured is not None:
                self._secured.create_user(HOST, self._port)
        except BaseException:
            self.close()
            raise
        return self

    def _new_host(self, folder: str) -> Host:
        settings = self._settings
        if self._is_tls or self._is_sasl:
            from .secured import Secured

            self._secured = Secured(folder, tls=self._is_tls, sasl=self._is_sasl)
            settings = {**self._secured.settings(LISTENER), **settings}
        if self._is_process:
            return ProcessHost(f"{folder}/{DATA}", f"{folder}/{WORDS}", settings)
        from .thread import ThreadHost

        return ThreadHost(f"{folder}/{DATA}", settings)

    def stop(self) -> None:
        """Stop the broker cleanly. Its data stays, for `start`, until `close`."""
        if self._host is not None:
            self._host.stop()

    def restart(self) -> None:
        """Stop cleanly and start, with the same data at the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker and remove its data."""
        registry, self._registry = self._registry, None
        if registry is not None:
            registry.stop()
        try:
            self.stop()
        finally:
            self._host, self._port, self._secured = None, 0, None
            folder, self._folder = self._folder, None
            if folder is not None:
                temp_dirs.remove(folder)

    @property
    def is_running(self) -> bool:
        return self._host is not None and self._host.is_running

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, host:port. It stays the same after a restart."""
        if self._port == 0:
            raise Unresponsive("the broker is not running: use it in a `with`, or call start()")
        return f"{HOST}:{self._port}"

    @property
    def registry_url(self) -> str:
        """The address of a schema registry on this broker, for the serializers of Confluent's clients and others. It is
        started by the first use, in a process of its own, and needs `trioka[gateway]`. With `sasl` the address contains
        the login.
        """
        if self._registry is None:
            from .registry import TestRegistry

            servers, folder = self.bootstrap_servers, self._folder
            assert folder is not None
            self._registry = TestRegistry(servers, folder, None if self._secured is None else self._secured.access)
        return self._registry.url

    @property
    def _home(self) -> Host:
        if self._host is None:
            raise Unresponsive("the broker is not running: use it in a `with`, or call start()")
        return self._host

    def _new_client(self) -> Client:
        host, _, port = self.bootstrap_servers.rpartition(":")
        return Client((host, int(port))) if self._secured is None else self._secured.client(host, int(port))

    def client_config(self, client: str = "java") -> dict[str, Any]:
        """The settings of a client, with its bootstrap servers: of "java" (also Spark's, and client.properties),
        "confluent-kafka" (of all clients that use librdkafka) or "kafka-python".
        """
        if client not in CLIENTS:
            raise ValueError(f"client_config() knows {', '.join(CLIENTS)}, and not '{client}'")
        access = Access() if self._secured is None else self._secured.access
        key = "bootstrap_servers" if client == "kafka-python" else "bootstrap.servers"
        return {key: self.bootstrap_servers, **access.client_config(client)}

    # -- topics, records, groups ---------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        """Create a topic: `create_topic("orders", 3, cleanup_policy="compact")`. Returns its name."""
        self._new_client().create_topic(name, partitions, keys_of(configs))
        return name

    def records(self, topic: str, partition: int | None = None, *, committed: bool = False) -> list[Record]:
        """Current records by partition and offset; `committed` leaves out those of open and aborted transactions."""
        return self._new_client().records(topic, partition, committed)

    # -- faults; those by API are in api_faults.py ---------------------------------------------------------------------

    def cut(self) -> None:
        """Cut the network: close connections, and close new ones at once, until `heal`."""
        self._home.call("cut")

    def disk_full(self) -> None:
        """Fail every write with ENOSPC. As in Kafka, a log directory goes offline at its first such error, and a broker
        without another one ends: from then on commands raise `HasEnded` with that reason, until `restart`.
        """
        self._home.call("disk", is_full=True)

    def slow_disk(self, by: Length = "50ms") -> None:
        """Delay every write and every fsync by this time."""
        self._home.call("disk", slowness_s=seconds_of(by))

    def heal(self) -> None:
        """Undo all faults above: restore the network, the disk's space and its speed, and disarm every fault."""
        with suppress(HasEnded):  # it starts again without a fault
            self._home.call("heal")

    def flip_bit(self, topic: str, partition: int = 0, *, byte: int = -1, bit: int = 0) -> None:
        """Flip one bit of a partition's newest file: of its last byte, unless `byte` is given. A client that reads the
        batch finds a wrong checksum.
        """
        flip_bit(f"{self._folder}/{DATA}", topic, partition, byte, bit)

    # -- with process=True only ----------------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9. `start` starts it again with the data that it had written."""
        self._process("kill").kill()

    def tear(self, topic: str, partition: int = 0, *, lost: int = 1) -> None:
        """After `kill`: drop the last bytes that it wrote, as if they had not reached the disk. `start` then finds a
        torn batch, which was not flushed, and truncates it.
        """
        if self.is_running:
            raise ValueError("tear() is for a broker that was killed: what it has in its hands is not lost")
        tear(f"{self._folder}/{DATA}", topic, partition, lost)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and no request gets a response."""
        self._process("pause").pause()

    def resume(self) -> None:
        self._process("resume").resume()

    def _process(self, what: str) -> ProcessHost:
        home = self._home
        if not isinstance(home, ProcessHost):
            raise ValueError(f"{what}() is for a broker in a process of its own: Broker(process=True)")
        return home

    # -- inspection ----------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """The state of the broker: open requests, groups, faults, topics and its last log lines. Never raises, never
        hangs.
        """
        if self._host is None:
            return "the broker is not running"
        try:
            return str(self._host.call("describe", timeout_s=DESCRIBE_S))
        except Exception as error:
            return f"the broker did not report its state: {error}\n{self._host.log_tail}".rstrip()

    def call(self, order: str, **details: Any) -> Any:
        """Send a command to the node; `Clock` and `Chaos` use this."""
        return self._home.call(order, **details)


def keys_of(configs: Mapping[str, object]) -> dict[str, str]:
    """Python's keywords as Kafka's keys: num_partitions=3 becomes num.partitions=3, and True becomes true."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }
