"""Clusters in a test whose nodes authenticate to each other by passwords or certificates."""

from pathlib import Path
from typing import Any, Final

from support.broker_cluster import Cluster
from support.certificates import Identity
from support.replicated_topics import Producer, create

from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE

NODES: Final = "NODES"  # the inter-broker listener
USER, PASSWORD = "node", "node-s3cret"
OTHER_USER, STRANGERS_PASSWORD = "stranger", "stranger-s3cret"
PASSWORDS: Final = {USER: PASSWORD, OTHER_USER: STRANGERS_PASSWORD}


def plain_jaas(password: str = PASSWORD, *, user: str = USER) -> str:
    """Each node has all users, and logs in as one of them."""
    known = " ".join(f'user_{name}="{each}"' for name, each in PASSWORDS.items())
    return f'{PLAIN_MODULE} required username="{user}" password="{password}" {known};'


def settings(protocol: str, mechanism: str = "PLAIN", **more: object) -> dict[str, Any]:
    found: dict[str, Any] = {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{NODES}:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": NODES,
    }
    if protocol.startswith("SASL"):
        found |= {
            "sasl.enabled.mechanisms": f"PLAIN,{mechanism}",
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "plain.sasl.jaas.config": plain_jaas(),
            "scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username="{USER}" password="{PASSWORD}";',
        }
    return found | more


def stores(directory: Path, trusted: Identity, own: Identity | None) -> dict[str, Any]:
    trust_store = directory / "trusted.pem"
    trust_store.write_text(trusted.chain_pem)
    found: dict[str, Any] = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust_store)}
    if own is not None:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own.write(directory / "node.pem"))}
    return found


async def works(cluster: Cluster) -> Producer:
    """Every node is let in, a topic is created, and a record reaches all replicas."""
    await create(cluster, min_insync_replicas=3)
    producer = Producer(cluster)
    await producer.send(3)
    return producer
