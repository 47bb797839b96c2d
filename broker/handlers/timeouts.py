"""Timeouts of requests to the controller.

As in Kafka, a request whose timeout is zero or negative has expired before the controller starts to process it.
"""

from trioka.protocol.errors import RequestTimedOut


def check_timeout(timeout_ms: int) -> None:
    """Raise RequestTimedOut if the timeout is not positive."""
    if timeout_ms <= 0:
        raise RequestTimedOut
