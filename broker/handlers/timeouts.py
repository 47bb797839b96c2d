"""How long the sender of a request waits, where that says something to the controller.

What nobody waits for any more is not begun: a timeout of nothing, or less, is over before the controller has looked.
"""

from trioka.protocol.errors import RequestTimedOut


def check_timeout(timeout_ms: int) -> None:
    """RequestTimedOut if the time is up already."""
    if timeout_ms <= 0:
        raise RequestTimedOut
