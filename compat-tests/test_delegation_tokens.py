"""Delegation tokens of Apache Kafka and of trioka: the same answers, Kafka's own tool and Java client against both, and
one data directory whose tokens both know.
"""

import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from oracle import OracleFailed, run_tool
from secured_directory import HOST, SECURED, SECURITY, Clients
from shared_directory import VOTERS_IN_THE_LOG, SharedDirectory

from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from trioka.protocol.schema import Request

pytestmark = pytest.mark.usefixtures("apache_kafka")

PATIENCE_S: Final = 30.0
VISIT_S: Final = 300.0
TOOL: Final = "org.apache.kafka.tools.DelegationTokenCommand"
HMAC: Final = re.compile(r"^(\S{22})\s+(\S{86}==)\s", re.MULTILINE)


def creation(owner: str = "", owner_type: str = "User", renewer_type: str = "User", lifetime_ms: int = -1) -> Request:
    renewer = CreateDelegationTokenRequest.Renewer(principal_type=renewer_type, principal_name="bob")
    return CreateDelegationTokenRequest(
        owner_principal_type=owner_type if owner else "",
        owner_principal_name=owner,
        renewers=[renewer],
        max_lifetime_ms=lifetime_ms,
    )


def description(*owners: str) -> Request:
    owner = DescribeDelegationTokenRequest.Owner
    named = [owner(principal_type="User", principal_name=name) for name in owners]
    return DescribeDelegationTokenRequest(owners=named or None)


def renewal(hmac: bytes, period_ms: int = -1) -> Request:
    return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def expiry(hmac: bytes, period_ms: int = -1) -> Request:
    return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


def story(clients: Clients) -> list[tuple[Any, ...]]:
    """What a broker answers to requests about tokens; times count from the making of the token."""
    result: list[tuple[Any, ...]] = []
    made = clients.ask("ann", creation(), 3)
    mine = {made.hmac}  # of others nothing is told
    start = made.issue_timestamp_ms
    days = [round((each - start) / 86_400_000) for each in (made.expiry_timestamp_ms, made.max_timestamp_ms)]
    result.append((made.error_code, made.principal_name, made.token_requester_principal_name, days, len(made.hmac)))
    for version in (1, 2):
        again = clients.ask("ann", creation(lifetime_ms=60_000), version)
        result.append((version, again.error_code, again.max_timestamp_ms - again.issue_timestamp_ms))
        wait_until(clients, again.hmac)
        result.append((clients.ask("ann", expiry(again.hmac), version).error_code,))
    wait_until(clients, made.hmac)
    for name, request in (
        ("eve", creation("ann")),
        ("eve", creation(renewer_type="Group")),
        ("admin", creation("ann")),
        ("ann", creation("ann")),
    ):
        answer = clients.ask(name, request, 3)
        result.append((name, answer.error_code, answer.principal_name, answer.token_requester_principal_name))
        mine.add(answer.hmac)
        result.append((answer.expiry_timestamp_ms if answer.error_code else "a time", len(answer.hmac)))
        if not answer.error_code:
            wait_until(clients, answer.hmac)
    for name in ("ann", "bob", "eve", "admin"):
        for owners in ((), ("ann",), ("bob",), ("eve",)):
            described = clients.ask(name, description(*owners), 3)
            found = [each for each in described.tokens if each.hmac in mine]
            result.append((name, owners, described.error_code, len(found)))
    for name in ("eve", "bob", "ann", "admin"):
        for request in (renewal(made.hmac), renewal(made.hmac, 60_000), expiry(made.hmac, 600_000), renewal(b"x")):
            answer = clients.ask(name, request, 2)
            later_s = round((answer.expiry_timestamp_ms - start) / 60_000) if answer.expiry_timestamp_ms > 0 else 0
            result.append((name, type(request).__name__, answer.error_code, min(later_s, 20)))
    result.append((clients.ask("bob", expiry(made.hmac), 2).error_code,))
    deadline = time.monotonic() + PATIENCE_S
    while (code := clients.ask("ann", renewal(made.hmac), 2).error_code) == 0:
        assert time.monotonic() < deadline
    result.append((code,))
    return result


def wait_until(clients: Clients, hmac: bytes) -> None:
    """The broker knows the token: Apache Kafka answers before that."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(each.hmac == hmac for each in clients.ask("admin", description(), 3).tokens):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def properties(folder: Path, mechanism: str, jaas: str) -> Path:
    path = folder / f"{mechanism.lower()}-{abs(hash(jaas))}.properties"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas};\n")
    return path


def as_user(folder: Path, name: str) -> Path:
    module = f"{SECURITY}.plain.PlainLoginModule"
    return properties(folder, "PLAIN", f'{module} required username="{name}" password="{name}-password"')


def with_token(folder: Path, token: tuple[str, str], mechanism: str = "SCRAM-SHA-256") -> Path:
    token_id, hmac = token
    module = f"{SECURITY}.scram.ScramLoginModule"
    return properties(folder, mechanism, f'{module} required username="{token_id}" password="{hmac}" tokenauth="true"')


def tool(port: int, config: Path, *arguments: str) -> str:
    return run_tool(TOOL, "--bootstrap-server", f"{HOST}:{port}", "--command-config", config, *arguments, merged=True)


def java_reads_topics(port: int, config: Path) -> str:
    bootstrap = f"{HOST}:{port}"
    topics = "org.apache.kafka.tools.TopicCommand"
    return run_tool(topics, "--bootstrap-server", bootstrap, "--command-config", config, "--list", merged=True)


@pytest.fixture
def home(tmp_path: Path) -> SharedDirectory:
    return SharedDirectory(tmp_path, VOTERS_IN_THE_LOG, SECURED)


def test_both_answer_requests_about_tokens_alike_and_know_each_others_tokens(
    home: SharedDirectory, tmp_path: Path
) -> None:
    with home.kafka() as kafka, closing(Clients(kafka.port)) as clients:
        port = kafka.port
        expected = story(clients)
        created = tool(kafka.port, as_user(tmp_path, "ann"), "--create", "--max-life-time-period", "-1")
        (by_kafka,) = HMAC.findall(created)

    def ours(port: int) -> tuple[str, str]:
        with closing(Clients(port)) as clients:
            assert story(clients) == expected
        ann = as_user(tmp_path, "ann")
        found = HMAC.findall(tool(port, ann, "--describe", "--owner-principal", "User:ann"))
        assert by_kafka in found
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):  # Kafka's token, Java's client, trioka
            java_reads_topics(port, with_token(tmp_path, by_kafka, mechanism))
        made: list[tuple[str, str]] = HMAC.findall(
            tool(port, ann, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        )
        (ours,) = made
        java_reads_topics(port, with_token(tmp_path, ours))
        result = tool(port, as_user(tmp_path, "bob"), "--renew", "--renew-time-period", "-1", "--hmac", ours[1])
        assert "Completed renew operation" in result
        result = tool(port, ann, "--expire", "--expiry-time-period", "-1", "--hmac", by_kafka[1])
        assert "Completed expire operation" in result
        with pytest.raises(OracleFailed, match=r"SaslAuthenticationException|Authentication failed"):
            java_reads_topics(port, with_token(tmp_path, by_kafka))
        return ours

    by_trioka = home.trioka(lambda client: ours(port), timeout_s=VISIT_S)
    with home.kafka() as kafka:
        found = HMAC.findall(tool(kafka.port, as_user(tmp_path, "ann"), "--describe", "--owner-principal", "User:ann"))
        assert by_trioka in found and by_kafka not in found
        java_reads_topics(kafka.port, with_token(tmp_path, by_trioka))
