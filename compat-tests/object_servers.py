"""Servers of object stores that others have written: S3Proxy for S3 and Azurite for Azure Blob Storage.

Each is pinned (`s3proxy_jars.txt`, `clients/azurite/package-lock.json`), runs on loopback, and keeps its objects in a
folder of the test.
"""

import base64
import hashlib
import hmac
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

import toolchains
from java import java
from oracle import QUICK

from trioka.pipeline.installation.repository import all_checked, read_pins

HOST = "127.0.0.1"
S3PROXY_JARS = Path(__file__).with_name("s3proxy_jars.txt")
ACCESS_KEY, SECRET_KEY, BUCKET = "test-access-key", "test-secret-key", "tier"
# The account that every Azurite has; its key is in Azurite's documentation.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE_S = 120.0
POLL_S = 0.1


class Server(NamedTuple):
    settings: Mapping[str, str]  # the keys trioka.tier.* that reach it
    options: tuple[str, ...]  # the same for commands


@contextmanager
def s3proxy(folder: Path) -> Iterator[Server]:
    """An S3 server with an empty bucket."""
    port = _free_port()
    (folder / "objects" / BUCKET).mkdir(parents=True)
    properties = {
        "s3proxy.endpoint": f"http://{HOST}:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": SECRET_KEY,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": str(folder / "objects"),
    }
    file = folder / "s3proxy.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    class_path = os.pathsep.join(map(str, all_checked(read_pins(S3PROXY_JARS))))
    main: list[str | Path] = [java(), *QUICK, "-cp", class_path, "org.gaul.s3proxy.Main", "--properties", file]
    with _running(main, folder / "s3proxy.log", port):
        endpoint, region = f"http://{HOST}:{port}", "us-east-1"
        settings = {
            "trioka.tier.url": f"s3://{BUCKET}/cluster",
            "trioka.tier.endpoint": endpoint,
            "trioka.tier.region": region,
            "trioka.tier.access.key": ACCESS_KEY,
            "trioka.tier.secret.key": SECRET_KEY,
        }
        keys = (f"access_key_id={ACCESS_KEY}", f"secret_access_key={SECRET_KEY}")
        yield Server(settings, (f"endpoint={endpoint}", f"region={region}", *keys, "allow_http=true"))


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """A blob server with an empty container."""
    port = _free_port()
    command = [*toolchains.azurite(), "--blobHost", HOST, "--blobPort", str(port), "--location", folder, "--silent"]
    with _running([*command, "--disableTelemetry", "--skipApiVersionCheck"], folder / "azurite.log", port):
        _create_container(port)
        endpoint = f"http://{HOST}:{port}/{AZURE_ACCOUNT}"
        settings = {
            "trioka.tier.url": f"az://{BUCKET}/cluster",
            "trioka.tier.endpoint": endpoint,
            "trioka.tier.access.key": AZURE_ACCOUNT,
            "trioka.tier.secret.key": AZURE_KEY,
        }
        keys = (f"account_name={AZURE_ACCOUNT}", f"account_key={AZURE_KEY}")
        yield Server(settings, (f"endpoint={endpoint}", *keys, "allow_http=true"))


def _create_container(port: int) -> None:
    """One request, signed as Azure's SharedKey is described."""
    date, version = formatdate(usegmt=True), "2021-12-02"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Content-Length": "0",
        "Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}",
    }
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)
    connection.request("PUT", f"/{AZURE_ACCOUNT}/{BUCKET}?restype=container", headers=headers)
    response = connection.getresponse()
    assert response.status == http.client.CREATED, (response.status, response.read())
    connection.close()


@contextmanager
def _running(command: Sequence[str | Path], log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)
    try:
        _wait(server, log, port)
        yield
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def _wait(server: subprocess.Popen[bytes], log: Path, port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert server.poll() is None, log.read_text()[-4000:]
        with socket.socket() as attempt:
            if attempt.connect_ex((HOST, port)) == 0:
                return
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(POLL_S)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
