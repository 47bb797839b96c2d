#!/usr/bin/env python
"""The health check of the image: whether the node serves clients, as /readyz says at KAFKA_TRIOKA_HTTP_LISTENERS."""

import os
import sys
import urllib.request

TIMEOUT_S = 4


def main() -> str | None:
    """The reason if the node is not healthy."""
    first = os.environ.get("KAFKA_TRIOKA_HTTP_LISTENERS", "").split(",")[0]
    host, _, port = first.rpartition(":")
    if not port:
        return "KAFKA_TRIOKA_HTTP_LISTENERS names no listener, so the health of the node is not known"
    address = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host
    try:
        with urllib.request.urlopen(f"http://{address}:{port}/readyz", timeout=TIMEOUT_S):
            return None
    except OSError as error:
        return f"not ready: {error}"


if __name__ == "__main__":
    sys.exit(main())
