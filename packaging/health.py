#!/usr/bin/env python
"""The health check of the image: whether the node serves clients, as /readyz says at KAFKA_TRIOKA_HTTP_LISTENERS."""

import os
import urllib.request

first = os.environ["KAFKA_TRIOKA_HTTP_LISTENERS"].split(",")[0]
host, _, port = first.rpartition(":")
address = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host
urllib.request.urlopen(f"http://{address}:{port}/readyz", timeout=4)
