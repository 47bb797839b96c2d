"""The charge of a request to its client's quotas: bytes, and event loop time of the handler."""

from collections.abc import Coroutine, Generator
from time import perf_counter
from types import coroutine
from typing import Any


class Charge:
    """What a request uses of its client's quotas."""

    __slots__ = ("began", "is_exempt", "is_running", "is_settled", "seconds", "size")

    def __init__(self, size: int, is_exempt: bool) -> None:
        self.size = size  # of its frame, without the size field
        self.is_exempt = is_exempt  # of request_percentage
        self.is_settled = False  # the usage is recorded
        self.seconds = 0.0  # of the event loop, until `began`
        self.began = 0.0
        self.is_running = False

    @classmethod
    def of_fast_path(cls, size: int, seconds: float) -> "Charge":
        """For Produces that are appended and wait for their commit."""
        charge = cls(size, False)
        charge.seconds = seconds
        return charge

    @property
    def time_s(self) -> float:
        """The handler's event loop time so far, without waits."""
        return self.seconds + (perf_counter() - self.began if self.is_running else 0.0)

    def resume(self) -> None:
        self.is_running = True
        self.began = perf_counter()

    def suspend(self) -> None:
        if self.is_running:
            self.seconds += perf_counter() - self.began
            self.is_running = False


@coroutine
def timed(handler: Coroutine[Any, Any, Any], charge: Charge) -> Generator[Any, Any, Any]:
    """Runs the coroutine and measures the time between its waits."""
    resume, value = handler.send, None
    while True:
        charge.resume()
        try:
            waits_for = resume(value)
        except StopIteration as end:
            return end.value
        finally:
            charge.suspend()
        try:
            resume, value = handler.send, (yield waits_for)
        except BaseException as interruption:  # such as a cancellation, which the handler must get
            resume, value = handler.throw, interruption
