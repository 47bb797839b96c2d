"""Object stores of the tests: a local directory, S3 as moto serves it, and servers with faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import boto3
from moto.server import ThreadedMotoServer

from trioka.broker.tier.store.store_options import StoreOptions

BUCKET = "tier"
ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key-never-logged"


def local_options(directory: Path) -> StoreOptions:
    return StoreOptions(url=f"file://{directory}")


def s3_options(endpoint: str, *, timeout_ms: int = 30_000, retries: int = 3) -> StoreOptions:
    return StoreOptions(
        url=f"s3://{BUCKET}/cluster",
        endpoint=endpoint,
        region="us-east-1",
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        request_timeout_ms=timeout_ms,
        retries=retries,
    )


@contextmanager
def moto_s3(port: int = 0) -> Iterator[str]:
    """The endpoint of an S3 server with an empty bucket."""
    server = ThreadedMotoServer(port=port, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint
    finally:
        server.stop()


@contextmanager
def faulty_s3(fault: str) -> Iterator[str]:
    """The endpoint of a server that keeps objects, with a fault.

    `unconditional`: it ignores If-None-Match. `hangs`: it never responds. `lost`: it stores an object, and responds
    503 to its first PUT. `denied`: it responds 403, with the request's headers in the text.
    """
    objects: dict[str, bytes] = {}
    release = Event()
    seen: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def is_refused(self) -> bool:
            if fault == "hangs":
                release.wait()
            elif fault == "denied":
                self.respond(403, f"<Error>{SECRET_KEY} {self.headers}</Error>".encode())
            return fault in ("hangs", "denied")

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.is_refused():
                return
            if fault != "unconditional" and self.path in objects and self.headers.get("If-None-Match") == "*":
                self.respond(412)
                return
            objects[self.path] = data
            first = self.path not in seen
            seen.add(self.path)
            self.respond(503 if fault == "lost" and first else 200)

        def do_GET(self) -> None:
            if self.is_refused():
                return
            data = objects.get(self.path)
            self.respond(404 if data is None else 200, data or b"")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()
