"""Throttled clients are told by both brokers to wait for as long, and Kafka's tools and clients work with quotas."""

import time
from collections.abc import Iterator

import pytest
from oracle import ApacheKafka, run_tool
from support.fast_paths import records
from support.serving import TIMEOUT_S
from trioka_process import TriokaProcess

from trioka.cli.client.connection import Connection
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")

CONFIGS = "kafka.admin.ConfigCommand"
TOPIC = "quotas"
QUOTA = 200_000
RECORD_BYTES = 104_900  # the twentieth is the first that is clearly too much
ONE_BATCH_BYTES = RECORD_BYTES + 200  # room for one batch, and not for two
THROTTLED = 4  # answers to Produces that are compared; a throttled fetch does not count, and is compared once
NEAR = 0.02
STALL_S = 0.04  # a response that is later than that, beyond its throttle time, moves the throttle times that follow
ROUNDS = 8  # rounds of one broker, until one has no such response


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where both of them are."""
    with ApacheKafka() as kafka, TriokaProcess(tmp_path_factory.mktemp("trioka")) as ours:
        yield {"kafka": kafka.bootstrap, "trioka": ours.bootstrap}


def alter(bootstrap: str, *arguments: str) -> str:
    return run_tool(CONFIGS, "--bootstrap-server", bootstrap, "--alter", *arguments)


def client_of(bootstrap: str, client_id: str = "quotas") -> Connection:
    host, _, port = bootstrap.rpartition(":")
    return Connection(host, int(port), timeout_s=TIMEOUT_S, client_id=client_id)


def produce() -> ProduceRequest:
    data = ProduceRequest.Topic.Partition(index=0, records=records(bytes(RECORD_BYTES)))
    return ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(name=TOPIC, partition_data=[data])]
    )


def fetch() -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=ONE_BATCH_BYTES)
    topic = FetchRequest.Topic(topic=TOPIC, partitions=[partition])
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=ONE_BATCH_BYTES, topics=[topic])


def first_throttle_times(
    bootstrap: str, request: ProduceRequest | FetchRequest, version: int, client_id: str
) -> tuple[int, list[int], float]:
    """How many responses came before the first throttle time, the first throttle times, and by how many seconds the
    latest response was late. The next request waits for the throttle time: a muted connection is not read from."""
    client = client_of(bootstrap, client_id)
    client.open()
    free, result, stall_s, due = 0, list[int](), 0.0, time.monotonic()
    while len(result) < (THROTTLED if isinstance(request, ProduceRequest) else 1):
        response = client.ask(request, version)
        now = time.monotonic()
        stall_s = max(stall_s, now - due)
        due = now + response.throttle_time_ms / 1000
        if response.throttle_time_ms:
            result.append(response.throttle_time_ms)
            if isinstance(request, FetchRequest):
                assert response.responses == []
        else:
            free += not result
    client.close()
    return free, result, stall_s


def undisturbed_throttle_times(
    bootstrap: str, request: ProduceRequest | FetchRequest, version: int
) -> tuple[int, list[int]]:
    """Of a round in which no response was late: the throttle times depend on when the requests arrive, and a busy
    machine delays them. Each round is another client, with a quota of its own."""
    rounds = []
    for number in range(ROUNDS):
        free, result, stall_s = first_throttle_times(bootstrap, request, version, f"round-{number}")
        if stall_s < STALL_S:
            return free, result
        rounds.append((stall_s, free, result))
    _, free, result = min(rounds)
    return free, result


@pytest.mark.parametrize(
    ("key", "request_", "version"), [("producer_byte_rate", produce(), 9), ("consumer_byte_rate", fetch(), 11)]
)
def test_clients_are_told_to_wait_for_as_long(
    brokers: dict[str, str], key: str, request_: ProduceRequest | FetchRequest, version: int
) -> None:
    found = {}
    for name, bootstrap in brokers.items():
        run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, "--create", "--if-not-exists",
                 "--topic", TOPIC, "--partitions", "1")  # fmt: skip
        client = client_of(bootstrap)
        assert client.ask(produce(), 9).responses[0].partition_responses[0].error_code == 0
        client.close()
        alter(bootstrap, "--entity-type", "clients", "--entity-default", "--add-config", f"{key}={QUOTA}")
        time.sleep(1)  # Kafka's broker follows its metadata
        found[name] = undisturbed_throttle_times(bootstrap, request_, version)
        alter(bootstrap, "--entity-type", "clients", "--entity-default", "--delete-config", key)
        time.sleep(1)
    assert found["trioka"][0] == found["kafka"][0]
    # The first one is what the last request was too much, less the time since the first request.
    first = {name: result[0] for name, (_, result) in found.items()}
    assert first["trioka"] == pytest.approx(first["kafka"], rel=NEAR, abs=150), found
    for ours, kafkas in zip(found["trioka"][1][1:], found["kafka"][1][1:], strict=True):
        assert ours == pytest.approx(kafkas, rel=NEAR, abs=60), found


def test_kafkas_tool_sets_describes_and_removes_quotas(brokers: dict[str, str]) -> None:
    text = {}
    for name, bootstrap in brokers.items():
        alter(bootstrap, "--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients",
              "--entity-default", "--add-config", "request_percentage=150,controller_mutation_rate=2.5")  # fmt: skip
        alter(bootstrap, "--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config",
              "connection_creation_rate=5")  # fmt: skip
        text[name] = [
            run_tool(CONFIGS, "--bootstrap-server", bootstrap, "--describe", *words)
            for words in (("--entity-type", "users", "--entity-type", "clients"), ("--entity-type", "ips"))
        ]
    assert text["trioka"] == text["kafka"]
    assert "request_percentage=150.0" in text["kafka"][0]
