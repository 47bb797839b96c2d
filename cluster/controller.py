"""The controller: decides requests that change the cluster.

    controller = Controller(metadata, settings, random)
    decision = controller.create_topics(request.topics, validate_only=False)
    ...                                            # append decision.records, replay them, then answer decision.replies

It reads the image, decides, and changes nothing; `Decision` holds the records to write. Each family of decisions has
its own file; those that a broker does not need before it serves are imported with the first request that does. The
caller must be the quorum leader, and the image must hold all records that were appended before. Authorization happens
before, and may remove items from a request.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from . import bootstrap, broker_changes, elections
from .decision import Decision, ItemResult
from .metadata import Metadata
from .metadata_log import MetadataRecord
from .quotas import ChargeMutations, no_mutation_charge
from .settings import ControllerSettings

if TYPE_CHECKING:
    from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
    from trioka.protocol.messages.alter_configs import AlterConfigsRequest
    from trioka.protocol.messages.alter_partition import AlterPartitionRequest
    from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
    from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest
    from trioka.protocol.messages.controller_registration import ControllerRegistrationRequest
    from trioka.protocol.messages.create_acls import CreateAclsRequest
    from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
    from trioka.protocol.messages.create_topics import CreateTopicsRequest
    from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
    from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
    from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
    from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
    from trioka.protocol.messages.update_features import UpdateFeaturesRequest

    from .acl_changes import DeletedAcls
    from .acls import AclFilter
    from .broker_changes import HeartbeatReply
    from .config_changes import ConfigReply
    from .delegation_tokens import TokenHmacs, TokenSettings
    from .elections import ElectionReply
    from .isr_changes import DirectoryReply, PartitionReply
    from .producer_ids import ProducerIdBlock
    from .quota_changes import QuotaReply
    from .reassignments import OngoingReassignment, ReassignmentReply
    from .scram_changes import ScramReply
    from .token_changes import CreatedToken, TokenChange, TokenCreation, TokenExpiry
    from .topic_changes import CreatedTopic, DeletedTopic, PartitionsReply


class Controller:
    def __init__(self, metadata: Metadata, settings: ControllerSettings, random: Random) -> None:
        self.metadata = metadata
        self.settings = settings
        self.random = random

    # --- the cluster's first records

    def bootstrap(self, records: Iterable[MetadataRecord] | None = None) -> tuple[MetadataRecord, ...]:
        """What a new leader appends before anything else: the first records of an empty log, or the end of a
        transaction that another leader left open. `records` are those of bootstrap.checkpoint, if there is one."""
        return bootstrap.activation_records(self.metadata, self.settings, records)

    # --- topics

    def create_topics(
        self,
        topics: "Sequence[CreateTopicsRequest.Topic]",
        *,
        validate_only: bool = False,
        charge: ChargeMutations = no_mutation_charge,
    ) -> "Decision[CreatedTopic]":
        from . import topic_changes

        return topic_changes.create_topics(self.metadata, self.settings, self.random, topics, validate_only, charge)

    def delete_topics(
        self, topics: "Sequence[DeleteTopicsRequest.Topic]", *, charge: ChargeMutations = no_mutation_charge
    ) -> "Decision[DeletedTopic]":
        from . import topic_changes

        return topic_changes.delete_topics(self.metadata, topics, charge)

    def create_partitions(
        self,
        topics: "Sequence[CreatePartitionsRequest.Topic]",
        *,
        validate_only: bool = False,
        charge: ChargeMutations = no_mutation_charge,
    ) -> "Decision[PartitionsReply]":
        from . import topic_changes

        return topic_changes.create_partitions(self.metadata, self.random, topics, validate_only, charge)

    # --- configuration, features, quotas, access rules

    def alter_configs(
        self,
        resources: "Sequence[AlterConfigsRequest.Resource]",
        *,
        validate_only: bool = False,
        broker_id: int | None = None,
    ) -> "Decision[ConfigReply]":
        """`broker_id` received the request: a broker can change its own configuration and no other broker's."""
        from . import config_changes

        return config_changes.alter_configs(self.metadata, self.settings, resources, validate_only, broker_id)

    def incremental_alter_configs(
        self,
        resources: "Sequence[IncrementalAlterConfigsRequest.Resource]",
        *,
        validate_only: bool = False,
        broker_id: int | None = None,
    ) -> "Decision[ConfigReply]":
        from . import config_changes

        return config_changes.incremental_alter_configs(
            self.metadata, self.settings, resources, validate_only, broker_id
        )

    def update_features(
        self, updates: "Sequence[UpdateFeaturesRequest.FeatureUpdate]", *, validate_only: bool = False
    ) -> Decision[ItemResult]:
        from . import feature_changes

        return feature_changes.update_features(self.metadata, self.settings, updates, validate_only)

    def alter_client_quotas(
        self, entries: "Sequence[AlterClientQuotasRequest.Entry]", *, validate_only: bool = False
    ) -> "Decision[QuotaReply]":
        from . import quota_changes

        return quota_changes.alter_client_quotas(self.metadata, entries, validate_only)

    def create_acls(self, creations: "Sequence[CreateAclsRequest.Creation]") -> Decision[ItemResult]:
        from . import acl_changes

        return acl_changes.create_acls(self.metadata, self.random, creations)

    def delete_acls(self, filters: "Sequence[AclFilter]") -> "Decision[DeletedAcls]":
        from . import acl_changes

        return acl_changes.delete_acls(self.metadata, filters)

    def alter_user_scram_credentials(
        self,
        deletions: "Sequence[AlterUserScramCredentialsRequest.Deletion]",
        upsertions: "Sequence[AlterUserScramCredentialsRequest.Upsertion]",
    ) -> "Decision[ScramReply]":
        from . import scram_changes

        return scram_changes.alter_user_scram_credentials(self.metadata, deletions, upsertions)

    # --- delegation tokens; `now_ms` is the time since 1970

    def create_token(
        self, settings: "TokenSettings", request: "TokenCreation", *, token_id: str, now_ms: int
    ) -> "Decision[CreatedToken]":
        from . import token_changes

        return token_changes.create_token(self.metadata, settings, request, token_id=token_id, now_ms=now_ms)

    def renew_token(
        self, settings: "TokenSettings", hmacs: "TokenHmacs", change: "TokenChange", *, now_ms: int
    ) -> "Decision[TokenExpiry]":
        from . import token_changes

        return token_changes.renew_token(self.metadata, settings, hmacs, change, now_ms=now_ms)

    def expire_token(
        self, settings: "TokenSettings", hmacs: "TokenHmacs", change: "TokenChange", *, now_ms: int
    ) -> "Decision[TokenExpiry]":
        from . import token_changes

        return token_changes.expire_token(self.metadata, settings, hmacs, change, now_ms=now_ms)

    def remove_expired_tokens(self, now_ms: int) -> Decision[bool]:
        """The reply is whether there may be more of them."""
        from . import token_changes

        return token_changes.remove_expired(self.metadata, now_ms)

    # --- partitions

    def elect_leaders(
        self, election_type: int, topics: "Sequence[ElectLeadersRequest.TopicPartition] | None"
    ) -> "Decision[ElectionReply]":
        """`topics` None: all of them; then partitions that need no election have no reply."""
        return elections.elect_leaders(self.metadata, self.settings, election_type, topics)

    def balance_leaders(self, limit: int) -> Decision[bool]:
        """Moves leadership back to the first replicas. The reply is whether more elections may be due."""
        return elections.balance(self.metadata, self.settings, limit)

    def elect_unclean(self, limit: int) -> Decision[bool]:
        """Elects leaders that may lack records for partitions without a leader, where allowed. The reply as above."""
        return elections.elect_unclean(self.metadata, self.settings, limit)

    def alter_partition_reassignments(
        self,
        topics: "Sequence[AlterPartitionReassignmentsRequest.Topic]",
        *,
        allow_replication_factor_change: bool = True,
    ) -> "Decision[ReassignmentReply]":
        from . import reassignments

        return reassignments.alter(self.metadata, self.settings, topics, allow_replication_factor_change)

    def list_partition_reassignments(
        self, topics: "Sequence[ListPartitionReassignmentsRequest.Topic] | None"
    ) -> "tuple[OngoingReassignment, ...]":
        from . import reassignments

        return reassignments.ongoing(self.metadata, topics)

    def alter_partition(self, request: "AlterPartitionRequest") -> "Decision[PartitionReply]":
        """A leader proposes another ISR, or reports its recovery. An outdated broker epoch is raised."""
        from . import isr_changes

        return isr_changes.alter_partition(self.metadata, self.settings, request)

    def assign_replicas_to_directories(self, request: "AssignReplicasToDirsRequest") -> "Decision[DirectoryReply]":
        """A broker reports the log directories of its replicas. An outdated broker epoch is raised."""
        from . import isr_changes

        return isr_changes.assign_replicas_to_directories(self.metadata, self.settings, request)

    # --- nodes

    def register_broker(
        self, request: "BrokerRegistrationRequest", *, next_offset: int, has_session: bool
    ) -> Decision[int]:
        """The reply is the broker's epoch. `next_offset` is the offset of the decision's records, `has_session` whether
        an earlier registration of this id is still alive. An invalid registration is raised."""
        return broker_changes.register_broker(self.metadata, self.settings, request, next_offset, has_session)

    def register_controller(self, request: "ControllerRegistrationRequest") -> Decision[None]:
        return broker_changes.register_controller(request)

    def unregister_broker(self, broker_id: int) -> Decision[ItemResult]:
        return broker_changes.unregister_broker(self.metadata, self.settings, broker_id)

    def heartbeat(
        self, request: "BrokerHeartbeatRequest", *, others_caught_up: bool = True
    ) -> "Decision[HeartbeatReply]":
        """A heartbeat: the broker is unfenced, fenced, or stays as it is. A stale epoch raises an error. A broker that
        shuts down may go when all `others_caught_up` with the records that took its leaderships away."""
        return broker_changes.heartbeat(self.metadata, self.settings, request, others_caught_up)

    def fence_broker(self, broker_id: int) -> Decision[None]:
        """Fences a broker whose session has expired."""
        return broker_changes.fence_broker(self.metadata, self.settings, broker_id)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> "Decision[ProducerIdBlock]":
        """A block of ids that no other broker has or had. A stale broker is raised."""
        from . import producer_ids

        return producer_ids.allocate(self.metadata, broker_id, broker_epoch)
