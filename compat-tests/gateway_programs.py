"""Programs of the Go world beside the gateway: grpcurl, and a client from stubs that are generated here.

Everything comes pinned from clients/go-gateway (go.mod, go.sum) and is built once, as toolchains.py does it.
"""

import functools
import shutil
from pathlib import Path

from grpc_tools import protoc
from toolchains import CLIENTS, OLDEST_GO, Command, _built, _digest, _run, _tool

HOME = CLIENTS / "go-gateway"
PROTO = Path(__file__).resolve().parents[1] / "gateway" / "proto"
GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl"
PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


@functools.cache
def grpcurl() -> Command:
    go = _tool("go", "version", OLDEST_GO)

    def build(target: Path) -> None:
        _run([go, "build", "-mod=readonly", "-buildvcs=false", "-o", target / "grpcurl", GRPCURL], HOME)

    return [_built(f"grpcurl-{_digest([HOME / 'go.mod', HOME / 'go.sum'])}", build) / "grpcurl"]


@functools.cache
def go_client() -> Command:
    """The program main.go, with stubs generated from the .proto files."""
    go = _tool("go", "version", OLDEST_GO)
    protos = sorted(PROTO.glob("trioka/v1/*.proto"))
    files = [*sorted(HOME.iterdir()), *protos]

    def build(target: Path) -> None:
        module = target / "module"
        shutil.copytree(HOME, module)
        words = ["protoc", f"-I{PROTO}"]
        for plugin in PLUGINS:
            name = plugin.rpartition("/")[2]
            _run([go, "build", "-mod=readonly", "-buildvcs=false", "-o", target / name, plugin], module)
            kind = name.removeprefix("protoc-gen-")
            words += [f"--plugin={name}={target / name}", f"--{kind}_out={module}"]
            for proto in protos:
                words.append(f"--{kind}_opt=Mtrioka/v1/{proto.name}=gateway/client/v1")
            words.append(f"--{kind}_opt=module=gateway/client")
        if protoc.main([*words, *(f"trioka/v1/{proto.name}" for proto in protos)]):
            raise OSError("protoc failed")
        _run([go, "build", "-mod=readonly", "-buildvcs=false", "-o", target / "client", "."], module)
        shutil.rmtree(module, ignore_errors=True)

    return [_built(f"go-gateway-{_digest(files)}", build) / "client"]
