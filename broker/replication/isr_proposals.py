"""AlterPartition: leaders propose their ISR to the controller.

cluster/leader_state.py decides what to propose, when a follower has caught up or has been behind for too long. This
module sends all pending proposals in one AlterPartition, one request at a time, and hands the results to the leaders.
No client request waits for a proposal: one whose response is lost is sent again, until it is answered or the metadata
has the new state.

A replica with a damaged log stays in sync while it is healed (healing.py), unless the damage is not committed yet
(cluster/healing.py): a leader then cannot send it to its followers, and a follower lacks the end of its log. It cannot
leave the ISR by itself, but it can report that it is in a lost directory: then it is neither in sync nor eligible, and
another replica leads. If no other replica has everything, it stays leader: intact records are served, damaged ones are
refused, and new ones are accepted. An operator has to decide then, so an error is logged.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.healing import RepairAction, repair_action
from trioka.cluster.leader_state import Proposal, may_demote
from trioka.cluster.partition import LOST_DIRECTORY, RecoveryState
from trioka.protocol.errors import NONE, KafkaError, UnknownServerError, error_class
from trioka.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

from ..config.replication_keys import REPLICA_LAG_TIME_MAX_MS
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.in_sync")

RESPONSE_TIMEOUT_S: Final = 10.0  # timeout of a request
PAUSE_S: Final = 0.05  # before a retry
MIN_CHECK_S: Final = 0.05
DAMAGE_CHECK_S: Final = 1.0

PartitionRequest = AlterPartitionRequest.Topic.Partition
PartitionResult = AlterPartitionResponse.Topic.Partition


class AlterPartitionSender:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[Replica, Proposal] = {}
        self._wake = trio.Event()
        self._reported: set[Replica] = set()  # damaged, without a replica to take over; logged once

    def submit(self, replica: Replica, proposal: Proposal | None) -> None:
        """Queues a proposal; None means that there is none."""
        if proposal is not None:
            log.debug("%r: proposing ISR %s", replica, proposal.isr)
            self._waiting[replica] = proposal
            self._wake.set()

    async def send(self) -> None:
        """Runs until the broker stops."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            proposals, self._waiting = self._waiting, {}
            current = {replica: made for replica, made in proposals.items() if _is_current(replica, made)}
            is_done = not current
            try:
                is_done = is_done or await self._send_proposals(current)
            except Exception as mistake:  # an internal error; the next attempt may succeed
                log.error("internal error: %d ISR proposals", len(current), exc_info=mistake)
                for replica, made in current.items():
                    self.submit(replica, made)
            if not is_done:
                await trio.sleep(PAUSE_S)

    async def watch(self) -> None:
        """Looks for followers that lag, at intervals of half the allowed lag."""
        while True:
            await trio.sleep(max(self._broker.config[REPLICA_LAG_TIME_MAX_MS] / 2000, MIN_CHECK_S))
            self.look()

    async def watch_damage(self) -> None:
        while True:
            await trio.sleep(DAMAGE_CHECK_S)
            try:
                await self._leave_isr()
            except KafkaError as error:
                log.warning("a replica with a damaged log could not leave the ISR: %s", error)

    def look(self) -> None:
        now = self._broker.clock.now()
        for replica in self._broker.partitions:
            leadership = replica.leadership
            if leadership is not None:
                proposal = leadership.propose_shrink(replica.log.log_end_offset, now, replica.max_lag_s)
                if proposal is not None:
                    log.info("%r: shrinking the ISR from %s to %s", replica, leadership.isr, proposal.isr)
                    self.submit(replica, proposal)

    async def _leave_isr(self) -> None:
        """Reports damaged replicas that are not needed. The controller learns their directories when they are out of
        the ISR."""
        broker, damaged, is_astray = self._broker, [], False
        for replica in broker.partitions:
            topic = broker.metadata.topics.by_id(replica.topic_id)
            partition = None if topic is None else topic.partitions.get(replica.index)
            if partition is None or broker.node_id not in partition.replicas:
                continue
            is_astray |= partition.directory(broker.node_id) == LOST_DIRECTORY
            if not _lacks_uncommitted(replica):
                self._reported.discard(replica)
            elif may_demote(partition, broker.node_id, broker.metadata.brokers.is_active):
                damaged.append(replica)
            elif replica.leads and replica not in self._reported:
                self._reported.add(replica)
                log.error("%r: log damaged, and no other replica is in sync", replica)
        if damaged:
            await self._log_lost(damaged)
        elif is_astray:
            broker.report_directories_soon()

    async def _log_lost(self, damaged: list[Replica]) -> None:
        result = AssignReplicasToDirsRequest.Directory.Topic
        topics: dict[bytes, list[AssignReplicasToDirsRequest.Directory.Topic.Partition]] = {}
        for replica in damaged:
            log.warning("%r: log damaged, leaving the ISR", replica)
            topics.setdefault(replica.topic_id, []).append(result.Partition(partition_index=replica.index))
        lost = AssignReplicasToDirsRequest.Directory(
            id=LOST_DIRECTORY, topics=[result(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
        )
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch, directories=[lost]
        )
        await self._broker.controller.send_request(request, timeout_s=RESPONSE_TIMEOUT_S)

    async def _send_proposals(self, proposals: dict[Replica, Proposal]) -> bool:
        """Sends the proposals. Returns False if some must be sent again."""
        answers: dict[tuple[bytes, int], PartitionResult] = {}
        failure: KafkaError = UnknownServerError("the controller has not responded")
        try:
            response = await self._broker.controller.send_request(
                self._request(proposals), timeout_s=RESPONSE_TIMEOUT_S
            )
            assert isinstance(response, AlterPartitionResponse)
            if response.error_code != NONE:
                failure = error_class(response.error_code)()
            answers = {(t.topic_id, result.partition_index): result for t in response.topics for result in t.partitions}
        except KafkaError as error:
            failure = error
        is_done = True
        for replica, proposal in proposals.items():
            result = answers.get((replica.topic_id, replica.index))
            is_done &= self._settle(replica, proposal, result, failure)
        if not is_done:
            log.info("AlterPartition failed, retrying: %s", failure)
        return is_done

    def _settle(
        self, replica: Replica, proposal: Proposal, result: PartitionResult | None, failure: KafkaError
    ) -> bool:
        """Applies the result to the leader. Returns False if the proposal must be sent again."""
        leadership = replica.leadership
        if leadership is None:
            return True
        if result is None or result.error_code != NONE:
            self._broker.counts.isr_refusals += 1
            error = failure if result is None else error_class(result.error_code)()
            if leadership.refused(proposal, error):
                self.submit(replica, proposal)
                return False
        elif leadership.accepted(
            proposal, isr=tuple(result.isr), leader_epoch=result.leader_epoch, partition_epoch=result.partition_epoch
        ):
            log.info("%r: the ISR is %s", replica, leadership.isr)
        replica.advance()
        self._broker.purgatory.notify(replica)  # requests may be committed now, or too few replicas may remain
        return True

    def _request(self, proposals: dict[Replica, Proposal]) -> AlterPartitionRequest:
        topics: dict[bytes, list[PartitionRequest]] = {}
        for replica, proposal in proposals.items():
            topics.setdefault(replica.topic_id, []).append(self._partition_request(replica, proposal))
        return AlterPartitionRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            topics=[
                AlterPartitionRequest.Topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _partition_request(self, replica: Replica, proposal: Proposal) -> PartitionRequest:
        own_id, own_epoch = self._broker.node_id, self._broker.broker_epoch
        return PartitionRequest(
            partition_index=replica.index,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=[
                PartitionRequest.NewIsrWithEpoch(
                    broker_id=member, broker_epoch=own_epoch if member == own_id else epoch
                )
                for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ],
            leader_recovery_state=RecoveryState.RECOVERED,
            partition_epoch=proposal.partition_epoch,
        )


def _lacks_uncommitted(replica: Replica) -> bool:
    its_log = replica.log
    return any(
        repair_action(
            damage,
            leads=replica.leads,
            high_watermark=its_log.high_watermark,
            log_end_offset=its_log.log_end_offset,
        )
        in (RepairAction.DEMOTE, RepairAction.CUT)
        for damage in its_log.quarantine.damages
    )


def _is_current(replica: Replica, proposal: Proposal) -> bool:
    return replica.leadership is not None and replica.leadership.proposal is proposal
