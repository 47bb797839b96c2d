"""A broker in a thread of the test's own process: it starts in milliseconds."""

from collections.abc import Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any

from trioka.broker.membership.log_directories import LogDirectoriesOffline

from .loop import Loop
from .node import Node
from .runner import ANSWER_S, Unresponsive


class ThreadHost:
    def __init__(self, folder: str, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = settings
        self._node: Node | None = None
        self._loop: Loop | None = None

    def start(self, port: int) -> int:
        assert self._loop is None
        node = Node(self._folder, self._settings, port)
        loop = Loop(node.run, name="trioka-broker", clock=node.clock)
        loop.start()
        self._node, self._loop = node, loop
        return node.port

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(LogDirectoriesOffline):  # every command since has raised it
                loop.stop()

    @property
    def is_running(self) -> bool:
        return self._loop is not None and self._loop.is_running

    def call(self, order: str, *, timeout_s: float = ANSWER_S, **details: Any) -> Any:
        if self._loop is None:
            raise Unresponsive("the broker is not running")
        carry_out = getattr(self._node, order)
        ask = self._loop.wait if iscoroutinefunction(carry_out) else self._loop.call
        return ask(lambda: carry_out(**details), timeout_s=timeout_s)

    @property
    def log_tail(self) -> str:
        return "" if self._node is None else "\n".join(self._node.journal.lines)
