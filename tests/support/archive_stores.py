"""Object stores for tests of the archive: a directory, and an S3 server of moto in a thread."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import obstore
from obstore.store import from_url

BUCKET = "tiered"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """An empty bucket; the options with which `s3://tiered` reaches it."""
    import boto3  # both take seconds to load, and most tests use a directory
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "a",
            "secret_access_key": "b",
            "allow_http": "true",
        }
    finally:
        server.stop()


def put_objects(url: str, objects: Mapping[str, bytes], options: Mapping[str, str] | None = None) -> None:
    """Writes objects below a URL, as the broker's copier would."""
    own = dict(options or {})
    client: Any = {"allow_http": own.pop("allow_http", "false") == "true"}
    config: Any = own
    store = from_url(url, config=config, client_options=client) if own else from_url(url)
    for key, data in objects.items():
        obstore.put(store, key, data)
