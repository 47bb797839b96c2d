"""Commits a pipeline's progress to its consumer group, without delaying the stream.

A separate thread commits the newest offsets; if the broker is slow, older offsets that were not sent yet are skipped.
If a commit fails, the stream continues and reports it once: the checkpoint decides where a run continues, and the
group only shows the progress to tools.
"""

import threading
from collections.abc import Callable

from ..declaration.model import Positions
from ..installation.cache import Unavailable
from ..sources.broker_view import BrokerView
from ..sources.brokers import Brokers
from ..sources.offsets import to_json

CLOSE_TIMEOUT_S = 30.0


class GroupProgress:
    """Use it in a `with`: at its end, the last offsets have been sent or abandoned."""

    def __init__(self, brokers: Brokers, group: str, say: Callable[[str], None]) -> None:
        self._brokers = brokers
        self._group = group
        self._say = say
        self._newest: Positions | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="group progress", daemon=True)

    def __enter__(self) -> "GroupProgress":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def tell(self, positions: Positions) -> None:
        with self._changed:
            self._newest = positions
            self._changed.notify()

    def _run(self) -> None:
        text = sent = ""
        view: BrokerView | None = None
        while (positions := self._next()) is not None:
            if to_json(positions) == sent:
                continue
            try:
                view = self._commit(view, positions)
                sent, text = to_json(positions), ""
            except Unavailable as error:
                view = None
                if not text:
                    self._say(f"note: the offsets of this batch are not committed to the group {self._group}: {error}")
                text = str(error)
        if view is not None:
            view.close()

    def _commit(self, view: BrokerView | None, positions: Positions) -> BrokerView:
        """Commit by this connection, or by a new one if it was lost; returns the one that works."""
        if view is not None:
            try:
                view.commit(self._group, positions)
                return view
            except Unavailable:
                view.close()
        view = BrokerView(self._brokers)
        try:
            view.commit(self._group, positions)
        except Unavailable:
            view.close()
            raise
        return view

    def _next(self) -> Positions | None:
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._is_closed)
            positions, self._newest = self._newest, None
            return positions
