"""Preconditions of tests that compare answers about the cluster: equal settings, and retries.

Two things are made equal first: the settings that the oracle brings along, and the internal topics, which cannot be
created because they need three brokers; so both sides answer that there is no coordinator.
"""

import time
from typing import Any

from side_by_side import PATIENCE_S, POLL_S, RequestFor, SideBySide

SETTINGS = {
    "num_network_threads": 2,
    "num_io_threads": 4,
    "num_recovery_threads_per_data_dir": 1,
    "background_threads": 2,
    "group_initial_rebalance_delay_ms": 0,
    "log_cleaner_dedupe_buffer_size": 2 << 20,
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter_broker_listener_name": "PLAINTEXT",
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 1,
    "share_coordinator_state_topic_num_partitions": 1,
    "share_coordinator_state_topic_replication_factor": 3,
    "share_coordinator_state_topic_min_isr": 1,
}


def same_soon(sides: SideBySide, requested: RequestFor, version: int, **how: Any) -> None:
    """Apache Kafka confirms a change before its own broker has applied it; so the request is repeated until it has."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            sides.same(requested, version, **how)
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
