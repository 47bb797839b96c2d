"""REST before a cluster with logins: a request does what its user may do."""

import base64
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from trioka.testing import Broker

JSON = "application/vnd.kafka.json.v2+json"


def request(url: str, method: str, path: str, login: str | None, body: Any = None) -> tuple[int, Any]:
    split = urlsplit(url)
    connection = http.client.HTTPConnection(f"{split.hostname}:{split.port}", timeout=60)
    headers = {"Content-Type": JSON}
    if login is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def test_the_login_of_a_request_is_that_of_the_cluster() -> None:
    with Broker(sasl=True) as kafka:
        kafka.create_topic("orders")
        url = kafka.registry_url
        split = urlsplit(url)
        good = f"{split.username}:{split.password}"
        record = {"records": [{"value": 1}]}
        assert request(url, "POST", "/topics/orders", good, record)[1]["offsets"][0]["offset"] == 0
        assert request(url, "GET", "/topics/orders/partitions/0/records?format=json", good)[1][0]["value"] == 1
        assert request(url, "POST", "/consumers/g", good, {"name": "one"})[0] == 200
        for wrong in (None, f"{split.username}:wrong", "nobody:x"):
            for method, path, body in (
                ("GET", "/topics", None),
                ("GET", "/topics/orders/partitions/0/records", None),
                ("POST", "/topics/orders", record),
                ("POST", "/consumers/g", {}),
            ):
                status, found = request(url, method, path, wrong, body)
                assert (status, found["error_code"]) == (401, 401), (wrong, path, found)
            status, found = request(url, "DELETE", "/consumers/g/instances/one", wrong)
            assert status in (401, 404), found  # an instance belongs to the user who made it
        assert request(url, "DELETE", "/consumers/g/instances/one", good) == (204, None)
