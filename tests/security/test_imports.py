"""A start without TLS and SASL imports nothing of them. `ssl` itself is imported by trio, whatever the broker does."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
import trio
imported_by_trio = "ssl" in sys.modules
from support.serving import running_broker

async def main():
    async with running_broker(Path(sys.argv[1])) as broker:
        assert broker.addresses
    packages = {"cryptography", "jwt", "re2"} & set(sys.modules)
    modules = set(sys.argv[2:]) & set(sys.modules)
    print(imported_by_trio, sorted(packages), sorted(modules))

trio.run(main)
"""
SECURITY = tuple(
    f"trioka.broker.{name}"
    for name in (
        "network.tls.handshake_pool",
        "network.tls.handshakes",
        "network.tls.reload",
        "network.tls.transport",
        "peers.tls_socket",
        "security.sasl.issuer_keys",
        "security.tls.certificate",
        "security.tls.cipher_suites",
        "security.tls.context",
        "security.tls.der",
        "security.tls.distinguished_name",
        "security.tls.jks",
        "security.tls.key_stores",
        "security.tls.principal_mapping",
    )
)


def test_a_start_without_tls_imports_nothing_of_it(tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    for name in SECURITY:  # a module that was renamed would never be found below
        assert find_spec(name), name
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *SECURITY],
        cwd=tests,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(" ", 1) == ["True", "[] []\n"]
