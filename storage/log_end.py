"""Where a log ends, and how much of it was appended by its leader since it was opened.

For metrics. Batches and bytes are counted by those who append; messages are not: offsets count them. What moves the end
of a log and is no append of its leader (a copy from another leader, a cut) is taken off again by `move_end`.
"""


class LogEnd:
    __slots__ = ("_not_appended", "appended_batches", "appended_bytes", "log_end_offset", "touched")

    def __init__(self, log_end_offset: int) -> None:
        self.log_end_offset = log_end_offset
        self.touched = False  # since it was opened: a log that was not need not be synced when it is closed
        self.appended_batches = 0
        self.appended_bytes = 0
        self._not_appended = log_end_offset  # of the offsets before the end

    @property
    def appended_messages(self) -> int:
        return self.log_end_offset - self._not_appended

    def move_end(self, offset: int) -> None:
        """To this offset, and not because a leader has appended."""
        self._not_appended += offset - self.log_end_offset
        self.log_end_offset = offset

    def count_on(self, former: "LogEnd") -> None:
        """This log takes the place of another: what was appended to that, counts here."""
        self.appended_batches, self.appended_bytes = former.appended_batches, former.appended_bytes
        self._not_appended = self.log_end_offset - former.appended_messages
