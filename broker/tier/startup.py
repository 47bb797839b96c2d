"""Opens the object store of trioka.tier.url when the broker starts. Only a broker with that key imports this module."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.protocol.messages.create_topics import CreateTopicsRequest

from ..config import tier_keys
from ..config.values import LONG_MAX
from .store.object_store import ObjectStoreError, ObjectStoreRefused
from .store.store_options import store_options
from .tiered_storage import TieredStorage

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["ObjectStoreRefused", "open_tiered_storage"]

log = logging.getLogger("trioka.tier")

STORE_THREADS: Final = 24  # requests to the object store at a time: copies, deletions, reads


async def open_tiered_storage(broker: "Broker") -> TieredStorage:
    """Raises ObjectStoreRefused, in a sentence. A store that does not answer now is no reason: the broker serves what
    is on its disks, and copies later."""
    options = store_options(broker.config)
    assert options is not None, "trioka.tier.url is set"
    try:
        client = await trio.to_thread.run_sync(import_module, ".store.obstore_client", __package__)
    except ImportError:
        raise ObjectStoreRefused(
            f"trioka.tier.url {options.url} needs the package obstore: run pip install 'trioka[tier]'."
        ) from None
    store = client.open_store(options, trio.CapacityLimiter(STORE_THREADS))
    reported: set[str] = set()

    async def create_topic() -> None:
        failed = await broker.create_internal_topic(_metadata_topic(broker))
        for name, reason in failed.items():
            if reason not in reported:
                reported.add(reason)
                log.warning("topic %s, which tiered storage needs, could not be created: %s", name, reason)

    tier = TieredStorage(broker, store, create_topic)
    try:
        await tier.check_store()
    except ObjectStoreError as error:
        log.warning("the object store does not answer, and is tried again; nothing is copied meanwhile: %s", error)
    return tier


def _metadata_topic(broker: "Broker") -> CreateTopicsRequest.Topic:
    config = broker.config
    replication_factor = config[tier_keys.REMOTE_LOG_METADATA_TOPIC_REPLICATION_FACTOR]
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": str(config[tier_keys.REMOTE_LOG_METADATA_TOPIC_RETENTION_MS]),
        "retention.bytes": "-1",
        "min.insync.replicas": str(min(replication_factor, config[tier_keys.REMOTE_LOG_METADATA_TOPIC_MIN_ISR])),
        "unclean.leader.election.enable": "false",
        "remote.storage.enable": "false",
        "message.timestamp.after.max.ms": str(LONG_MAX),  # a leader whose clock is hours ahead copies its segments too
    }
    return CreateTopicsRequest.Topic(
        name=REMOTE_LOG_METADATA_TOPIC,
        num_partitions=config[tier_keys.REMOTE_LOG_METADATA_TOPIC_NUM_PARTITIONS],
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in configs.items()],
    )
