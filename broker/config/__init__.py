"""The configuration of a node, its topics and its groups.

    values.py          value types: parsing and formatting        addresses.py    listeners, servers, voters
    key.py             a key, and the registries of keys          *_keys.py       the declarations
    layers.py          Config, TopicConfig, GroupConfig           description.py  entries of DescribeConfigs
    validation.py      rules across several keys                  alteration.py   checks of changes at run time
    controller_rules.py  the keys as the controller needs them    authorization.py  the configured authorizer
    listeners.py       identity and listeners of the node         server.py       server.properties to a Config
    properties.py      parser of properties files                 reference.py    docs/CONFIG.md

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
    trioka_keys,
)

__all__ = [
    "coordinator_keys",
    "group_keys",
    "log_keys",
    "network_keys",
    "node_keys",
    "replication_keys",
    "security_keys",
    "share_keys",
    "tier_keys",
    "topic_keys",
    "trioka_keys",
]
