"""Apache Kafka, started on a directory that trioka wrote, knows its users, access rules, quotas and delegation tokens,
and enforces them; and the reverse."""

import time
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from secured_directory import SECURED, Clients
from shared_directory import VOTERS_IN_THE_LOG, SharedDirectory
from support.sasl import upsertion
from support.small_cluster import new_topic, quota

from trioka.cli.client.login import Login
from trioka.cli.terminal.failure import Failure
from trioka.protocol.batch import build
from trioka.protocol.errors import TopicAuthorizationFailed
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.describe_acls import DescribeAclsRequest
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from trioka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.sasl.scram import SCRAM_MECHANISMS

pytestmark = pytest.mark.usefixtures("apache_kafka")

ADMIN: Final = "admin"
PATIENCE_S: Final = 60.0
VISIT_S: Final = 300.0
PRODUCE_RATE: Final = 1000.0  # bytes a second
LARGE: Final = bytes(60_000)  # more than the quota allows in its window
TOPIC, WRITE, LITERAL, ALLOW = 2, 4, 3, 3


class Token:
    """What a client knows of its delegation token."""

    def __init__(self, result: Any) -> None:
        assert result.error_code == 0, result
        self.id: str = result.token_id
        self.password = b64encode(result.hmac).decode()


def until(ask: Any, is_right: Any) -> Any:
    """Apache Kafka answers a change before its broker has applied it."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_right(result := ask()):
        assert time.monotonic() < deadline, result
        time.sleep(0.1)
    return result


def furnish(clients: Clients, user: str) -> Token:
    """A user with a password, topics, a rule for one of them, a quota and a delegation token."""
    ask = clients.ask
    topics = [new_topic(f"of-{user}", 1), new_topic(f"not-of-{user}", 1)]
    result = ask(ADMIN, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    assert {each.error_code for each in result.topics} == {0}, result
    for mechanism in SCRAM_MECHANISMS:
        wanted = upsertion(user, mechanism, password(user))
        result = ask(ADMIN, AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]), 0)
        assert [each.error_code for each in result.results] == [0], result
    rule = CreateAclsRequest.Creation(
        resource_type=TOPIC,
        resource_name=f"of-{user}",
        resource_pattern_type=LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=WRITE,
        permission_type=ALLOW,
    )
    assert [each.error_code for each in ask(ADMIN, CreateAclsRequest(creations=[rule]), 3).results] == [0]
    limits = quota({"user": user}, {"producer_byte_rate": PRODUCE_RATE})
    result = ask(ADMIN, AlterClientQuotasRequest(entries=[limits], validate_only=False), 1)
    assert [each.error_code for each in result.entries] == [0], result
    until(lambda: is_let_in(clients, login_of(user)), bool)
    request = CreateDelegationTokenRequest(
        owner_principal_type="", owner_principal_name="", renewers=[], max_lifetime_ms=-1
    )
    return Token(ask(user, request, 3))


def password(user: str) -> str:
    return f"{user}-s3cret"


def login_of(user: str, mechanism: str = "SCRAM-SHA-256") -> Login:
    return Login(mechanism=mechanism, username=user, password=password(user))


def is_let_in(clients: Clients, login: Login, name: str = "") -> bool:
    try:
        clients.log_in(name or login.username, login)
    except Failure:
        return False
    return True


def produced(clients: Clients, user: str, topic: str, value: bytes = b"value") -> Any:
    data = build([Record(0, int(time.time() * 1000), b"key", value)])
    wanted = ProduceRequest.Topic
    partition = wanted.Partition(index=0, records=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[wanted(name=topic, partition_data=[partition])])
    return clients.ask(user, request, 9)


def code(response: Any) -> int:
    return int(response.responses[0].partition_responses[0].error_code)


def check(clients: Clients, user: str, token: Token) -> None:
    """The broker knows all of it, and enforces it."""
    for mechanism in SCRAM_MECHANISMS:
        until(lambda chosen=mechanism: is_let_in(clients, login_of(user, chosen)), bool)
    assert not is_let_in(clients, Login(mechanism="SCRAM-SHA-512", username=user, password="wrong"), "wrong")
    until(lambda: code(produced(clients, user, f"of-{user}")), lambda result: result == 0)
    assert code(produced(clients, user, f"not-of-{user}")) == TopicAuthorizationFailed.code
    as_token = Login(mechanism="SCRAM-SHA-256", username=token.id, password=token.password, is_token=True)
    until(lambda: is_let_in(clients, as_token, "token"), bool)
    assert code(produced(clients, "token", f"of-{user}")) == 0
    assert code(produced(clients, "token", f"not-of-{user}")) == TopicAuthorizationFailed.code
    until(lambda: produced(clients, user, f"of-{user}", LARGE).throttle_time_ms, lambda result: result > 0)


def described(clients: Clients) -> tuple[Any, ...]:
    """Users, rules and quotas, as the broker tells of them."""
    users = clients.ask(ADMIN, DescribeUserScramCredentialsRequest(users=None), 0).results
    rules = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    found = clients.ask(ADMIN, rules, 3).resources
    quotas = clients.ask(ADMIN, DescribeClientQuotasRequest(components=[], strict=False), 1).entries
    return (
        sorted(
            (each.user, sorted((info.mechanism, info.iterations) for info in each.credential_infos)) for each in users
        ),
        sorted((each.resource_type, each.resource_name, each.pattern_type, str(each.acls)) for each in found),
        sorted((str(each.entity), str(each.values)) for each in quotas),
    )


def test_each_knows_and_enforces_what_the_other_has_written(tmp_path: Path) -> None:
    home = SharedDirectory(tmp_path, VOTERS_IN_THE_LOG, SECURED)

    def write(_: object) -> tuple[Token, tuple[Any, ...]]:
        with closing(Clients(home.port)) as clients:
            made = furnish(clients, "mia")
            check(clients, "mia", made)
            return made, described(clients)

    by_trioka, left_by_trioka = home.trioka(write, timeout_s=VISIT_S)
    with home.kafka() as kafka, closing(Clients(kafka.port)) as clients:
        until(lambda: described(clients), lambda found: found == left_by_trioka)
        check(clients, "mia", by_trioka)
        by_kafka = furnish(clients, "noa")
        check(clients, "noa", by_kafka)
        left_by_kafka = described(clients)
        kafka.stop()

    def read(_: object) -> tuple[Any, ...]:
        with closing(Clients(home.port)) as clients:
            check(clients, "mia", by_trioka)
            check(clients, "noa", by_kafka)
            return described(clients)

    assert home.trioka(read, timeout_s=VISIT_S) == left_by_kafka
