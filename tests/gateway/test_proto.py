"""The protocol: generated files are those of the .proto files, and v1 stays compatible with what was released."""

import os
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "gateway" / "proto"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "packaging" / "generate_proto.py"))


def test_the_generated_files_are_those_of_the_proto_files(generator: dict[str, Any]) -> None:
    written = {path.name: path.read_text() for path in (ROOT / "gateway" / "v1").iterdir() if path.is_file()}
    assert written == generator["generated"]()


def fields(message: DescriptorProto, prefix: str) -> dict[str, tuple[object, ...]]:
    """What the wire and JSON see of each field, by number."""
    name = f"{prefix}.{message.name}"
    found: dict[str, tuple[object, ...]] = {
        f"{name}:{each.number}": (each.name, each.type, each.label, each.type_name, each.json_name)
        for each in message.field
    }
    for nested in message.nested_type:
        found |= fields(nested, name)
    return found


def contents(data: bytes) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for file in FileDescriptorSet.FromString(data).file:
        for message in file.message_type:
            found |= fields(message, file.package)
        for enum in file.enum_type:
            found |= {f"{file.package}.{enum.name}:{each.number}": (each.name,) for each in enum.value}
        for service in file.service:
            for method in service.method:
                types = (method.input_type, method.output_type, method.client_streaming, method.server_streaming)
                found[f"{file.package}.{service.name}.{method.name}"] = types
    return found


def test_everything_that_was_released_is_still_there_and_the_same(generator: dict[str, Any]) -> None:
    released = contents((PROTO / "released.binpb").read_bytes())
    now = contents(generator["descriptor"]())
    assert len(released) > 100
    assert {name: now.get(name) for name in released} == released


def test_the_generated_package_is_not_the_installed_name() -> None:
    for path in (ROOT / "gateway" / "v1").glob("*_pb2*.py"):
        assert "import trioka.v1" not in path.read_text()
        assert "from trioka.v1" not in path.read_text()


def buf() -> str | None:
    cached = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trioka" / "buf" / "node_modules"
    found = cached / ".bin" / "buf"
    return str(found) if found.exists() else shutil.which("buf")


@pytest.mark.skipif(buf() is None, reason="buf is not there; `make check-proto` fetches it from npm")
def test_buf_finds_nothing_to_object_to() -> None:
    for words in (["lint"], ["breaking", "--against", "released.binpb"]):
        done = subprocess.run([str(buf()), *words], cwd=PROTO, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
