"""What a broker does when it runs out of descriptors: it closes files that it can open again, and waits a moment.

Descriptors are the process's, not a directory's. Connections come and go, so that a moment later there may be some.
"""

from collections.abc import Iterable
from typing import Final

import trio

from trioka.storage.file_pool import FilePool

SHORTAGE_WAIT_S: Final = 0.1  # after storage.sync.SHORTAGE_TRIES of these it is the client's turn to try again


async def free_descriptors(pools: Iterable[FilePool]) -> None:
    for pool in pools:
        pool.give_back()
    await trio.sleep(SHORTAGE_WAIT_S)
