"""The examples of docs/REGISTRY.md and docs/REST.md are run, in their order, and print what the pages say."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import command
from support.gateway import GatewayUnderTest

from trioka.testing import Broker

DOCS = Path(__file__).resolve().parents[2] / "docs"
ADDRESS = "localhost:8082"
VARIES = ("guid", "timestamp")


def examples(page: str) -> Iterator[tuple[str, Any]]:
    """Each line with what it prints; None if the page does not say."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        lines = block.splitlines()
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if not line.startswith("# "):
                yield line, json.loads(following[2:]) if following.startswith("# ") else None


def settled(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {name: settled(each) for name, each in value.items() if name not in VARIES}
    return [settled(each) for each in value] if isinstance(value, list) else value


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("page", ["REGISTRY.md", "REST.md"])
def test_every_example_of_the_page_prints_what_it_says(page: str) -> None:
    found = list(examples(page))
    assert len(found) > 7
    with Broker() as kafka, GatewayUnderTest(kafka.bootstrap_servers, "--registry") as gateway:
        here = gateway.addresses["HTTP"]
        for line, expected in found:
            if line.startswith("trioka "):
                assert command(*line.split()[1:], at=kafka.bootstrap_servers).code == 0
                continue
            words = ["sh", "-c", line.replace(ADDRESS, here)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
            printed = json.loads(done.stdout.replace(here, ADDRESS) or "null")
            assert settled(printed) == settled(expected), line
