"""Fixtures for pytest, available after `pip install trioka[pytest]`.

    kafka            a broker, fresh for each test
    kafka_session    a broker for the whole session (for each worker of xdist, one)
    kafka_module     a broker that the tests of one module share
    kafka_cluster    several brokers, fresh for each test, which can be killed and disconnected
    kafka_topic      a topic with a name of its own: on `kafka`, `kafka_cluster` or `kafka_module` if the test has one,
                     else on `kafka_session`
    new_kafka_topic  makes more such topics: new_kafka_topic(partitions=3, cleanup_policy="compact")
    kafka_clock      the clock of `kafka`, or of `kafka_cluster` if the test has that: kafka_clock.advance("8d")
    kafka_chaos      its faults: kafka_chaos.fail("Produce", "NOT_LEADER_OR_FOLLOWER"), .storm(seed=7) …

`@pytest.mark.kafka(num_partitions=3, process=True)` configures `kafka`, `@pytest.mark.kafka(tls=True, sasl=True)` makes
clients use TLS and a login (`kafka.client_config("kafka-python")` has both), and `@pytest.mark.kafka(nodes=5)`
configures `kafka_cluster`. `@pytest.mark.kafka_topic(partitions=3, cleanup_policy="compact")` configures the topic of
`kafka_topic`. Shared brokers are configured by fixtures that a project overrides: `kafka_session_configs` and
`kafka_module_configs` return the same keywords as a dictionary. The report of a failed test contains the state of its
brokers and the seeds of its storms.

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

BROKER_ONLY: Final = ("process", "tls", "sasl")  # keywords of Broker that Cluster does not have
OWN_HOMES: Final = ("kafka", "kafka_cluster")  # brokers of one test
OWN_BROKERS: Final = (*OWN_HOMES, "kafka_clock", "kafka_chaos")  # fixtures that start one; the marker configures it


class Topic(str):
    """The name of an existing topic, with methods that read and write it."""

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
    configs = _marked(request)
    if "nodes" in configs:
        raise pytest.UsageError("@pytest.mark.kafka(nodes=…) belongs to the fixture `kafka_cluster`; this is `kafka`")
    with _new_broker(request, **configs) as broker:
        yield broker


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A Kafka cluster of this test alone, at `kafka_cluster.bootstrap_servers`. It has three nodes, if no marker says
    otherwise."""
    from .cluster import Cluster

    configs = _marked(request)
    if wrong := [each for each in BROKER_ONLY if each in configs]:
        raise pytest.UsageError(
            f"@pytest.mark.kafka({wrong[0]}=…) belongs to the fixture `kafka`; this is `kafka_cluster`"
        )
    cluster = Cluster(**configs)
    request.node.stash.setdefault(_brokers, []).append(cluster)
    with cluster:
        yield cluster


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The keywords of the marker `kafka`, for `kafka` and `kafka_cluster`."""
    configs = _keywords_of(request, "kafka", "num_partitions=3")
    if "partitions" in configs:
        raise pytest.UsageError(
            "@pytest.mark.kafka(partitions=…) configures no broker: `num_partitions` is the default of new topics, and "
            "the topic of the fixture `kafka_topic` has @pytest.mark.kafka_topic(partitions=…)"
        )
    if "kafka_topic" not in request.fixturenames and _is_on_test(request, "kafka_topic"):
        raise pytest.UsageError("@pytest.mark.kafka_topic belongs to the fixture `kafka_topic`, which this test lacks")
    return configs


def _keywords_of(request: pytest.FixtureRequest, name: str, example: str) -> dict[str, Any]:
    marker = request.node.get_closest_marker(name)
    if marker is not None and marker.args:
        raise pytest.UsageError(f"@pytest.mark.{name} takes keywords only, such as {example}")
    return {} if marker is None else dict(marker.kwargs)


def _is_on_test(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether the test itself has the marker. One on a module or class may be there for other tests."""
    return any(marker.name == name for marker in request.node.own_markers)


@pytest.fixture(scope="session")
def kafka_session_configs() -> dict[str, Any]:
    """The keywords of `Broker` for `kafka_session`. Override it in conftest.py."""
    return {}


@pytest.fixture(scope="module")
def kafka_module_configs() -> dict[str, Any]:
    """The keywords of `Broker` for `kafka_module`. Override it in a test module or in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest, kafka_session_configs: dict[str, Any]) -> "Iterator[Broker]":
    """A Kafka broker that all tests of the session share, configured by `kafka_session_configs`."""
    with _new_broker(request, **kafka_session_configs) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest, kafka_module_configs: dict[str, Any]) -> "Iterator[Broker]":
    """A Kafka broker that the tests of one module share, configured by `kafka_module_configs`."""
    with _new_broker(request, **kafka_module_configs) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Topic:
    """A topic of this test alone: its name, with `.kafka` and `.bootstrap_servers`."""
    configs = _keywords_of(request, "kafka_topic", "partitions=3")
    if "num_partitions" in configs:
        raise pytest.UsageError("@pytest.mark.kafka_topic takes partitions=3; num_partitions belongs to a broker")
    return _new_topic(request, **configs)


@pytest.fixture
def new_kafka_topic(request: pytest.FixtureRequest) -> Callable[..., Topic]:
    """Makes topics of this test alone: `new_kafka_topic(partitions=3, cleanup_policy="compact")`."""
    return partial(_new_topic, request)


def _new_topic(request: pytest.FixtureRequest, partitions: int = 1, **configs: Any) -> Topic:
    if not set(OWN_BROKERS).intersection(request.fixturenames) and _is_on_test(request, "kafka"):
        raise pytest.UsageError(
            "@pytest.mark.kafka belongs to the fixtures `kafka` and `kafka_cluster`, and this test has neither; "
            "shared brokers are configured by `kafka_session_configs` and `kafka_module_configs`"
        )
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
    needs_own = not {"kafka_clock", "kafka_chaos"}.isdisjoint(named)
    homes = OWN_HOMES if needs_own else (*OWN_HOMES, "kafka_module")
    name = next((each for each in homes if each in named), "kafka" if needs_own else otherwise)
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
    if "kafka_module" in names and (module := item.getparent(pytest.Module)) is not None:
        found = [*found, *module.stash.get(_brokers, [])]
    if "kafka_session" in names or ({"kafka_topic", "new_kafka_topic"}.intersection(names) and "kafka" not in names):
        found = [*found, *item.session.stash.get(_brokers, [])]
    return [broker for broker in found if broker.is_running]
