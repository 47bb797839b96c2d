"""The lines of standard input or of a file, as they arrive: reading waits for no more than there is.

A line ends with LF or CR LF. The last one may have no end.
"""

import os
from typing import Any, Final

from ..terminal.failure import Failure

READ_BYTES: Final = 64 << 10  # as much as a pipe holds
MAX_LINE_BYTES: Final = 64 << 20


class LineReader:
    def __init__(self, source: Any) -> None:
        """`source` is a binary file; if it has no descriptor, it never waits."""
        self._source = source
        try:
            self.descriptor: int | None = source.fileno()
        except OSError:
            self.descriptor = None
        self.is_ended = False
        self._begun: list[bytes] = []  # of a line whose end has not come
        self._begun_bytes = 0

    def end(self) -> None:
        """Read no more; a line that has not ended is dropped."""
        self.is_ended = True

    def read(self) -> list[bytes]:
        """The lines that have come to an end. Waits only if the descriptor is not ready."""
        try:
            chunk = self._source.read(READ_BYTES) if self.descriptor is None else os.read(self.descriptor, READ_BYTES)
        except OSError as error:
            self.is_ended = True
            raise Failure(f"the input cannot be read: {error.strerror or error}") from None
        if not chunk:
            self.is_ended = True
            return [b"".join(self._begun).removesuffix(b"\r")] if self._begun else []
        lines: list[bytes] = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._begun:
            lines[0] = b"".join((*self._begun, lines[0]))
            self._begun, self._begun_bytes = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        if self._begun_bytes > MAX_LINE_BYTES:
            self.is_ended = True
            raise Failure(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB")
        if b"\r" in chunk or (lines and lines[0].endswith(b"\r")):
            lines = [line.removesuffix(b"\r") for line in lines]
        return lines
