"""The aborted transactions of a segment: what `read_committed` has to skip.

    | version int16 = 0 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64 |

An entry is appended to the segment that holds the abort marker, so the last offset (the marker's) rises from entry to
entry, and a look-up can bisect for the first transaction that ends at or after the fetch offset. From there it reads
on until an entry's *last stable offset* reaches the end of what is fetched: that is where the log was stable when the
marker was written, so every transaction with a later entry begins at or after it. If no entry reaches it, the search
continues in the next segment.

The file is made at the first abort: most segments never have one. No checksum protects it, so it is trusted only as
far as it makes sense (`sanity_check`), and it is rebuilt from the log when it does not. Nothing is kept in memory but
the size, and no descriptor between two calls: an abort and a look-up among aborts are rare enough to open a file for.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ..files.disk import Disk, File
from ..files.layout import CorruptFile

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = ENTRY.size
assert ENTRY_SIZE == 34

CHUNK_ENTRIES: Final = 240  # 8,160 bytes: two pages at a time
MAX_ABORTED: Final = 1_000_000
"""The limit in one answer. Each entry costs a reader 16 bytes on the wire and a table entry; more is an attack."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndexSearchResult(NamedTuple):
    """The result of a look-up in one segment; `complete` if no later segment has to be searched."""

    transactions: list[AbortedTransaction]
    complete: bool


class TransactionIndex:
    """The `.txnindex` of one segment. Code that renames the files of the segment sets `path`."""

    __slots__ = ("_disk", "_last_offset", "_size", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._size = -1  # in bytes, a multiple of ENTRY_SIZE; -1 until the file was looked at
        self._last_offset = -1

    # Reading ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._known_size() // ENTRY_SIZE

    def __iter__(self) -> Iterator[AbortedTransaction]:
        with self._open() as file:
            yield from self._from(file, 0)

    def overlapping(self, fetch_offset: int, upper_bound: int) -> TxnIndexSearchResult:
        """The aborted transactions with records in [fetch_offset, upper_bound)."""
        found: list[AbortedTransaction] = []
        with self._open() as file:
            for entry in self._from(file, self._first_ending_from(file, fetch_offset)):
                if entry.first_offset < upper_bound:
                    if len(found) == MAX_ABORTED:
                        raise CorruptFile(self.path, f"more than {MAX_ABORTED} aborted transactions in one read")
                    found.append(entry)
                if entry.last_stable_offset >= upper_bound:
                    return TxnIndexSearchResult(found, True)
        return TxnIndexSearchResult(found, False)

    def _first_ending_from(self, file: File | None, offset: int) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(file, middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, file: File | None, number: int) -> AbortedTransaction:
        assert file is not None, "an index with entries has a file"
        return self._parse(file.read(number * ENTRY_SIZE, ENTRY_SIZE), number)[0]

    def _from(self, file: File | None, number: int) -> Iterator[AbortedTransaction]:
        count = len(self)
        while number < count:
            assert file is not None, "an index with entries has a file"
            take = min(CHUNK_ENTRIES, count - number)
            yield from self._parse(file.read(number * ENTRY_SIZE, take * ENTRY_SIZE), number)
            number += take

    def _parse(self, data: bytes, number: int) -> list[AbortedTransaction]:
        if not data or len(data) % ENTRY_SIZE:
            raise CorruptFile(self.path, f"ends inside entry {number + len(data) // ENTRY_SIZE}")
        entries = []
        for index, (version, *fields) in enumerate(ENTRY.iter_unpack(data)):
            if version != VERSION:
                raise CorruptFile(self.path, f"entry {number + index} has version {version}, not {VERSION}")
            entries.append(AbortedTransaction._make(fields))
        return entries

    def sanity_check(self) -> None:
        """Raises CorruptFile unless every entry could be one of this segment."""
        if self._disk.exists(self.path) and (odd := self._disk.size(self.path) % ENTRY_SIZE):
            raise CorruptFile(self.path, f"{odd} bytes are left over after the last entry")
        previous = self.base_offset - 1
        for number, entry in enumerate(self):
            if entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset:
                raise CorruptFile(self.path, f"entry {number}: {entry} is no transaction")
            if not previous < entry.last_offset:
                raise CorruptFile(self.path, f"entry {number} ends at {entry.last_offset}, not after {previous}")
            if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
                raise CorruptFile(self.path, f"entry {number} has last stable offset {entry.last_stable_offset}")
            previous = entry.last_offset

    # Writing ---------------------------------------------------------------------------------------------------------

    def append(self, transaction: AbortedTransaction) -> None:
        size = self._known_size()
        assert transaction.last_offset > self._last_offset, f"{transaction} after {self._last_offset}"
        with self._open(create=True) as file:
            assert file is not None, "it was created"
            file.write(size, ENTRY.pack(VERSION, *transaction))
        self._size = size + ENTRY_SIZE
        self._last_offset = transaction.last_offset

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of transactions whose marker was at `offset` or later."""
        with self._open() as file:
            keep = self._first_ending_from(file, offset)
            if file is not None and keep < len(self):
                file.truncate(keep * ENTRY_SIZE)
                self._size = keep * ENTRY_SIZE
                self._last_offset = self._entry(file, keep - 1).last_offset if keep else -1

    def reset(self) -> None:
        """Removes all entries, before a rebuild. The file may contain anything, so it is not read."""
        self._size = 0
        self._last_offset = -1
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.truncate(0)
            finally:
                file.close()

    def flush(self) -> None:
        """Make it durable (its name needs a sync of the directory, once). Blocks."""
        with self._open() as file:
            if file is not None:
                file.sync()

    def close(self) -> None:
        """Forgets the size, so that the next use opens the file again."""
        self._size = -1
        self._last_offset = -1

    def moved(self, path: str) -> None:
        self.path = path

    def _known_size(self) -> int:
        if self._size < 0:
            size = self._disk.size(self.path) if self._disk.exists(self.path) else 0
            # A torn last entry is not there yet; the next append overwrites it.
            self._size = size - size % ENTRY_SIZE
            if self._size:
                with self._open() as file:
                    self._last_offset = self._entry(file, self._size // ENTRY_SIZE - 1).last_offset
        return self._size

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[File | None]:
        """The file for as long as a `with` lasts; None if there are no entries, and so perhaps no file."""
        if not create and not self._known_size():
            yield None
            return
        file = self._disk.open(self.path, create=create)
        try:
            yield file
        finally:
            file.close()
