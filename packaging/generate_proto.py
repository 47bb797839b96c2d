"""Writes gateway/v1 from the .proto files: `make proto`. A test compares the files with what this would write.

The generated modules import each other as `trioka.v1.…`, after the package in the .proto files. `trioka` is the name
of the installed package, so they live in `trioka.gateway.v1`, and their imports are rewritten to relative ones. The
names in the descriptors, which are on the wire, stay.

`python packaging/generate_proto.py --released` also writes released.binpb, the descriptor that `make check-proto` and a
test compare with: whatever is in it stays compatible. Write it when a version is released.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

PROTO: Final = Path(__file__).resolve().parents[1] / "gateway" / "proto"
TARGET: Final = PROTO.parent / "v1"
RELEASED: Final = PROTO / "released.binpb"
NAMES: Final = ("types", "log", "admin")
SERVICES: Final = ("log", "admin")
INIT: Final = (
    '"""Generated from gateway/proto/trioka/v1 by `make proto`: messages, and the stubs of clients and servers."""\n'
)


def _protoc(*words: str) -> None:
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    files = [f"trioka/v1/{name}.proto" for name in NAMES]
    code = protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", *words, *files])
    if code:
        raise SystemExit(f"protoc failed with exit code {code}.")


def generated() -> dict[str, str]:
    """The files of gateway/v1 by name."""
    with tempfile.TemporaryDirectory() as folder:
        _protoc(f"--python_out={folder}", f"--pyi_out={folder}", f"--grpc_python_out={folder}")
        found = {"__init__.py": INIT, **_grpc_types()}
        for path in sorted(Path(folder, "trioka", "v1").iterdir()):
            if path.name.endswith("_grpc.py") and path.name.removesuffix("_pb2_grpc.py") not in SERVICES:
                continue
            found[path.name] = re.sub(r"(?m)^from trioka\.v1 import ", "from . import ", path.read_text())
    return found


def _grpc_types() -> dict[str, str]:
    """Stub files for the modules of grpc, which come without types."""
    found = {}
    for file in FileDescriptorSet.FromString(descriptor()).file:
        text = "from typing import Any\n"
        for service in file.service:
            methods = "".join(f"    {each.name}: Any\n" for each in service.method)
            name = f"{service.name}Servicer"
            text += (
                f"\nclass {service.name}Stub:\n    def __init__(self, channel: Any) -> None: ...\n{methods}"
                f"\nclass {name}: ...\n"
                f"\ndef add_{name}_to_server(servicer: {name}, server: Any) -> None: ...\n"
            )
        if file.service:
            found[f"{Path(file.name).stem}_pb2_grpc.pyi"] = text
    return found


def descriptor() -> bytes:
    """The descriptors of all files, as `protoc --descriptor_set_out` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "v1.binpb")
        _protoc(f"--descriptor_set_out={path}", "--include_imports")
        return path.read_bytes()


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, text in generated().items():
        (TARGET / name).write_text(text)
    if "--released" in sys.argv[1:]:
        RELEASED.write_bytes(descriptor())


if __name__ == "__main__":
    main()
