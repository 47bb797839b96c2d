"""Makes docs/COMPATIBILITY.md: runs every client's tests, records the clients' requests, and writes both down.

    python compat-tests/compatibility.py               # `make compatibility`; some minutes
    python compat-tests/compatibility.py --page        # only the page, from what was found before

The results are kept in docs/compatibility.json, so that the page can be made again without the clients, and a test can
check that it still matches the served versions.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from importlib import import_module
from pathlib import Path
from textwrap import fill

from trioka.broker.api import SUPPORTED_APIS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
FOUND = ROOT / "docs" / "compatibility.json"
TESTS = ("test_clients_admin.py", "test_clients_consume.py", "test_clients_produce.py", "test_clients_groups.py")
CLIENTS = ("java", "java-2.8", "confluent-kafka", "kafka-python", "aiokafka", "franz-go", "sarama", "kafkajs")
HOSTED = {"sarama-default": "sarama"}  # the same client, with another setting
HEAD = """# Compatibility

Which clients were tried, which requests they sent, and in which versions. `make compatibility` writes this page from
the tests of clients in compat-tests/: each client is the one of its registry, unmodified, and a proxy between it and
the broker recorded every request.

| client | version | tests passed | skipped: what the client itself lacks |
|---|---|---|---|
"""
APIS = """
## Requests

The range is what trioka serves and returns in ApiVersions. Below each client are the versions that it chose. An empty
cell says nothing about the client: these tests do not use what it needs the request for.

"""
UNUSED = """Served too, and not used by these tests: {apis}."""
OTHER_TESTS = """
Other tests use them: those of transactions (`compat-tests/test_exactly_once.py`), of logins and access control
(`compat-tests/test_sasl.py`, `compat-tests/test_acls.py`), and of Kafka's command-line tools, Kafka Connect, Kafka
Streams and Spark's connector, which use the Java client; the comparisons with Apache Kafka
(`compat-tests/test_responses_topics.py` and its neighbours); and `tests/broker/handlers/`.
"""
PINS = {  # where the version of a client is pinned
    "java": ("compat-tests/jars.txt", r"org\.apache\.kafka:kafka-clients:(\S+)"),
    "java-2.8": ("compat-tests/toolchains.py", r'version="(2\.8\.\d+)"'),
    "confluent-kafka": ("requirements/dev.txt", r"(?m)^confluent-kafka==(\S+)"),
    "kafka-python": ("requirements/dev.txt", r"(?m)^kafka-python==(\S+)"),
    "aiokafka": ("requirements/dev.txt", r"(?m)^aiokafka==(\S+)"),
    "franz-go": ("compat-tests/clients/go/go.mod", r"twmb/franz-go v(\S+)"),
    "sarama": ("compat-tests/clients/go/go.mod", r"IBM/sarama v(\S+)"),
    "kafkajs": ("compat-tests/clients/kafkajs/package.json", r'"kafkajs": "(\S+)"'),
}


def run() -> None:
    """Runs the tests and keeps what they found."""
    with tempfile.TemporaryDirectory() as folder:
        heard, report = Path(folder) / "heard.json", Path(folder) / "report.xml"
        paths = [str(ROOT / "compat-tests" / name) for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--junit-xml={report}", *paths]
        ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "TRIOKA_HEARD": str(heard)})
        if ended.returncode:
            sys.exit("a test failed, so the page stays as it is")
        found = {"requests": json.loads(heard.read_text()), "tests": _results(report), "versions": versions()}
    FOUND.write_text(json.dumps(found, indent=None, separators=(",", ":")) + "\n")


def versions() -> dict[str, str]:
    """The pinned version of each client."""
    found = {}
    for name, (file, pattern) in PINS.items():
        pin = re.search(pattern, (ROOT / file).read_text())
        if pin is None:
            sys.exit(f"{file} has no version of {name}")
        found[name] = pin[1]
    return found


def _results(report: Path) -> dict[str, dict[str, int]]:
    """How many tests each client passed, and how many were skipped."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in CLIENTS}
    for case in ET.parse(report).iter("testcase"):
        words = re.search(r"\[(.*)\]", case.get("name", ""))
        name = _client_in(words[1]) if words else None
        if name is not None:
            counts[name]["skipped" if case.find("skipped") is not None else "passed"] += 1
    return {name: dict(count) for name, count in counts.items()}


def _client_in(parameters: str) -> str | None:
    """The longest name that stands in the parameters of a test."""
    named = [name for name in (*CLIENTS, *HOSTED) if re.search(rf"(^|-){re.escape(name)}(-|$)", parameters)]
    return HOSTED.get(found := max(named, key=len), found) if named else None


def page() -> str:
    found = json.loads(FOUND.read_text())
    rows = [
        f"| {name} | {found['versions'][name]} | {count.get('passed', 0)} | {count.get('skipped', 0)} |"
        for name, count in found["tests"].items()
    ]
    chosen: dict[tuple[int, str], list[int]] = {}
    for name, key, version in found["requests"]:
        chosen.setdefault((key, name), []).append(version)
    table = [f"| API | served | {' | '.join(CLIENTS)} |", "|---|---|" + "---|" * len(CLIENTS)]
    used = {key for key, _ in chosen}
    for key, served in sorted(SUPPORTED_APIS.items()):
        if key not in used:
            continue
        cells = [_span(chosen.get((key, name), [])) for name in CLIENTS]
        table.append(f"| {_name(served.name)} ({key}) | {_span([served.first, served.last])} | {' | '.join(cells)} |")
    unused = ", ".join(
        f"{_name(served.name)} ({key}) {_span([served.first, served.last])}"
        for key, served in sorted(SUPPORTED_APIS.items())
        if key not in used
    )
    names = fill(UNUSED.format(apis=unused), 120, break_long_words=False, break_on_hyphens=False)
    return HEAD + "\n".join(rows) + "\n" + APIS + "\n".join(table) + f"\n\n{names}\n" + OTHER_TESTS


def _name(module: str) -> str:
    handler = getattr(import_module(f"trioka.broker.handlers.{module}"), module)
    return str(handler.request.__name__).removesuffix("Request")


def _span(versions: list[int]) -> str:
    if not versions:
        return ""
    first, last = min(versions), max(versions)
    return str(first) if first == last else f"{first}–{last}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--page"]:
        run()
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
