"""The examples of docs/GATEWAY.md are run, in their order, and its tables are those of the declarations."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway import GatewayUnderTest

from trioka.gateway.reference import page
from trioka.testing.broker import Broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "GATEWAY.md"
TEXT = PAGE.read_text(encoding="utf-8")
DONE_S = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_tables_of_the_page_are_those_of_the_declarations() -> None:
    assert page(TEXT) == TEXT


def run(words: list[str], **environment: str) -> str:
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=DONE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed() -> dict[str, list[str]]:
    """What each block of Python and each line of shell printed."""
    found: dict[str, list[str]] = {"python": [], "curl": [], "grpcurl": []}
    with Broker() as kafka, GatewayUnderTest(kafka.bootstrap_servers) as gateway:

        def here(text: str) -> str:
            return text.replace("localhost:50051", gateway.grpc).replace("localhost:9464", gateway.addresses["Metrics"])

        for block in blocks("python"):
            found["python"].append(run([sys.executable, "-c", here(block)]))
        for line in "".join(blocks("sh")).splitlines():
            tool = line.split()[0]
            if tool in found and shutil.which(tool) is not None:
                found[tool].append(run(["sh", "-c", here(line)]))
    return found


def test_the_examples_in_python_do_what_they_say(printed: dict[str, list[str]]) -> None:
    first, second, third = printed["python"]
    assert "written at" in first
    assert first.count("b'{\"id\": 1}'") == 2
    assert second.splitlines() == ["False True"] * 3
    assert len(third.splitlines()) == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_with_curl_do_what_they_say(printed: dict[str, list[str]]) -> None:
    ready, metrics = printed["curl"]
    assert ready == "ok\n"
    assert "trioka_gateway_calls_total" in metrics


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed; compat-tests build it")
def test_the_examples_with_grpcurl_do_what_they_say(printed: dict[str, list[str]]) -> None:
    services, written, consumed, topics = printed["grpcurl"]
    assert "trioka.v1.LogService" in services
    assert "positions" in written
    assert "aGVsbG8=" in consumed
    assert "orders" in topics
