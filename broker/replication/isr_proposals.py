"""What leaders tell the controller: who is in sync with them.

What to propose is decided in cluster/leader_state.py, when a follower has caught up, or has not for too long. Here it
is sent, with AlterPartition, all that has come together in one request, and one request at a time; and its answer goes
back to the leader that waits for it. Nobody waits with it: a proposal whose answer is lost is made again, until it is
answered or the metadata tells.

A replica whose log is damaged stays in sync while it is mended (healing.py), unless what is damaged is not committed
yet (cluster/healing.py): a leader then cannot give it to its followers, and the end of a follower is simply missing.
It cannot leave the ISR by itself, but it can say that it is in a directory that is lost: then it is neither in sync nor
eligible, and somebody else leads. If nobody else has it all it stays where it is: what is whole can be read, the damage
is refused, and records are taken. That is for a person to decide, and is said aloud.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.healing import Cure, cure_of
from trioka.cluster.leader_state import Proposal, may_step_aside
from trioka.cluster.partition import LOST_DIRECTORY, RecoveryState
from trioka.protocol.errors import NONE, KafkaError, UnknownServerError, error_class
from trioka.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

from ..config.replication_keys import REPLICA_LAG_TIME_MAX_MS
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.in_sync")

ANSWER_S: Final = 10.0  # so long is one answer waited for
PAUSE_S: Final = 0.05  # before it is tried again
SHORTEST_LOOK_S: Final = 0.05
DAMAGE_LOOK_S: Final = 1.0

Asked = AlterPartitionRequest.Topic.Partition
Told = AlterPartitionResponse.Topic.Partition


class InSync:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[Replica, Proposal] = {}
        self._wake = trio.Event()
        self._lamented: set[Replica] = set()  # damaged, and nobody can take their place; said once

    def submit(self, replica: Replica, proposal: Proposal | None) -> None:
        """To be sent soon; None is nothing to send."""
        if proposal is not None:
            log.debug("%r: the ISR shall be %s", replica, proposal.isr)
            self._waiting[replica] = proposal
            self._wake.set()

    async def send(self) -> None:
        """For as long as the broker runs."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            proposals, self._waiting = self._waiting, {}
            current = {replica: made for replica, made in proposals.items() if _is_current(replica, made)}
            is_done = not current
            try:
                is_done = is_done or await self._ask(current)
            except Exception as mistake:  # ours; the broker has other things to do, and the next try may go better
                log.error("a mistake of ours: %d proposals", len(current), exc_info=mistake)
                for replica, made in current.items():
                    self.submit(replica, made)
            if not is_done:
                await trio.sleep(PAUSE_S)

    async def watch(self) -> None:
        """Looks for followers that have fallen behind, at half the time that they may."""
        while True:
            await trio.sleep(max(self._broker.config[REPLICA_LAG_TIME_MAX_MS] / 2000, SHORTEST_LOOK_S))
            self.look()

    async def mind_damage(self) -> None:
        while True:
            await trio.sleep(DAMAGE_LOOK_S)
            try:
                await self._step_aside()
            except KafkaError as error:
                log.warning("a replica whose log is damaged cannot step aside: %s", error)

    def look(self) -> None:
        now = self._broker.clock.now()
        for replica in self._broker.partitions:
            leadership = replica.leadership
            if leadership is not None:
                proposal = leadership.shrinkage(replica.log.log_end_offset, now, replica.max_lag_s)
                if proposal is not None:
                    log.info("%r: the ISR %s shall shrink to %s", replica, leadership.isr, proposal.isr)
                    self.submit(replica, proposal)

    async def _step_aside(self) -> None:
        """Those that are damaged and not needed say so; the controller learns where they are when they are out."""
        broker, damaged, is_astray = self._broker, [], False
        for replica in broker.partitions:
            topic = broker.metadata.topics.by_id(replica.topic_id)
            partition = None if topic is None else topic.partitions.get(replica.index)
            if partition is None or broker.node_id not in partition.replicas:
                continue
            is_astray |= partition.directory(broker.node_id) == LOST_DIRECTORY
            if not _lacks_what_is_not_committed(replica):
                self._lamented.discard(replica)
            elif may_step_aside(partition, broker.node_id, broker.metadata.brokers.is_active):
                damaged.append(replica)
            elif replica.leads and replica not in self._lamented:
                self._lamented.add(replica)
                log.error("%r: its log is damaged, and nobody else has it all", replica)
        if damaged:
            await self._say_lost(damaged)
        elif is_astray:
            broker.say_directories_soon()

    async def _say_lost(self, damaged: list[Replica]) -> None:
        told = AssignReplicasToDirsRequest.Directory.Topic
        topics: dict[bytes, list[AssignReplicasToDirsRequest.Directory.Topic.Partition]] = {}
        for replica in damaged:
            log.warning("%r: its log is damaged, others shall do without it", replica)
            topics.setdefault(replica.topic_id, []).append(told.Partition(partition_index=replica.index))
        lost = AssignReplicasToDirsRequest.Directory(
            id=LOST_DIRECTORY, topics=[told(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
        )
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch, directories=[lost]
        )
        await self._broker.controller.ask(request, timeout_s=ANSWER_S)

    async def _ask(self, proposals: dict[Replica, Proposal]) -> bool:
        """False if something has to be asked again."""
        answers: dict[tuple[bytes, int], Told] = {}
        failure: KafkaError = UnknownServerError("the controller has not answered")
        try:
            response = await self._broker.controller.ask(self._request(proposals), timeout_s=ANSWER_S)
            assert isinstance(response, AlterPartitionResponse)
            if response.error_code != NONE:
                failure = error_class(response.error_code)()
            answers = {(t.topic_id, told.partition_index): told for t in response.topics for told in t.partitions}
        except KafkaError as error:
            failure = error
        is_done = True
        for replica, proposal in proposals.items():
            told = answers.get((replica.topic_id, replica.index))
            is_done &= self._settle(replica, proposal, told, failure)
        if not is_done:
            log.info("an ISR is proposed again: %s", failure)
        return is_done

    def _settle(self, replica: Replica, proposal: Proposal, told: Told | None, failure: KafkaError) -> bool:
        """False if it is asked again."""
        leadership = replica.leadership
        if leadership is None:
            return True
        if told is None or told.error_code != NONE:
            self._broker.counts.isr_refusals += 1
            error = failure if told is None else error_class(told.error_code)()
            if leadership.refused(proposal, error):
                self.submit(replica, proposal)
                return False
        elif leadership.accepted(
            proposal, isr=tuple(told.isr), leader_epoch=told.leader_epoch, partition_epoch=told.partition_epoch
        ):
            log.info("%r: the ISR is %s", replica, leadership.isr)
        replica.advance()
        self._broker.delayed.touch(replica)  # it may be committed now, or too few may be left
        return True

    def _request(self, proposals: dict[Replica, Proposal]) -> AlterPartitionRequest:
        topics: dict[bytes, list[Asked]] = {}
        for replica, proposal in proposals.items():
            topics.setdefault(replica.topic_id, []).append(self._asked(replica, proposal))
        return AlterPartitionRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            topics=[
                AlterPartitionRequest.Topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _asked(self, replica: Replica, proposal: Proposal) -> Asked:
        own_id, own_epoch = self._broker.node_id, self._broker.broker_epoch
        return Asked(
            partition_index=replica.index,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=[
                Asked.NewIsrWithEpoch(broker_id=member, broker_epoch=own_epoch if member == own_id else epoch)
                for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ],
            leader_recovery_state=RecoveryState.RECOVERED,
            partition_epoch=proposal.partition_epoch,
        )


def _lacks_what_is_not_committed(replica: Replica) -> bool:
    its_log = replica.log
    return any(
        cure_of(
            damage,
            leads=replica.leads,
            high_watermark=its_log.high_watermark,
            log_end_offset=its_log.log_end_offset,
        )
        in (Cure.STEP_ASIDE, Cure.CUT)
        for damage in its_log.quarantine.damages
    )


def _is_current(replica: Replica, proposal: Proposal) -> bool:
    return replica.leadership is not None and replica.leadership.proposal is proposal
