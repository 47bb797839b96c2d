"""The pytest plugin, in pytest processes of its own: fixtures, reports of failures, and several workers."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

FIXTURES = """
from pathlib import Path

import pytest

FOLDERS = Path({folders!r})


@pytest.fixture(autouse=True)
def note_the_folder(request):
    if "kafka" in request.fixturenames:
        (FOLDERS / request.node.name).write_text(request.getfixturevalue("kafka")._folder)


@pytest.mark.parametrize("number", range(4))
def test_a_broker_is_fresh(kafka, number):
    assert kafka.produce("orders", "x") == [0]


def test_the_broker_of_the_session_is_shared(kafka_session, kafka_topic):
    assert kafka_topic.kafka is kafka_session
    assert kafka_topic.bootstrap_servers == kafka_session.bootstrap_servers
    assert kafka_session.produce(kafka_topic, "x") == [0]


@pytest.mark.parametrize("number", range(2))
def test_each_test_has_its_topic(kafka_topic, number):
    assert kafka_topic.kafka.produce(kafka_topic, "x") == [0]


def test_a_topic_is_on_the_broker_that_the_test_has(kafka, kafka_topic):
    assert kafka_topic.kafka is kafka
    assert kafka.records(kafka_topic) == []


@pytest.mark.kafka(num_partitions=3, message_max_bytes=1000)
def test_a_marker_says_what_the_broker_is_like(kafka):
    kafka.produce("orders", "x", partition=2)
    with pytest.raises(Exception, match="(?i)larger|large"):
        kafka.produce("orders", "x" * 2000)


@pytest.mark.kafka(nodes=2, num_partitions=3)
def test_a_cluster_has_as_many_nodes_as_the_marker_says(kafka_cluster):
    (FOLDERS / "cluster").write_text(kafka_cluster._folder)
    assert kafka_cluster.running == [1, 2]


def test_the_clock_and_chaos_are_those_of_the_broker(kafka, kafka_clock, kafka_chaos):
    assert kafka_clock is kafka.clock
    assert kafka_chaos.broker is kafka
"""

NOTHING = """
import sys


def test_without_a_fixture_nothing_is_loaded():
    assert "trioka.testing.plugin" in sys.modules
    for name in ("trioka.broker", "trioka.testing.broker", "trioka.protocol"):
        assert name not in sys.modules
"""

FAILURES = """
import pytest
from kafka import KafkaConsumer


@pytest.fixture
def consumer(kafka):
    kafka.produce("orders", "x")
    where = kafka.bootstrap_servers
    consumer = KafkaConsumer("orders", bootstrap_servers=where, group_id="billing", client_id="hanging")
    yield consumer
    kafka.heal()
    kafka.clock.advance("1h")
    consumer.close(autocommit=False)


def test_a_client_that_hangs(kafka, consumer):
    while "billing: Stable" not in kafka.describe():
        consumer.poll(100)
    hanging = kafka.delay("Fetch", "1h", count=None)
    while not hanging.strikes:
        consumer.poll(100)
    pytest.fail("too long")  # which pytest-timeout does, or an alarm of the user


def test_a_storm(kafka_chaos):
    with kafka_chaos.storm(seed=4711):
        assert False


def test_a_shared_broker(kafka_topic):
    assert False


def test_a_cluster(kafka_cluster):
    kafka_cluster.kill(2)
    kafka_cluster.cut(1, 3)
    assert False


def test_that_has_none():
    assert False


@pytest.mark.kafka(3)
def test_a_marker_without_a_name(kafka):
    pass


@pytest.mark.kafka(num_partitions="many")
def test_a_broker_that_does_not_start(kafka):
    pass
"""


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--strict-markers", *arguments
    )


def test_every_fixture_works_with_several_workers_and_leaves_nothing(pytester: pytest.Pytester) -> None:
    folders = pytester.mkdir("folders")
    result = run(pytester, FIXTURES.format(folders=str(folders)), "-n", "2", "-W", "error")
    result.assert_outcomes(passed=11)
    noted = [Path(file.read_text()) for file in folders.iterdir()]
    assert len(set(noted)) == len(noted) == 8
    assert [folder for folder in noted if folder.exists()] == []


def test_a_failure_is_reported_with_what_the_broker_was_busy_with(pytester: pytest.Pytester) -> None:
    result = run(pytester, FAILURES, "-W", "ignore")
    result.assert_outcomes(failed=5, errors=2)
    message = str(result.stdout)
    pattern = r"_{3,} (?:ERROR at setup of )?(test_\w+) _{3,}\n(.*?)(?=\n_{3,} |\n=====)"
    reports = dict(re.findall(pattern, message, re.DOTALL))
    hanging = reports["test_a_client_that_hangs"]
    assert "too long" in hanging
    assert "- trioka broker -" in hanging
    assert re.search(r"open requests:\n(  .*\n)*  Fetch v\d+ of 'hanging' \(127\.0\.0\.1:\d+\), for \d", hanging)
    assert re.search(r"groups:\n  billing: Stable, 1 members: hanging \(classic\)", hanging)
    assert re.search(r"faults:\n  Fetch waits for 3600 s: struck \d+ times", hanging)
    assert re.search(r"  orders: 1 partitions, 1 records", hanging)
    assert "kafka_chaos.storm(seed=4711)" in reports["test_a_storm"]
    assert "topic-1: 1 partitions" in reports["test_a_shared_broker"]
    assert re.search(r"- trioka broker -.*node 2 does not run\n.*between 1 and 3", reports["test_a_cluster"], re.DOTALL)
    assert "trioka" not in reports["test_that_has_none"]
    assert "takes keywords only" in reports["test_a_marker_without_a_name"]
    assert "num.partitions" in reports["test_a_broker_that_does_not_start"]


WRONG_MARKERS = """
import pytest


@pytest.mark.kafka(nodes=3)
def test_nodes_of_a_broker(kafka):
    pass


@pytest.mark.kafka(tls=True)
def test_tls_of_a_cluster(kafka_cluster):
    pass


@pytest.mark.kafka(partitions=3)
def test_partitions_of_a_broker(kafka):
    pass


@pytest.mark.kafka_topic(partitions=3)
def test_a_topic_marker_without_the_topic(kafka):
    pass


@pytest.mark.kafka_topic(num_partitions=3)
def test_a_broker_key_of_a_topic(kafka_topic):
    pass


@pytest.mark.kafka(num_partitions=3)
def test_a_marker_beside_a_shared_broker(kafka_topic):
    pass
"""


def test_a_wrong_marker_names_the_fixture_that_it_belongs_to(pytester: pytest.Pytester) -> None:
    result = run(pytester, WRONG_MARKERS)
    result.assert_outcomes(errors=6)
    result.stdout.fnmatch_lines(
        [
            "*nodes=*belongs to the fixture `kafka_cluster`; this is `kafka`*",
            "*tls=*belongs to the fixture `kafka`; this is `kafka_cluster`*",
            "*partitions=*configures no broker*`kafka_topic`*",
            "*kafka_topic belongs to the fixture `kafka_topic`, which this test lacks*",
            "*takes partitions=3; num_partitions belongs to a broker*",
            "*belongs to the fixtures `kafka` and `kafka_cluster`*`kafka_session_configs`*",
        ]
    )


SHARED = """
import pytest

pytestmark = pytest.mark.kafka_topic(partitions=2)


@pytest.fixture(scope="session")
def kafka_session_configs():
    return {"num_partitions": 3}


@pytest.fixture(scope="module")
def kafka_module_configs():
    return {"num_partitions": 4}


def test_the_session_has_its_settings(kafka_session):
    kafka_session.produce("a", "x", partition=2)


@pytest.mark.parametrize("number", range(2))
def test_the_module_has_its_settings_and_one_broker(kafka_module, number):
    assert kafka_module.produce("b", "x", partition=3) == [number]


def test_a_topic_is_on_the_broker_of_the_module(kafka_module, kafka_topic):
    assert kafka_topic.kafka is kafka_module
    kafka_module.produce(kafka_topic, "x", partition=1)


def test_a_clock_is_that_of_a_broker_of_the_test(kafka_module, kafka_clock, kafka):
    assert kafka_clock is kafka.clock is not kafka_module.clock


def test_a_failure(kafka_module):
    assert False
"""


def test_brokers_of_a_session_and_of_a_module_have_settings(pytester: pytest.Pytester) -> None:
    result = run(pytester, SHARED)
    result.assert_outcomes(passed=5, failed=1)
    assert "- trioka broker -" in str(result.stdout) and "b: 4 partitions" in str(result.stdout)


def test_a_session_without_a_broker_loads_none_and_knows_the_marker(pytester: pytest.Pytester) -> None:
    run(pytester, NOTHING).assert_outcomes(passed=1)
    markers = str(run(pytester, NOTHING, "--markers").stdout)
    assert "@pytest.mark.kafka(process=False, tls=False, sasl=False, **configs)" in markers
