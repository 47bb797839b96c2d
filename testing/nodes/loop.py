"""A trio loop in its own thread: started, called and stopped from threads that do not run trio.

The caller is blocked until the loop has returned a result, usually for fractions of a millisecond. That is meant for
tests: it works under pytest, unittest, and inside of asyncio or another trio loop, which it blocks for that time.

`stop` joins the thread, also when it is interrupted while it waits. A loop that was not stopped is stopped when the
interpreter ends; its thread is a daemon, because Python would wait for any other thread without limit.
"""

import atexit
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakSet

import trio

from .runner import ANSWER_S, HasEnded, Unresponsive

T = TypeVar("T")
Serve = Callable[..., Awaitable[None]]
Answers = SimpleQueue[Callable[[], T]]
"""A result is a function that returns it, or raises the exception."""

LOOK_AGAIN_S: Final = 0.5  # a waiting caller checks this often whether the loop still runs


class Loop:
    """Runs `serve(task_status=…)`, which reports when it is ready, until `stop`."""

    def __init__(self, serve: Serve, *, name: str, clock: trio.abc.Clock | None = None) -> None:
        self._serve = serve
        self._clock = clock
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun = threading.Event()  # there is something to cancel
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery | None = None

    def start(self) -> None:
        """Return when `serve` is ready, or raise its error."""
        _running.add(self)
        try:
            self._thread.start()
            self._ready.wait()
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self._failure is not None:
            self.stop()

    def stop(self) -> None:
        """Raise the error of `serve`, if it ended by itself."""
        _running.discard(self)
        if self._thread.ident is None:
            return
        try:
            self._end()
        except BaseException:  # Ctrl-C; the broker still has to end
            self._end()
            raise
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _end(self) -> None:
        self._begun.wait()
        if self._nursery is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
        self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def call(self, function: Callable[..., T], *arguments: Any, timeout_s: float = ANSWER_S) -> T:
        """Run a function in the loop and return its result."""

        def run(answers: Answers[T]) -> None:
            try:
                answer = function(*arguments)
            except Exception as error:
                answers.put(partial(_raise, error))
            else:
                answers.put(lambda: answer)

        return self._wait(run, timeout_s)

    def wait(self, function: Callable[..., Awaitable[T]], *arguments: Any, timeout_s: float = ANSWER_S) -> T:
        """Run an async function in the loop as a task and return its result."""

        async def run(answers: Answers[T]) -> None:
            try:
                answer = await function(*arguments)
            except Exception as error:
                answers.put(partial(_raise, _alone(error)))
            else:
                answers.put(lambda: answer)

        def begin(answers: Answers[T]) -> None:
            assert self._nursery is not None
            self._nursery.start_soon(run, answers)

        return self._wait(begin, timeout_s)

    def _wait(self, begin: Callable[[Answers[T]], None], timeout_s: float) -> T:
        answers: Answers[T] = SimpleQueue()
        try:
            self._token.run_sync_soon(begin, answers)
        except (trio.RunFinishedError, AttributeError):
            raise self._why_not() from None
        left = timeout_s
        while left > 0:
            try:
                return answers.get(timeout=min(left, LOOK_AGAIN_S))()
            except Empty:
                left -= LOOK_AGAIN_S
                if not self.is_running and answers.empty():
                    raise self._why_not() from None
        raise Unresponsive(f"{self._thread.name} did not answer within {timeout_s:g} s")

    def _why_not(self) -> Unresponsive:
        if self._failure is None:
            return Unresponsive(f"{self._thread.name} is not running")
        return HasEnded(f"{self._thread.name} has ended: {self._failure}")

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._live, clock=self._clock)
        except BaseException as failure:
            self._failure = _alone(failure)
        finally:
            self._begun.set()
            self._ready.set()

    async def _live(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._begun.set()
            await nursery.start(self._serve)
            self._ready.set()


def _raise(error: BaseException) -> NoReturn:
    raise error


def _alone(failure: BaseException) -> BaseException:
    """The exception without the groups around it, if it is the only one in them."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure


_running: "WeakSet[Loop]" = WeakSet()


@atexit.register
def _stop_all() -> None:
    for loop in list(_running):
        if loop.is_running:  # in a forked child it is not
            loop.stop()
