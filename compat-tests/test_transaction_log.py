"""Kafka's own reader on our files: the records of `__transaction_state`, and the markers in a partition."""

import re
from pathlib import Path

from oracle import DUMP_LOG, run_tool
from support.serving import HOST, LISTENER, Client, broker_in_thread
from support.transaction_requests import FIND_TRANSACTIONS, NAME, end, init, markers, produce

from trioka.protocol.messages.create_topics import CreateTopicsRequest

TOPIC = CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])


def test_what_kafka_reads_in_our_files(apache_kafka: None, tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as broker:
        client = Client(HOST, broker.addresses[LISTENER][1])
        client.ask(CreateTopicsRequest(topics=[TOPIC]), 7)
        client.ask(FIND_TRANSACTIONS, 4)
        given = client.ask(init(), 5)
        who = (given.producer_id, given.producer_epoch)
        for commit in (True, False):
            client.ask(produce(who, 0, b"a"), 12)
            ended = client.ask(end(who, commit=commit), 5)
            who = (ended.producer_id, ended.producer_epoch)
        client.ask(markers(who, {"t": [0]}, commit=True, coordinator_epoch=7, version=2), 2)
        client.close()
    states = _dump(tmp_path / "__transaction_state-0", "--transaction-log-decoder", "--print-data-log")
    assert set(re.findall(r'"transactionalId":"(\w+)"', states)) == {NAME}
    assert re.findall(r'"transactionStatus":(\d)', states) == ["0", "1", "2", "4", "1", "3", "5"]
    assert re.findall(r'"producerEpoch":(\d)', states) == ["0", "0", "1", "1", "1", "2", "2"]
    ends = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d)", _dump(tmp_path / "t-0", "--deep-iteration"))
    assert ends == [("COMMIT", "0"), ("ABORT", "0"), ("COMMIT", "7")]


def _dump(directory: Path, *options: str) -> str:
    (segment,) = directory.glob("*.log")
    return run_tool(DUMP_LOG, *options, "--files", str(segment), merged=True)
