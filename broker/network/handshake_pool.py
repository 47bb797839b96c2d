"""TLS handshakes, in one worker thread: an RSA signature takes as long as a hundred small requests.

The event loop keeps the sockets. It passes a handshake with the received bytes to the thread, does not read its socket
meanwhile, and gets the result from `take_finished` when `descriptor`, an eventfd in the loop's epoll, is readable. One
thread is enough: the other processors are for requests, and OpenSSL releases the GIL.
"""

import contextlib
import os
import queue
import ssl
import threading
from collections import deque
from enum import Enum
from typing import Final, Protocol

THREAD_NAME: Final = "trioka-tls-handshakes"


class HandshakeProgress(Enum):
    DONE = 0
    NEEDS_BYTES = 1
    FAILED = 2


class Handshake(Protocol):
    tls: ssl.SSLObject
    progress: HandshakeProgress
    error: Exception | None


class HandshakePool:
    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting: queue.SimpleQueue[Handshake | None] = queue.SimpleQueue()
        self._finished: deque[Handshake] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def submit(self, handshake: Handshake) -> None:
        self._waiting.put(handshake)

    def wake(self) -> None:
        """Makes the descriptor readable."""
        os.eventfd_write(self.descriptor, 1)

    def acknowledge(self) -> None:
        """Makes the descriptor unreadable until the next result."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def take_finished(self) -> list[Handshake]:
        """The handshakes with a new result."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def close(self) -> None:
        """Stops the thread after its current handshake."""
        self._is_closing = True
        self._waiting.put(None)
        self._thread.join()
        os.close(self.descriptor)

    def _work(self) -> None:
        while (handshake := self._waiting.get()) is not None:
            if not self._is_closing:
                self._advance(handshake)
            self._finished.append(handshake)
            self.wake()

    def _advance(self, handshake: Handshake) -> None:
        try:
            handshake.tls.do_handshake()
            handshake.progress = HandshakeProgress.DONE
        except ssl.SSLWantReadError:
            handshake.progress = HandshakeProgress.NEEDS_BYTES
        except Exception as error:  # an error must not end the thread, which all later clients need
            handshake.progress, handshake.error = HandshakeProgress.FAILED, error
