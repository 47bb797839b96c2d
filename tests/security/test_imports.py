"""A start without TLS and SASL imports nothing of them. `ssl` itself is imported by trio, whatever the broker does."""

import subprocess
import sys
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
    found = [name for name in sys.modules if name.startswith("trioka.")]
    packages = {"cryptography", "jwt", "re2"} & set(sys.modules)
    modules = [name for name in found if name.rpartition(".")[2] in sys.argv[2].split(",")]
    print(imported_by_trio, sorted(packages), sorted(modules))

trio.run(main)
"""
SECURITY = (
    "certificate,cipher_suites,der,distinguished_name,handshake_pool,issuer_keys,jks,key_stores,principal_mapping,"
    "tls_context,tls_handshakes,tls_reload,tls_socket,tls_transport"
)


def test_a_start_without_tls_imports_nothing_of_it(tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    for name in SECURITY.split(","):  # a module that was renamed would never be found below
        assert list((tests.parent / "broker").glob(f"*/{name}.py")), name
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), SECURITY],
        cwd=tests,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(" ", 1) == ["True", "[] []\n"]
