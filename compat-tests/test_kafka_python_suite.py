"""kafka-python's own integration tests, as its source distribution on PyPI carries them, with trioka as their broker.

The distribution is fetched once, checked against its SHA-256, and unpacked anew for every run. It comes without two
files that its tests import, a mark of a package and the class of a broker that somebody else has started; they are
written beside the others. What the tests say of their broker's configuration stands in `SETTINGS`.

Left out are the tests of TLS and SASL, which want brokers of their own.

This version of the client has a race of its own, whatever the broker: a consumer that subscribes while the response to
its bootstrap request is on its way takes that response, which names no topic, for the metadata of its topics, and does
not ask again for five minutes. A test that failed with the trace of this race in its log is run again.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from broker_under_test import BROKERS, Node
from oracle import ApacheKafka
from toolchains import unavailable
from trioka_process import TriokaProcess

from trioka.pipeline.installation.cache import Unavailable, Unreachable, folder, locked

VERSION = "3.0.12"
SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
FETCH_TIMEOUT_SECONDS = 300
RUN_TIMEOUT_SECONDS = 480
LOG_TAIL_CHARS = 12_000
WORKERS = 4  # the tests wait more than they work
LOST_SUBSCRIPTION = "Updated partition assignment: []"
RUNS = 4  # at most
TESTS = 55  # of which none is skipped, for a broker of this version

# Node 0 is given partitions, a session lasts for three seconds, and a group is expected to settle without delay. A
# topic that comes into being by itself has a second partition; without one, a test commits to it again and again. The
# authorizer is the one that kafka-python's own broker has.
SETTINGS = {
    "node.id": 0,
    "num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
# Apache Kafka, as these tests start it: it answers before it has heard of an access control list, and its advertised
# address is not said to be configured.
NOT_OF_KAFKA = (
    "test_admin_integration.py::test_create_describe_delete_acls",
    "test_admin_integration.py::test_describe_configs_broker_resource_returns_configs",
)
BESIDE = {
    "pytest.ini": "[pytest]\n",
    "test/__init__.py": "",
    "test/service.py": """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
""",
}


def sdist() -> Path:
    """The source distribution, fetched if need be, with the bytes that are expected."""
    path = folder("sdists") / f"kafka_python-{VERSION}.tar.gz"
    with locked(path.name):
        if not _matches(path):
            _fetch(path)
    return path


def _matches(path: Path) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256


def _fetch(path: Path) -> None:
    beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=".fetching-"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", "kafka-python", "--dest", str(beside), f"kafka-python=={VERSION}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS)
        fetched = beside / path.name
        if not _matches(fetched):
            raise Unavailable(f"{path.name} is not the file that it should be.")
        fetched.rename(path)
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        raise Unreachable(f"pip could not fetch kafka-python {VERSION}: {message}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """The unpacked tests, complete."""
    try:
        with tarfile.open(sdist()) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # which came with Python 3.11.4
            archive.extractall(tmp_path)
    except Unavailable as missing:
        unavailable(missing)
    root = tmp_path / f"kafka_python-{VERSION}"
    for name, text in BESIDE.items():
        (root / name).write_text(text)
    return root


@pytest.fixture(params=BROKERS)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    if request.param == "trioka":
        with TriokaProcess(tmp_path, SETTINGS) as broker:
            yield Node(name="trioka", bootstrap=broker.bootstrap)
    else:
        request.getfixturevalue("apache_kafka")
        with ApacheKafka(SETTINGS, parent=tmp_path) as kafka:
            yield Node(name="kafka", bootstrap=kafka.bootstrap)


def test_kafka_pythons_own_integration_tests_pass(node: Node, suite: Path) -> None:
    left_out = list(NOT_OF_KAFKA) if node.name == "kafka" else []
    outcomes = run(suite, node, left_out)
    assert [name for name, outcome in outcomes.items() if outcome == "failure"] == []
    assert list(outcomes.values()).count("passed") == TESTS - len(left_out)


def run(suite: Path, node: Node, left_out: list[str]) -> dict[str, str]:
    """Every test by its name, with how it ended."""
    outcomes: dict[str, str] = {}
    selected: list[str] = []
    for _ in range(RUNS):
        cases = _run_once(suite, node, left_out, selected)
        outcomes |= {_name(case): _outcome(case) for case in cases}
        selected = [_node_id(case) for case in cases if _outcome(case) == "failure" and _lost_its_subscription(case)]
        if not selected:
            break
    return outcomes


def _run_once(suite: Path, node: Node, left_out: list[str], selected: list[str]) -> list[ElementTree.Element]:
    report = suite / "report.xml"
    report.unlink(missing_ok=True)
    places = [f"--ignore=test/integration/test_{kind}_integration.py" for kind in ("sasl", "ssl")]
    places += [f"--deselect=test/integration/{name}" for name in left_out]
    # In the order of their files: two of them write to the same topic, and the first must not read the second's.
    in_order = ["-n", str(WORKERS), "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "-q", *in_order, "-p", "no:cacheprovider", "-W", "ignore"]
    command += [f"--junitxml={report}", "-o", "junit_logging=all", "-o", "log_level=INFO"]
    command += selected or [*places, "test/integration"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"KAFKA_URI": f"kafka://{node.bootstrap}", "KAFKA_VERSION": "4.3.1", "KAFKA_ROOT": str(suite)}
    done = subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
    )
    print(done.stdout[-LOG_TAIL_CHARS:], done.stderr[-LOG_TAIL_CHARS:])  # shown if something failed
    assert report.exists()
    return list(ElementTree.parse(report).iter("testcase"))


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _node_id(case: ElementTree.Element) -> str:
    return f"{str(case.get('classname')).replace('.', '/')}.py::{case.get('name')}"


def _lost_its_subscription(case: ElementTree.Element) -> bool:
    return any(LOST_SUBSCRIPTION in text for text in case.itertext())


def _outcome(case: ElementTree.Element) -> str:
    tags = {element.tag for element in case}
    if tags & {"failure", "error"}:
        return "failure"
    return "skipped" if "skipped" in tags else "passed"
