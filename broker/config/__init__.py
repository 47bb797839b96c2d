"""The configuration of a node, its topics and its groups: every key declared once, every value in its layer.

    values.py      types of values: text to value and back        addresses.py   listeners, servers, voters
    key.py         a key, and the registries of keys              *_keys.py      the declarations
    config/layers.py   Config, TopicConfig, GroupConfig: look-ups     description.py what DescribeConfigs says
    validation.py  what contradicts what                          alteration.py  what may be changed, and to what
    listeners.py   where the node listens, and who it is          server.py      server.properties to a Config
    reference.py   docs/CONFIG.md

Importing any of them declares all keys.
"""

from . import (
    coordinator_keys,
    group_keys,
    log_keys,
    network_keys,
    node_keys,
    replication_keys,
    security_keys,
    share_keys,
    tier_keys,
    topic_keys,
)
from . import trioka_keys as own_keys

__all__ = [
    "coordinator_keys",
    "group_keys",
    "log_keys",
    "network_keys",
    "node_keys",
    "own_keys",
    "replication_keys",
    "security_keys",
    "share_keys",
    "tier_keys",
    "topic_keys",
]
