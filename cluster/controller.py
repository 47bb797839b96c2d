"""The controller: what becomes of a request that wants to change the cluster.

    controller = Controller(metadata, settings, random)
    decision = controller.create_topics(request.topics, validate_only=False)
    ...                                            # append decision.records, replay them, then answer decision.replies

It reads the image, decides, and changes nothing; `Decision` says what shall be written. Each family of decisions has
its own file; those that a broker does not need before it serves are loaded with the first request that does. Whoever
is asked must lead the metadata quorum, and the image must hold all that was appended before. Nobody is authorised here:
that has happened, or leaves items out.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from . import bootstrap, broker_changes, elections
from .decision import Decision, Outcome
from .metadata import Metadata
from .metadata_log import MetadataRecord
from .settings import ControllerSettings

if TYPE_CHECKING:
    from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
    from trioka.protocol.messages.alter_configs import AlterConfigsRequest
    from trioka.protocol.messages.alter_partition import AlterPartitionRequest
    from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
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
    from .elections import ElectionReply
    from .isr_changes import DirectoryReply, PartitionReply
    from .producer_ids import ProducerIdBlock
    from .quota_changes import QuotaReply
    from .reassignments import OngoingReassignment, ReassignmentReply
    from .topic_changes import DeletedTopic, NewTopic, PartitionsReply


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
        self, topics: "Sequence[CreateTopicsRequest.Topic]", *, validate_only: bool = False
    ) -> "Decision[NewTopic]":
        from . import topic_changes

        return topic_changes.create_topics(self.metadata, self.settings, self.random, topics, validate_only)

    def delete_topics(self, topics: "Sequence[DeleteTopicsRequest.Topic]") -> "Decision[DeletedTopic]":
        from . import topic_changes

        return topic_changes.delete_topics(self.metadata, topics)

    def create_partitions(
        self, topics: "Sequence[CreatePartitionsRequest.Topic]", *, validate_only: bool = False
    ) -> "Decision[PartitionsReply]":
        from . import topic_changes

        return topic_changes.create_partitions(self.metadata, self.random, topics, validate_only)

    # --- configuration, features, quotas, access rules

    def alter_configs(
        self,
        resources: "Sequence[AlterConfigsRequest.Resource]",
        *,
        validate_only: bool = False,
        broker_id: int | None = None,
    ) -> "Decision[ConfigReply]":
        """`broker_id` is the broker that was asked: it can change its own configuration and no other's."""
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
    ) -> Decision[Outcome]:
        from . import feature_changes

        return feature_changes.update_features(self.metadata, self.settings, updates, validate_only)

    def alter_client_quotas(
        self, entries: "Sequence[AlterClientQuotasRequest.Entry]", *, validate_only: bool = False
    ) -> "Decision[QuotaReply]":
        from . import quota_changes

        return quota_changes.alter_client_quotas(self.metadata, entries, validate_only)

    def create_acls(self, creations: "Sequence[CreateAclsRequest.Creation]") -> Decision[Outcome]:
        from . import acl_changes

        return acl_changes.create_acls(self.metadata, self.random, creations)

    def delete_acls(self, filters: "Sequence[AclFilter]") -> "Decision[DeletedAcls]":
        from . import acl_changes

        return acl_changes.delete_acls(self.metadata, filters)

    # --- partitions

    def elect_leaders(
        self, election_type: int, topics: "Sequence[ElectLeadersRequest.TopicPartition] | None"
    ) -> "Decision[ElectionReply]":
        """`topics` None: all of them; then partitions that need no election have no reply."""
        return elections.elect_leaders(self.metadata, self.settings, election_type, topics)

    def balance_leaders(self, limit: int) -> Decision[bool]:
        """Leadership goes back to the first replicas. The reply is whether there may be more to do."""
        return elections.balance(self.metadata, self.settings, limit)

    def elect_last_resorts(self, limit: int) -> Decision[bool]:
        """Partitions without a leader get one that may lack records, where that is allowed. The reply, as before."""
        return elections.elect_last_resorts(self.metadata, self.settings, limit)

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
        """A leader proposes another ISR, or says that it has recovered. A stale broker is raised."""
        from . import isr_changes

        return isr_changes.alter_partition(self.metadata, self.settings, request)

    def assign_replicas_to_directories(self, request: "AssignReplicasToDirsRequest") -> "Decision[DirectoryReply]":
        """A broker says where it keeps its replicas. A stale broker is raised."""
        from . import isr_changes

        return isr_changes.assign_replicas_to_directories(self.metadata, self.settings, request)

    # --- nodes

    def register_broker(
        self, request: "BrokerRegistrationRequest", *, next_offset: int, has_session: bool
    ) -> Decision[int]:
        """The reply is the broker's epoch. `next_offset` is where the decision's records will stand, `has_session`
        whether an earlier registration of this id is still alive. A registration that cannot be is raised."""
        return broker_changes.register_broker(self.metadata, self.settings, request, next_offset, has_session)

    def register_controller(self, request: "ControllerRegistrationRequest") -> Decision[None]:
        return broker_changes.register_controller(request)

    def unregister_broker(self, broker_id: int) -> Decision[Outcome]:
        return broker_changes.unregister_broker(self.metadata, self.settings, broker_id)

    def heartbeat(
        self, request: "BrokerHeartbeatRequest", *, others_caught_up: bool = True
    ) -> "Decision[HeartbeatReply]":
        """A broker is alive; it may be let in, sent away, or told to wait. A stale one is raised. A broker that shuts
        down may go when all `others_caught_up` with the records that took its leaderships away."""
        return broker_changes.heartbeat(self.metadata, self.settings, request, others_caught_up)

    def fence_broker(self, broker_id: int) -> Decision[None]:
        """A broker was not heard of for too long."""
        return broker_changes.fence_broker(self.metadata, self.settings, broker_id)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> "Decision[ProducerIdBlock]":
        """A block of ids that no other broker has or had. A stale broker is raised."""
        from . import producer_ids

        return producer_ids.allocate(self.metadata, broker_id, broker_epoch)
