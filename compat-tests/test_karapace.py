"""Karapace on the topic that our registry has written, and our registry on what Karapace writes.

Karapace is on no package registry, so it is not fetched: KARAPACE_PYTHON names a Python interpreter that can run
`python -m karapace` (compat-tests/README.md says how one is made). Without it there is no judge.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trioka.cli.client.connection import free_ports
from trioka.testing import Broker

sys.path.insert(0, "tests")
from support.gateway import GatewayUnderTest
from support.registry import Registry

PYTHON = os.environ.get("KARAPACE_PYTHON")
START_S = 120
ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
ORDER = 'syntax = "proto3"; package shop; import "item.proto"; message Order { Item item = 1; }'

pytestmark = pytest.mark.skipif(PYTHON is None, reason="NOT JUDGED: KARAPACE_PYTHON names no interpreter with Karapace")


@pytest.fixture
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def ours(kafka: Broker) -> Iterator[Registry]:
    with GatewayUnderTest(kafka.bootstrap_servers, "--registry") as gateway:
        yield Registry(gateway.http)


class Karapace:
    def __init__(self, kafka: Broker, folder: Path) -> None:
        (self._port,) = free_ports("127.0.0.1", 1)
        settings = {
            "BOOTSTRAP_URI": kafka.bootstrap_servers,
            "HOST": "127.0.0.1",
            "PORT": str(self._port),
            "ADVERTISED_HOSTNAME": "127.0.0.1",
            "KARAPACE_REGISTRY": "true",
            "LOG_LEVEL": "WARNING",
            "WAITING_TIME_BEFORE_ACTING_AS_MASTER_MS": "500",
        }
        self._log = (folder / "karapace.log").open("wb")
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", "karapace"],
            env={**os.environ, **{f"KARAPACE_{key}": value for key, value in settings.items()}},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self.registry = Registry(f"http://127.0.0.1:{self._port}")

    def wait_until_it_writes(self) -> None:
        """It writes once it has read the topic to its last offset, and leads its group."""
        url, deadline = f"http://127.0.0.1:{self._port}/master_available", time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "Karapace has ended"
            try:
                with urllib.request.urlopen(url, timeout=5) as response:
                    if json.loads(response.read()).get("master_available"):
                        return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.2)
        raise AssertionError("Karapace does not become the writer")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture
def karapace(kafka: Broker, ours: Registry, tmp_path: Path) -> Iterator[Registry]:
    """It starts behind what our registry has written."""
    write(ours, "ours")
    made = Karapace(kafka, tmp_path)
    try:
        made.wait_until_it_writes()
        yield made.registry
    finally:
        made.close()


def avro(*more: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}, *more]})


def write(registry: Registry, name: str) -> None:
    """All formats, a second version, and a reference."""
    registry.register(f"{name}-avro", avro())
    registry.register(f"{name}-avro", avro({"name": "y", "type": ["null", "string"], "default": None}))
    registry.register(f"{name}-json", json.dumps({"type": "object", "title": name}), "JSON")
    registry.register(f"{name}-item", ITEM, "PROTOBUF")
    reference = {"name": "item.proto", "subject": f"{name}-item", "version": 1}
    registry.register(f"{name}-order", ORDER, "PROTOBUF", references=[reference])


def shown(registry: Registry) -> dict[tuple[str, int], object]:
    """Each version: id, type, text and references. Spaces and the order of JSON's members are the server's."""
    found: dict[tuple[str, int], object] = {}
    for subject in registry("GET", "/subjects")[1]:
        for version in registry("GET", f"/subjects/{subject}/versions")[1]:
            body = registry("GET", f"/subjects/{subject}/versions/{version}")[1]
            kind, text = body.get("schemaType", "AVRO"), body["schema"]
            content = "".join(text.split()) if kind == "PROTOBUF" else json.loads(text)
            found[subject, version] = body["id"], kind, content, body.get("references")
    return found


@pytest.mark.nightly
def test_each_registry_reads_what_the_other_has_written_and_goes_on(ours: Registry, karapace: Registry) -> None:
    before = shown(ours)
    assert len(before) == 5
    assert shown(karapace) == before
    write(karapace, "theirs")
    assert shown(ours) == shown(karapace)
    assert len(shown(ours)) == 10
    taken = {each["id"] for each in karapace("GET", "/schemas")[1]}
    assert ours.register("ours-new", '"bytes"') not in taken
    assert karapace("DELETE", "/subjects/theirs-json") == (200, [1])
    assert ours("GET", "/subjects/theirs-json/versions")[0] == 404
    assert karapace("DELETE", "/subjects/theirs-json?permanent=true") == (200, [1])
    assert "theirs-json" not in ours("GET", "/subjects?deleted=true")[1]
    assert ours("DELETE", "/subjects/theirs-avro/versions/1") == (200, 1)
    assert karapace("PUT", "/config/ours-avro", {"compatibility": "FULL"})[0] == 200
    assert ours("GET", "/config/ours-avro") == (200, {"compatibilityLevel": "FULL"})
    assert karapace("DELETE", "/subjects/ours-item/versions/1")[0] == 422  # it is referred to
    assert ours("DELETE", "/subjects/ours-item/versions/1")[0] == 422
    deadline = time.monotonic() + START_S
    while shown(karapace) != shown(ours):
        assert time.monotonic() < deadline
