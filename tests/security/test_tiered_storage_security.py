"""Tiered storage of nodes that log in to each other, with an authorizer: brokers write and replay the remote log
metadata, and a client without rights does neither."""

from pathlib import Path
from typing import Any, Final

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.certificates import authority, signed
from support.sasl import SaslClient
from support.secured_cluster import NODES, OTHER_USER, STRANGERS_PASSWORD, USER, settings, stores
from support.serving import HOST
from support.tiered_topics import create_tiered, delete_topic, fill, objects, tiered, until_copied, until_local_start

from trioka.cluster.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.protocol.batch import build
from trioka.protocol.errors import TopicAuthorizationFailed
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def secured(protocol: str, store: Path) -> dict[str, Any]:
    return {
        **settings(protocol),
        # On one node each: the others write and replay by requests.
        **tiered(store, rlmm_config_remote_log_metadata_topic_replication_factor=1),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{USER};User:CN=node;User:ANONYMOUS",  # the tests ask at the listener without a login
    }


async def copies_and_deletes(cluster: Cluster, store: Path) -> None:
    names = ("a", "b", "c")
    for name in names:
        await create_tiered(cluster, name)
        await fill(cluster, 8, name)
    for name in names:
        await until_copied(cluster, name)
        await until_local_start(cluster, name)
    for name in names:
        await delete_topic(cluster, 1, name)
        await cluster.until(lambda name=name: not objects(store, name))  # type: ignore[misc]


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
@on_cluster
async def test_brokers_write_and_replay_the_metadata_over_secured_listeners(tmp_path: Path, protocol: str) -> None:
    trusted, store = authority(), tmp_path / "store"
    more = stores(tmp_path, trusted, signed(trusted, "CN=node")) | {"ssl.client.auth": "required"}
    listeners = [f"{NODES}://{HOST}:0"]
    async with running_cluster(tmp_path, more_listeners=listeners, **secured(protocol, store), **more) as cluster:
        await copies_and_deletes(cluster, store)


@on_cluster
async def test_a_client_without_rights_neither_reads_nor_writes_the_metadata(tmp_path: Path) -> None:
    store = tmp_path / "store"
    listeners = [f"{NODES}://{HOST}:0"]
    async with running_cluster(tmp_path, more_listeners=listeners, **secured("SASL_PLAINTEXT", store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 8)
        await until_copied(cluster)
        for node in (1, 2, 3):
            async with SaslClient(cluster[node], NODES) as client:
                await client.log_in("PLAIN", OTHER_USER, STRANGERS_PASSWORD)
                read = await client.ask(fetch_metadata(), 12)
                written = await client.ask(produce_metadata(), 9)
            (partition,) = read.responses[0].partitions
            assert partition.error_code == TopicAuthorizationFailed.code and not partition.records
            assert written.responses[0].partition_responses[0].error_code == TopicAuthorizationFailed.code


def fetch_metadata() -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchRequest.Topic(topic=REMOTE_LOG_METADATA_TOPIC, partitions=[partition])
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])


def produce_metadata() -> ProduceRequest:
    data = ProduceRequest.Topic.Partition(index=0, records=bytes(build([Record(0, 0, None, b"x")])))
    topic = ProduceRequest.Topic(name=REMOTE_LOG_METADATA_TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
