"""Periodic tasks of a controller in a quorum, whether it is the leader or not. A single controller only registers.

registration  sends ControllerRegistration until the metadata has its endpoints and feature levels
endpoints     sends UpdateRaftVoter: with dynamic voters until the log has this voter's endpoints; with static voters
              once to each new leader
auto join     with controller.quorum.auto.join.enable, a controller that is no voter sends AddRaftVoter; if the voter
              set has its id with another directory, it sends RemoveRaftVoter for that one first

Each condition is checked every CHECK_INTERVAL_S, because the leader may change before a request takes effect.
"""

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.partition import random_uuid
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import NONE, KafkaError, UnsupportedVersion
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.messages.add_raft_voter import AddRaftVoterRequest
from trioka.protocol.messages.controller_registration import ControllerRegistrationRequest
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from trioka.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from trioka.protocol.schema import Request

from ..config.node_keys import CONTROLLER_QUORUM_AUTO_JOIN_ENABLE

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.controller")

FIRST_CONTROLLER_VERSION: Final = 15  # of metadata.version, 3.7-IV0: from then on controllers are registered
CHECK_INTERVAL_S: Final = 1.0
RESPONSE_TIMEOUT_S: Final = 5.0
KRAFT: Final = SUPPORTED[KRAFT_VERSION]


class ControllerTasks:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._quorum = broker.quorum
        self._incarnation_id = random_uuid(broker.random)
        self._registered_epoch = -1  # of the last leader that accepted UpdateRaftVoter

    async def run(self) -> None:
        while True:
            request = self._due()
            if request is not None:
                await self._send(request)
            await trio.sleep(CHECK_INTERVAL_S)

    async def register(self) -> None:
        """Registers a single controller at its start."""
        if not self._is_registered():
            await self._quorum.change(lambda controller: controller.register_controller(self._registration()))

    def _due(self) -> Request | None:
        """The request that is due next."""
        if not self._quorum.caught_up or not self._quorum.has_peers:
            return None
        if not self._is_registered():
            return self._registration()
        record, me = self._quorum.voters, self._quorum.raft.me
        if record is None:
            is_known = self._registered_epoch == self._quorum.epoch or self._quorum.raft.is_leader
            return None if is_known or not self._quorum.raft.is_voter else self._update(me)
        mine = [voter for voter in record.voters if voter.voter_id == me.id]
        if mine and mine[0].voter_directory_id == me.directory:
            return None if mine[0].endpoints == self._endpoints() else self._update(me)
        if not self._broker.config[CONTROLLER_QUORUM_AUTO_JOIN_ENABLE]:
            return None
        if mine:
            return RemoveRaftVoterRequest(
                cluster_id=self._quorum.cluster_id,
                voter_id=me.id,
                voter_directory_id=mine[0].voter_directory_id,
            )
        return self._joining(me)

    async def _send(self, request: Request) -> None:
        try:
            answer: Any = await self._broker.controller.send_request(request, timeout_s=RESPONSE_TIMEOUT_S)
            if isinstance(request, UpdateRaftVoterRequest) and answer.error_code in (NONE, UnsupportedVersion.code):
                self._registered_epoch = request.current_leader_epoch  # an older leader does not support the request
            elif answer.error_code != NONE:
                log.info("%s failed with error %d", type(request).__name__, answer.error_code)
        except KafkaError as error:
            log.info("%s failed: %s", type(request).__name__, error)

    def _is_registered(self) -> bool:
        metadata = self._broker.metadata
        known = metadata.brokers.controller(self._quorum.node_id)
        is_known = known is not None and known.incarnation_id == self._incarnation_id
        return is_known or metadata.features.metadata_version < FIRST_CONTROLLER_VERSION

    def _registration(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._quorum.node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=False,
            listeners=[
                ControllerRegistrationRequest.Listener(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.protocol
                )
                for each in self._quorum.endpoints
            ],
            features=[
                ControllerRegistrationRequest.Feature(
                    name=feature.name, min_supported_version=feature.first, max_supported_version=feature.last
                )
                for feature in self._broker.registered_features
            ],
        )

    def _endpoints(self) -> list[VotersRecord.Voter.Endpoint]:
        endpoint = VotersRecord.Voter.Endpoint
        return [endpoint(name=each.name, host=each.host, port=each.port) for each in self._quorum.endpoints]

    def _update(self, me: ReplicaKey) -> UpdateRaftVoterRequest:
        return UpdateRaftVoterRequest(
            cluster_id=self._quorum.cluster_id,
            current_leader_epoch=self._quorum.epoch,
            voter_id=me.id,
            voter_directory_id=me.directory,
            listeners=[
                UpdateRaftVoterRequest.Listener(name=each.name, host=each.host, port=each.port)
                for each in self._endpoints()
            ],
            kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
                min_supported_version=KRAFT.first, max_supported_version=KRAFT.last
            ),
        )

    def _joining(self, me: ReplicaKey) -> AddRaftVoterRequest:
        return AddRaftVoterRequest(
            cluster_id=self._quorum.cluster_id,
            timeout_ms=int(RESPONSE_TIMEOUT_S * 1000),
            voter_id=me.id,
            voter_directory_id=me.directory,
            listeners=[
                AddRaftVoterRequest.Listener(name=each.name, host=each.host, port=each.port)
                for each in self._endpoints()
            ],
            ack_when_committed=False,
        )
