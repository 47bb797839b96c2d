"""The value at each position, as far as a history shows it: the versions of each key, in order.

Offsets have gaps (the markers of transactions, compacted records), so that order is given by index: the n-th offset at
which a value is known to be.
"""

from collections import defaultdict

from history.operations import History, Key, Operation, Outcome, Send, Value


class Order:
    def __init__(self, history: History) -> None:
        self.writers: dict[tuple[Key, Value], Operation] = {}
        self.readers: dict[tuple[Key, Value], list[Operation]] = defaultdict(list)
        self.values: dict[Key, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
        for operation in history.operations:
            for send in operation.sends:
                self.writers[send.key, send.value] = operation
            for read in operation.reads:
                self.readers[read.key, read.value].append(operation)
                self.values[read.key][read.offset].add(read.value)
        for operation in history.operations:
            if self.has_happened(operation):
                for send in operation.sends:
                    if send.offset is not None:
                        self.values[send.key][send.offset].add(send.value)
        self.offsets = {key: sorted(places) for key, places in self.values.items()}
        self._index = {
            (key, offset): index for key, offsets in self.offsets.items() for index, offset in enumerate(offsets)
        }
        self._indexes: dict[tuple[Key, Value], list[int]] = defaultdict(list)
        for key, offsets in self.offsets.items():
            for index, offset in enumerate(offsets):
                for value in self.values[key][offset]:
                    self._indexes[key, value].append(index)

    def has_happened(self, operation: Operation) -> bool:
        """Certainly: it was acknowledged, or a client has read a value of it."""
        if operation.outcome is Outcome.OK:
            return True
        return operation.outcome is Outcome.INFO and any(self.was_read(send) for send in operation.sends)

    def was_read(self, send: Send) -> bool:
        return (send.key, send.value) in self.readers

    def index(self, key: Key, offset: int) -> int:
        return self._index[key, offset]

    def indexes(self, key: Key, value: Value) -> list[int]:
        """The positions of a value: one, if all is correct; none, if the position is unknown."""
        return self._indexes.get((key, value), [])
