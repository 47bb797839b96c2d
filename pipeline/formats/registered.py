"""Schemas of a registry: the newest one of a subject, with those that it refers to.

A Protobuf schema is compiled by protoc, which grpcio-tools has.
"""

import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from trioka.protocol.lazy_dataclass import frozen

from ..errors import InvalidPipeline
from ..installation.cache import Unreachable

REGISTRY_TIMEOUT_S = 10
REGISTRY_ANSWER_LIMIT_BYTES = 4 << 20
MAX_REFERENCES = 100
COMPILE_TIMEOUT_S = 60
MAIN_FILE = "schema.proto"


@frozen
class Registered:
    """`imports` are the schemas that it refers to, by the names by which it does."""

    text: str
    imports: Mapping[str, str] = field(default_factory=dict)


def newest(registry: str, subject: str, kind: str) -> Registered:
    """The newest schema of a subject, of that kind (AVRO, JSON, PROTOBUF)."""
    base = f"{registry.rstrip('/')}/subjects"
    found = answer(f"{base}/{_quoted(subject)}/versions/latest")
    if found is None:
        raise InvalidPipeline(f"decode.subject: the registry does not know '{subject}'.")
    there = str(found.get("schemaType", "AVRO"))
    if there != kind:
        raise InvalidPipeline(f"decode.subject: '{subject}' has schemas of the type {there}, and not {kind}.")
    imports: dict[str, str] = {}
    waiting = list(found.get("references") or ())
    while waiting:
        one = waiting.pop()
        if one["name"] in imports:
            continue
        if len(imports) >= MAX_REFERENCES:
            raise InvalidPipeline(f"decode.subject: '{subject}' refers to more than {MAX_REFERENCES} schemas.")
        other = answer(f"{base}/{_quoted(str(one['subject']))}/versions/{_quoted(str(one['version']))}")
        if other is None:
            raise InvalidPipeline(f"decode.subject: '{subject}' refers to '{one['subject']}', which is not there.")
        imports[str(one["name"])] = str(other["schema"])
        waiting += other.get("references") or ()
    return Registered(text=str(found["schema"]), imports=imports)


def answer(url: str) -> Mapping[str, Any] | None:
    """What a registry responds; None if there is no such schema."""
    try:
        with urllib.request.urlopen(url, timeout=REGISTRY_TIMEOUT_S) as response:
            found = json.loads(response.read(REGISTRY_ANSWER_LIMIT_BYTES))
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise ValueError("it has no schema")
        return found
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Unreachable(f"The schema registry answered {error.code} to {url}.") from None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise Unreachable(f"No usable response from the schema registry at {url}: {error}.") from None


def compiled(schema: Registered) -> bytes:
    """The FileDescriptorSet of a Protobuf schema."""
    with tempfile.TemporaryDirectory(prefix="trioka-proto-") as name:
        folder = Path(name)
        for file, text in {**schema.imports, MAIN_FILE: schema.text}.items():
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts:
                raise InvalidPipeline(f"decode.subject: the schema imports '{file}', which is no name of a file.")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        target = folder / "descriptor"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
        done = subprocess.run(
            [*command, f"--descriptor_set_out={target}", MAIN_FILE],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if "No module named" in done.stderr:
            raise InvalidPipeline(
                "decode.registry: a Protobuf schema is compiled by grpcio-tools: pip install grpcio-tools; or give a "
                "descriptor."
            )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"protoc ended with {done.returncode}"]
            raise InvalidPipeline(f"decode.registry: the Protobuf schema cannot be compiled: {lines[0]}.")
        return target.read_bytes()


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
