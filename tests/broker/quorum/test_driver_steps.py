"""One node of a quorum of three, without the other two: what it writes, tells and believes, and in which order.

The others are played by the test, which says what they would say. Each rule has a mistake that it notices.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing
from mutants.plant import planted, within

from trioka.broker.clock import SystemClock
from trioka.broker.config.server import load
from trioka.broker.peers.peer import Peers
from trioka.broker.quorum import driver as the_real_quorum
from trioka.broker.quorum import store as the_real_files
from trioka.broker.quorum.remote import QuorumClient
from trioka.cluster.controller import Controller
from trioka.cluster.metadata_log import build_batch
from trioka.cluster.raft import RaftSettings
from trioka.cluster.raft_messages import (
    EpochAndOffset,
    RaftFetchRequest,
    RaftVoteRequest,
    RaftVoteResponse,
    SendRequest,
)
from trioka.cluster.settings import ControllerSettings
from trioka.cluster.snapshot import SnapshotId, build_snapshot
from trioka.cluster.voters import ReplicaKey, VoterSet
from trioka.protocol.errors import NotController
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.internal_records.metadata import NoOpRecord
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.storage.directory import LogDirectory
from trioka.storage.disk import OsDisk

LONG_MS = 3_600_000  # nothing happens by itself
ME, SECOND, THIRD = ReplicaKey(1, b"1" * 16), ReplicaKey(2, b"2" * 16), ReplicaKey(3, b"3" * 16)
PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.quorum.voters": "1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3",
    "log.dirs": "unused",
}


class OneOfThree:
    """Its directory may be opened again: what was not written is forgotten then."""

    def __init__(self, path: Path, quorum: ModuleType, files: ModuleType) -> None:
        self._loaded = load(PROPERTIES)
        self._settings = the_real_files.QuorumSettings.of(self._loaded.config)
        self._directory = LogDirectory.open(
            OsDisk(),
            str(path),
            lambda name: self._settings.log,
            now_ms=0,
            random=Random(1),
            on_failure=lambda error: None,
        )
        self.sent: list[SendRequest] = []
        self.files = files.QuorumStore.open(
            self._directory, SystemClock(), self._settings, VoterSet.of(map(ReplicaKey, (1, 2, 3)))
        )
        self._module = quorum

    def begin(self) -> None:
        self.quorum: Any = self._module.Quorum(
            self.files,
            SystemClock(),
            self._loaded.node,
            ME.directory,
            "cluster",
            self._settings,
            RaftSettings(election_timeout_ms=LONG_MS, fetch_timeout_ms=LONG_MS, backoff_ms=1),
            Random(1),
        )
        self.quorum.send = self.sent.append
        settings = ControllerSettings(node_id=1, cluster_id="cluster")
        self.quorum.controller = Controller(self.quorum.metadata, settings, Random(1))

    def close(self) -> None:
        self._directory.close_handles()

    # -- what the others say -------------------------------------------------------------------------------------------

    def win(self) -> None:
        quorum = self.quorum
        quorum.step(quorum.raft.tick(quorum.now_ms() + 3 * LONG_MS))
        for is_pre_vote in (True, False):
            result = RaftVoteResponse(
                voter=SECOND,
                epoch=quorum.epoch,
                leader_id=None,
                is_granted=True,
                request_epoch=quorum.epoch,
                is_pre_vote=is_pre_vote,
            )
            quorum.step(quorum.raft.on_vote_response(result, quorum.now_ms()))
        assert quorum.raft.is_leader

    def acknowledge(self) -> None:
        """The second has all that this leader has, made durable."""
        quorum = self.quorum
        requested = RaftFetchRequest(replica=SECOND, epoch=quorum.epoch, end=self.files.end)
        result, actions = quorum.raft.on_fetch_request(requested, quorum.now_ms())
        assert not result.is_refused
        quorum.step(actions)

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(30):
            while not condition():
                await trio.sleep(0.001)

    @asynccontextmanager
    async def active(self) -> AsyncIterator[None]:
        self.begin()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.quorum.run)
            self.win()
            while not self.quorum.is_active:
                self.acknowledge()
                await trio.sleep(0.001)
            yield
            nursery.cancel_scope.cancel()


Rule = Callable[[ModuleType, ModuleType], Coroutine[Any, Any, None]]


@asynccontextmanager
async def one_of_three(quorum: ModuleType, files: ModuleType) -> AsyncIterator[OneOfThree]:
    with TemporaryDirectory() as path:
        node = OneOfThree(Path(path), quorum, files)
        try:
            yield node
        finally:
            node.close()


def quota(value: float) -> Any:
    """A change that needs no broker."""
    entry = AlterClientQuotasRequest.Entry
    entity = entry.Entity(entity_type="user", entity_name="ann")
    return [entry(entity=[entity], ops=[entry.Op(key="producer_byte_rate", value=value, remove=False)])]


# -- the rules ---------------------------------------------------------------------------------------------------------


async def a_vote_is_durable_before_it_is_sent(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node:
        node.begin()
        raft = node.quorum.raft
        requested = RaftVoteRequest(candidate=SECOND, epoch=7, end=EpochAndOffset(5, 5), is_pre_vote=False)
        result, actions = raft.on_vote_request(requested, node.quorum.now_ms())
        node.quorum.step(actions)
        assert result.is_granted
        kept = node.files.load_state()
        assert (kept.epoch, kept.voted.id) == (7, 2)


async def nothing_is_believed_that_only_the_leader_has(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node, node.active():
        end = node.quorum.log.log_end_offset
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.quorum.change, lambda controller: controller.alter_client_quotas(quota(5.0)))
            await node.until(lambda: node.files.durable_offset > end)
            await trio.testing.wait_all_tasks_blocked()
            assert not list(node.quorum.metadata.quotas)
            node.acknowledge()
        assert len(list(node.quorum.metadata.quotas)) == 1


async def a_new_leader_does_not_say_how_much_is_committed(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node:
        node.begin()
        node.win()
        assert node.quorum.advertised_high_watermark == -1


async def a_leader_that_ceases_does_not_call_its_change_done(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node, node.active():
        end = node.quorum.log.log_end_offset
        outcome: list[object] = []

        async def change() -> None:
            try:
                outcome.append(await node.quorum.change(lambda c: c.alter_client_quotas(quota(5.0))))
            except NotController as error:
                outcome.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            await node.until(lambda: node.files.durable_offset > end)
            epoch = node.quorum.epoch + 1
            node.quorum.step(node.quorum.raft.on_leader_known(epoch, THIRD.id, node.quorum.now_ms()))
            with trio.fail_after(10):
                while not outcome:
                    await trio.sleep(0.001)
        assert isinstance(outcome[0], NotController)


async def only_the_active_controller_decides(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node:
        node.begin()
        node.win()  # and nothing of its epoch is committed yet
        with pytest.raises(NotController), trio.fail_after(2):
            await node.quorum.change(lambda controller: controller.alter_client_quotas(quota(5.0)))


async def voters_that_were_cut_off_never_voted(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node:
        node.begin()
        node.win()
        end = node.quorum.log.log_end_offset
        node.quorum.append_control([voters(1, 2)])
        assert len(node.quorum.raft.voters.latest) == 2
        node.files.truncate(end)
        assert len(node.quorum.raft.voters.latest) == 3
        assert node.quorum.voters is None


async def a_log_that_parted_before_a_leaders_snapshot_is_not_kept(quorum: ModuleType, files: ModuleType) -> None:
    """The power failed after the snapshot was written, and before the log was restarted."""
    async with one_of_three(quorum, files) as node:
        node.begin()
        node.win()
        for _ in range(5):
            node.quorum.append_control([voters(1, 2, 3)])
        end = node.quorum.log.log_end_offset
        snapshot = SnapshotId(end - 2, 9)
        data = b"".join(build_snapshot([], epoch=9, now_ms=0, last_contained_log_timestamp_ms=0))
        node.files.write_snapshot(snapshot, data)
        again = files.QuorumStore.open(node._directory, SystemClock(), node._settings, node.quorum.raft.voters.latest)
        assert again.end == EpochAndOffset(9, end - 2)


def voters(*ids: int) -> VotersRecord:
    voter = VotersRecord.Voter
    feature = voter.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    return VotersRecord(
        version=0,
        voters=[
            voter(voter_id=id, voter_directory_id=b"%d" % id * 16, endpoints=[], kraft_version_feature=feature)
            for id in ids
        ],
    )


async def voters_of_the_configuration_cannot_be_changed(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node:
        node.begin()
        node.win()
        other = VoterSet.of(map(ReplicaKey, (1, 4, 5)))
        with pytest.raises(files.VotersDisagree):
            files.QuorumStore.open(node._directory, SystemClock(), node._settings, other).load_state()


WRITTEN_MS = 1_700_000_000_000


async def a_follower_with_a_snapshot(node: OneOfThree) -> SnapshotId:
    """The leader has written a record long ago, and advertised it as committed."""
    node.begin()
    data = build_batch([NoOpRecord()], base_offset=node.files.end.offset, epoch=1, now_ms=WRITTEN_MS)
    node.files.append_fetched(memoryview(data))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.quorum.run)
        node.quorum.log.advance_high_watermark(node.files.end.offset)
        node.quorum.wake()
        await node.until(lambda: node.quorum.applied == node.files.end.offset)
        taken: SnapshotId = await node.quorum.take_snapshot()
        nursery.cancel_scope.cancel()
    return taken


async def a_snapshot_says_when_its_newest_record_was_written(quorum: ModuleType, files: ModuleType) -> None:
    """As Kafka's does, on whichever node it is taken, and whatever comes behind it."""
    async with one_of_three(quorum, files) as node:
        taken = await a_follower_with_a_snapshot(node)
        assert node.files.read_snapshot(taken).last_contained_log_timestamp_ms == WRITTEN_MS


async def what_a_snapshot_says_of_its_age_is_remembered(quorum: ModuleType, files: ModuleType) -> None:
    async with one_of_three(quorum, files) as node:
        await a_follower_with_a_snapshot(node)
        node.begin()
        assert node.quorum._contained_ms == WRITTEN_MS


RULES: list[tuple[Rule, ModuleType, str, str]] = [
    (a_vote_is_durable_before_it_is_sent, the_real_quorum, "self.files.save(persisted)", "pass"),
    (
        nothing_is_believed_that_only_the_leader_has,
        the_real_quorum,
        "self._unsynced.set()\n        self._wake()",
        "self.log.advance_high_watermark(end)\n        self._unsynced.set()\n        self._wake()",
    ),
    (
        a_new_leader_does_not_say_how_much_is_committed,
        the_real_quorum,
        "return UNKNOWN if isinstance(role, Leader) and known <= role.epoch_start else known",
        "return known",
    ),
    (
        a_leader_that_ceases_does_not_call_its_change_done,
        the_real_quorum,
        within("Quorum._is_written", "raise NotController"),
        "return True",
    ),
    (
        only_the_active_controller_decides,
        the_real_quorum,
        "return self.raft.is_leader and self._active_epoch == self.raft.epoch",
        "return self.raft.is_leader",
    ),
    (
        voters_of_the_configuration_cannot_be_changed,
        the_real_files,
        "if known and not self.kraft_version and known != configured:",
        "if False:",
    ),
    (voters_that_were_cut_off_never_voted, the_real_files, "self.voters.truncate(offset)", "pass"),
    (
        a_log_that_parted_before_a_leaders_snapshot_is_not_kept,
        the_real_files,
        "return is_there and metadata_log.epochs.epoch_for_offset(snapshot.offset - 1) == snapshot.epoch",
        "return is_there",
    ),
    (
        a_snapshot_says_when_its_newest_record_was_written,
        the_real_quorum,
        "self._contained_ms = header.max_timestamp",
        "pass",
    ),
    (
        what_a_snapshot_says_of_its_age_is_remembered,
        the_real_quorum,
        within("Quorum._load_snapshot", "self._contained_ms = content.last_contained_log_timestamp_ms"),
        "pass",
    ),
]


def run(rule: Rule, quorum: ModuleType, files: ModuleType) -> None:
    async def within_limits() -> None:
        with trio.fail_after(60):
            await rule(quorum, files)

    trio.run(within_limits)


@pytest.mark.parametrize("rule", list(dict.fromkeys(rule for rule, *_ in RULES)), ids=lambda rule: rule.__name__)
def test_a_node_of_three_keeps_the_rule(rule: Rule) -> None:
    run(rule, the_real_quorum, the_real_files)


@pytest.mark.parametrize(("rule", "module", "right", "wrong"), RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_mistake_is_noticed(rule: Rule, module: ModuleType, right: str, wrong: str) -> None:
    mistaken = planted(module, right, wrong)
    modules = (mistaken, the_real_files) if module is the_real_quorum else (the_real_quorum, mistaken)
    with pytest.raises((Exception, pytest.fail.Exception)):
        run(rule, *modules)


def test_what_a_leader_wrote_last_is_durable_before_it_follows() -> None:
    """Its fetch acknowledges it. It ceased to lead while it made durable what it had written before."""

    class RecordingClient(QuorumClient):
        sent: RaftFetchRequest | None = None

        async def _fetch(self, leader_id: int | None, requested: RaftFetchRequest) -> bool:
            self.sent = requested
            return True

    async def rule(node: OneOfThree) -> None:
        quorum, sync = node.quorum, node.files.sync

        def write() -> None:
            at = node.files.end.offset
            quorum._append(build_batch([NoOpRecord()], base_offset=at, epoch=quorum.epoch, now_ms=WRITTEN_MS))

        def cease() -> None:
            write()
            quorum.step(quorum.raft.on_leader_known(quorum.epoch + 1, THIRD.id, quorum.now_ms()))

        def sync_and_cease() -> None:
            node.files.sync = sync
            sync()
            trio.from_thread.run_sync(cease)

        following = RecordingClient(quorum, Peers("test"), request_timeout_s=1.0, backoff_s=1.0, fetch_bytes=1)
        node.files.sync = sync_and_cease
        write()
        while following.sent is None:
            await following._fetch_once()
        assert following.sent.end == node.files.end
        assert node.files.durable_offset == node.files.end.offset

    async def main() -> None:
        async with one_of_three(the_real_quorum, the_real_files) as node, node.active():
            with trio.fail_after(60):
                await rule(node)

    trio.run(main)
