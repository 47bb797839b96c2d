"""Checks of manual partition assignments; placement.py makes the automatic ones."""

from collections.abc import Sequence

from trioka.protocol.errors import InvalidReplicaAssignment

from ..image.brokers import Brokers
from ..image.partition import Partition


def check_assignment(brokers: Brokers, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """InvalidReplicaAssignment unless these are different, registered brokers, as many as the other partitions have."""
    if not replicas:
        raise InvalidReplicaAssignment("a manual partition assignment has an empty replica list")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            raise InvalidReplicaAssignment(
                f"a manual partition assignment includes broker {broker_id}, and no such broker is registered"
            )
        if broker_id == previous:
            raise InvalidReplicaAssignment(f"a manual partition assignment has the broker {broker_id} more than once")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"an assignment has {len(replicas)} replicas, the partitions before it have {replication_factor}"
        )


def new_partition(brokers: Brokers, index: int, replicas: Sequence[int]) -> Partition | None:
    """A partition that starts on these replicas; None if none of them may lead."""
    isr = tuple(broker_id for broker_id in replicas if brokers.is_active(broker_id))
    if not isr:
        return None
    return Partition(
        index=index,
        replicas=tuple(replicas),
        directories=tuple(brokers.default_directory(broker_id) for broker_id in replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )
