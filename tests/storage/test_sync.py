"""Group commit: who shares an fsync with whom, and what happens when one fails."""

import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from trioka.protocol.errors import KafkaStorageError
from trioka.storage.disk import OsDisk
from trioka.storage.failstop_disk import FailStopDisk
from trioka.storage.sync import FLUSH_THREADS, GroupCommit, Syncable
from trioka.testing.disks.crash_models import LOST
from trioka.testing.disks.disk_faults import Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk


class Platter:
    """A file whose fsyncs end when the test says so. They are performed by tasks, so that nothing depends on time."""

    def __init__(self) -> None:
        self.begun = 0
        self.running = 0
        self.release = trio.Semaphore(0)
        self.error: Exception | None = None

    def sync(self) -> None:
        self.begun += 1
        if self.error is not None:
            raise self.error

    async def offload(self, work: Callable[[], None]) -> None:
        try:
            self.running += 1
            work()
            await self.release.acquire()
        finally:
            self.running -= 1


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


Scenario = Callable[[GroupCommit, Platter], Awaitable[None]]


def run(requested: Scenario) -> None:
    async def main() -> None:
        platter = Platter()
        async with trio.open_nursery() as nursery:
            await requested(GroupCommit(nursery, offload=platter.offload), platter)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_all_requests_before_its_start_share_one_fsync() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        platter.release.release()
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(commit.flush, platter)
        assert platter.begun == 1

    run(request)


def test_a_request_during_a_flush_waits_for_the_next_one() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        done: list[str] = []

        async def ask(name: str) -> None:
            await commit.flush(platter)
            done.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a")
            nursery.start_soon(ask, "b")
            await settle()
            assert platter.begun == 1
            nursery.start_soon(ask, "c")
            await settle()
            nursery.start_soon(ask, "d")
            await settle()
            assert platter.begun == 1
            platter.release.release()
            await settle()
            assert sorted(done) == ["a", "b"]
            assert platter.begun == 2
            platter.release.release()
            await settle()
            assert sorted(done) == ["a", "b", "c", "d"]
            assert platter.begun == 2

    run(request)


class JoinsARunningFsync(GroupCommit):
    """The mistake: a round is open to newcomers until its fsync has ended, not until it has begun."""

    async def _serve(self, file: Syncable) -> None:
        async with self._limiter:
            await self._sync(file, self._next[file])
        del self._next[file]
        self._served.discard(file)


@pytest.mark.parametrize("kind", [GroupCommit, pytest.param(JoinsARunningFsync, marks=pytest.mark.xfail(strict=True))])
def test_a_flush_covers_all_that_was_written_before_it(kind: type[GroupCommit]) -> None:
    async def main() -> None:
        disk = MemoryDisk({"/f": b""})
        file = disk.open("/f")
        platter = Platter()

        async def write(position: int) -> None:
            file.write(position, b"x")
            await commit.flush(file)
            pending = disk.pending()
            found = disk.after(pending, [LOST] * len(pending))  # the worst that a crash can do now
            assert found.size("/f") > position

        async with trio.open_nursery() as nursery:
            commit = kind(nursery, offload=platter.offload)
            async with trio.open_nursery() as writers:
                for position in range(20):
                    writers.start_soon(write, position)
                    await settle()
                    if position % 3 == 2:
                        platter.release.release()
                for _ in range(20):
                    platter.release.release()

    trio.run(main)


def test_a_cancelled_waiter_cancels_no_other_flush() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        done: list[str] = []
        impatient = trio.CancelScope()

        async def leave() -> None:
            with impatient:
                await commit.flush(platter)
            assert impatient.cancelled_caught

        async def stay(name: str) -> None:
            await commit.flush(platter)
            done.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)  # the first to ask
            await settle()
            nursery.start_soon(stay, "b")
            await settle()
            impatient.cancel()
            await settle()
            platter.release.release()
            platter.release.release()
        assert done == ["b"]
        assert platter.begun == 2

    run(request)


def test_an_error_reaches_every_waiter_and_is_never_tried_again() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        platter.error = OSError(errno.EIO, "broken")
        result: list[str] = []

        async def ask() -> None:
            with pytest.raises(KafkaStorageError, match="broken") as refusal:
                await commit.flush(platter)
            assert refusal.value.__cause__ is platter.error
            result.append("yes")

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert len(result) == 5
        platter_error, platter.error = platter.error, None
        platter.release.release()
        with pytest.raises(KafkaStorageError):
            await commit.flush(platter)
        with pytest.raises(KafkaStorageError):
            await commit.flush(Platter())  # another file of the same directory
        assert platter.begun == 1
        assert commit.failure is platter_error

    run(request)


def test_waiters_of_the_next_one_get_the_error_too() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        async def ask(refused: bool) -> None:
            if refused:
                with pytest.raises(KafkaStorageError):
                    await commit.flush(platter)
            else:
                await commit.flush(platter)

        bad = Platter()
        bad.error = OSError(errno.EIO, "broken")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, False)
            await settle()
            nursery.start_soon(ask, True)  # waits for the second fsync
            await settle()
            with pytest.raises(KafkaStorageError):
                await commit.flush(bad)
            platter.release.release()  # the first was a success, and stays one
        assert platter.begun == 1

    run(request)


def test_files_do_not_wait_for_each_other() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        others = [Platter() for _ in range(FLUSH_THREADS - 1)]
        async with trio.open_nursery() as nursery:
            for file in (platter, *others):
                nursery.start_soon(commit.flush, file)
            await settle()
            assert [file.begun for file in (platter, *others)] == [1] * FLUSH_THREADS
            for _ in range(FLUSH_THREADS):
                platter.release.release()

    run(request)


def test_so_many_run_at_a_time_and_a_request_before_its_turn_still_shares() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        files = [Platter() for _ in range(FLUSH_THREADS + 1)]
        async with trio.open_nursery() as nursery:
            for file in files:
                nursery.start_soon(commit.flush, file)
                await settle()
            assert platter.running == FLUSH_THREADS
            waiting = files[-1]
            assert waiting.begun == 0
            nursery.start_soon(commit.flush, waiting)
            await settle()
            for _ in files:
                platter.release.release()
        assert waiting.begun == 1

    run(request)


def test_no_task_hangs_when_the_nursery_ends() -> None:
    async def main() -> None:
        platter = Platter()
        result: list[str] = []

        async def ask(commit: GroupCommit) -> None:
            with pytest.raises(KafkaStorageError):
                await commit.flush(platter)
            result.append("yes")

        async with trio.open_nursery() as waiters, trio.open_nursery() as nursery:
            commit = GroupCommit(nursery, offload=platter.offload)
            waiters.start_soon(ask, commit)
            await settle()
            waiters.start_soon(ask, commit)
            await settle()
            nursery.cancel_scope.cancel()
        assert result == ["yes", "yes"]

    trio.run(main)


def test_an_internal_error_is_not_hidden_and_no_request_hangs() -> None:
    async def request(commit: GroupCommit, platter: Platter) -> None:
        platter.error = TypeError("a mistake")
        with trio.CancelScope(shield=True), pytest.raises(KafkaStorageError, match="a mistake"):
            await commit.flush(platter)

    with pytest.raises(ExceptionGroup) as mistake:
        run(request)
    assert mistake.group_contains(TypeError)


# In threads, on files.


def test_a_flush_of_a_real_file_returns_when_it_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        file = OsDisk().open(f"{tmp_path}/f", create=True)
        async with trio.open_nursery() as nursery:
            commit = GroupCommit(nursery)
            for number in range(10):
                file.write(number, b"x")
                await commit.flush(file)
        file.close()

    trio.run(main)


def test_the_loop_goes_on_while_a_thread_waits_for_the_disk() -> None:
    class Slow:
        def __init__(self) -> None:
            self.released = threading.Event()
            self.threads: list[int] = []

        def sync(self) -> None:
            self.threads.append(threading.get_ident())
            self.released.wait()

    async def main() -> None:
        slow = Slow()
        async with trio.open_nursery() as nursery:
            commit = GroupCommit(nursery)
            async with trio.open_nursery() as waiters:
                waiters.start_soon(commit.flush, slow)
                while not slow.threads:
                    await trio.lowlevel.checkpoint()
                waiters.start_soon(commit.flush, slow)
                await trio.testing.wait_all_tasks_blocked()
                slow.released.set()
        assert len(slow.threads) == 2
        assert threading.get_ident() not in slow.threads

    trio.run(main)


def test_a_failing_fsync_of_the_kernel_is_kept() -> None:
    class Pipe:
        """A pipe cannot be synced: the kernel says EINVAL."""

        def __init__(self) -> None:
            self.ends = os.pipe()

        def sync(self) -> None:
            os.fsync(self.ends[1])

    async def main() -> None:
        pipe = Pipe()
        async with trio.open_nursery() as nursery:
            commit = GroupCommit(nursery)
            for _ in range(2):
                with pytest.raises(KafkaStorageError):
                    await commit.flush(pipe)
        for end in pipe.ends:
            os.close(end)

    trio.run(main)


def test_a_flush_that_failed_takes_the_volume_offline() -> None:
    async def at_once(work: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        work()

    async def main() -> None:
        disk = MemoryDisk()
        disk.make_directory("/logs")
        volume = FailStopDisk(disk, "/logs")
        file = volume.open("/logs/f", create=True)
        file.write(0, b"x")
        disk.faults.add(Fault(kinds=frozenset({Kind.SYNC}), effect=Effect.DROPS))
        async with trio.open_nursery() as nursery:
            commit = GroupCommit(nursery, offload=at_once)
            with pytest.raises(KafkaStorageError, match="/logs is offline"):
                await commit.flush(file)
        with pytest.raises(KafkaStorageError):
            file.write(1, b"y")

    trio.run(main)
