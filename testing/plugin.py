"""Fixtures for pytest, available after `pip install trioka[pytest]`.

    kafka            a broker, fresh for each test
    kafka_session    a broker for the whole session (for each worker of xdist, one)
    kafka_cluster    several brokers, fresh for each test, which can be killed and disconnected
    kafka_topic      a topic with a name of its own: on `kafka` or `kafka_cluster` if the test has one, else on
                     `kafka_session`
    new_kafka_topic  makes more such topics: new_kafka_topic(partitions=3, cleanup_policy="compact")
    kafka_clock      the clock of `kafka`, or of `kafka_cluster` if the test has that: kafka_clock.advance("8d")
    kafka_chaos      its faults: kafka_chaos.fail("Produce", "NOT_LEADER_OR_FOLLOWER"), .storm(seed=7) …

`@pytest.mark.kafka(num_partitions=3, process=True)` configures `kafka`, `@pytest.mark.kafka(tls=True, sasl=True)` makes
clients use TLS and a login (`kafka.client_config("kafka-python")` has both), and `@pytest.mark.kafka(nodes=5)`
configures `kafka_cluster`. `@pytest.mark.kafka_topic(partitions=3, cleanup_policy="compact")` configures the topic of
`kafka_topic`. The report of a failed test contains the state of its brokers and the seeds of its storms.

pytest loads this file in every session where trioka is installed. So it imports only pytest, and a broker only when a
fixture needs one.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .broker import Broker
    from .chaos import Chaos
    from .clock_control import Clock
    from .cluster import Cluster

SECTION: Final = "trioka broker"
STORMS: Final = "trioka storms"

_brokers: Final = pytest.StashKey["list[Broker | Cluster]"]()
_chaos: Final = pytest.StashKey["Chaos"]()
_numbers: Final = count(1)


class Topic(str):
    """The name of an existing topic, with methods for it."""

    kafka: "Broker | Cluster"

    def __new__(cls, name: str, kafka: "Broker | Cluster") -> "Topic":
        topic = super().__new__(cls, name)
        topic.kafka = kafka
        return topic

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """A copy is only the name."""
        return str, (str(self),)

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka(process=False, tls=False, sasl=False, **configs): what the broker of the fixture `kafka` is to be like; "
        "a keyword is a key of server.properties, with underscores for dots. Of the fixture `kafka_cluster`: "
        "kafka(nodes=3, **configs)",
    )
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=1, **configs): the topic of the fixture `kafka_topic`; a keyword is a key of a topic, "
        "with underscores for dots",
    )


def _new_broker(request: pytest.FixtureRequest, **configs: object) -> "Broker":
    from .broker import Broker

    broker = Broker(**configs)  # type: ignore[arg-type]
    request.node.stash.setdefault(_brokers, []).append(broker)
    return broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A Kafka broker of this test alone, at `kafka.bootstrap_servers`."""
    with _new_broker(request, **_marked(request)) as broker:
        yield broker


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A Kafka cluster of this test alone, at `kafka_cluster.bootstrap_servers`. It has three nodes, if no marker says
    otherwise."""
    from .cluster import Cluster

    cluster = Cluster(**_marked(request))
    request.node.stash.setdefault(_brokers, []).append(cluster)
    with cluster:
        yield cluster


def _marked(request: pytest.FixtureRequest, name: str = "kafka", example: str = "num_partitions=3") -> dict[str, Any]:
    marker = request.node.get_closest_marker(name)
    if marker is not None and marker.args:
        raise pytest.UsageError(f"@pytest.mark.{name} takes keywords only, such as {example}")
    return {} if marker is None else dict(marker.kwargs)


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A Kafka broker that all tests of the session share."""
    with _new_broker(request) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Topic:
    """A topic of this test alone: its name, with `.kafka` and `.bootstrap_servers`."""
    return _new_topic(request, **_marked(request, "kafka_topic", "partitions=3"))


@pytest.fixture
def new_kafka_topic(request: pytest.FixtureRequest) -> Callable[..., Topic]:
    """Makes topics of this test alone: `new_kafka_topic(partitions=3, cleanup_policy="compact")`."""
    return partial(_new_topic, request)


def _new_topic(request: pytest.FixtureRequest, partitions: int = 1, **configs: Any) -> Topic:
    home = _home_of(request, "kafka_session")
    return Topic(home.create_topic(f"topic-{next(_numbers)}", partitions, **configs), home)


@pytest.fixture
def kafka_clock(request: pytest.FixtureRequest) -> "Clock":
    """The clock of `kafka` or `kafka_cluster`, which can be advanced."""
    return _home_of(request, "kafka").clock


@pytest.fixture
def kafka_chaos(request: pytest.FixtureRequest) -> "Chaos":
    """Faults of `kafka` or `kafka_cluster`, and storms of them."""
    from .chaos import Chaos

    chaos = request.node.stash[_chaos] = Chaos(_home_of(request, "kafka"))
    return chaos


def _home_of(request: pytest.FixtureRequest, otherwise: str) -> "Broker | Cluster":
    """The broker or cluster of a topic, clock or chaos fixture: the one that the test uses beside it."""
    named = request.node.fixturenames
    name = next((each for each in ("kafka", "kafka_cluster") if each in named), None)
    if name is None:
        name = "kafka" if {"kafka_clock", "kafka_chaos"}.intersection(named) else otherwise
    home: Broker | Cluster = request.getfixturevalue(name)
    return home


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the brokers of a failed test to its report. They still run: fixtures end after the report is
    made.
    """
    report = yield
    if report.failed:
        chaos = item.stash.get(_chaos, None)
        if chaos is not None and chaos.storms:
            report.sections.append((STORMS, chaos.summary))
        for broker in _brokers_of(item):
            report.sections.append((SECTION, f"{broker}\n{broker.describe()}"))
    return report


def _brokers_of(item: pytest.Item) -> "list[Broker | Cluster]":
    names = getattr(item, "fixturenames", ())
    found = item.stash.get(_brokers, [])
    if "kafka_session" in names or ({"kafka_topic", "new_kafka_topic"}.intersection(names) and "kafka" not in names):
        found = [*found, *item.session.stash.get(_brokers, [])]
    return [broker for broker in found if broker.is_running]
