"""File descriptor shortage: the broker closes files that it can reopen, and waits a moment.

The limit holds for the whole process, so the files of all log directories are closed. A moment later connections may
have ended too, which frees further descriptors.
"""

from collections.abc import Iterable
from typing import Final

import trio

from trioka.storage.files.file_pool import FilePool

SHORTAGE_WAIT_S: Final = 0.1  # after storage.sync.SHORTAGE_TRIES waits the client gets a retriable error


async def free_descriptors(pools: Iterable[FilePool]) -> None:
    for pool in pools:
        pool.release_descriptors()
    await trio.sleep(SHORTAGE_WAIT_S)
