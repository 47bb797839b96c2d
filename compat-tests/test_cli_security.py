"""The commands about users, access rules, quotas and tokens work with Apache Kafka, and its own tools confirm it.
trioka must answer them the same."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oracle import ApacheKafka, run_tool
from support.command_line import Ended, command, home
from support.serving import HOST, LISTENER, broker_in_thread

from trioka.cli.terminal.failure import Exit

__all__ = ["home"]

CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
PATIENCE_S = 20
LOOK_AGAIN_S = 0.1
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OPEN = {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
SECURED = {
    **AUTHORIZER,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} username="admin" password="a" user_admin="a";',
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": "of a test",
}


@pytest.fixture(scope="module")
def both(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of an Apache Kafka and of a trioka that enforce access rules."""
    with (
        ApacheKafka(OPEN) as kafka,
        broker_in_thread(
            tmp_path_factory.mktemp("trioka"),
            None,
            **{key.replace(".", "_"): value for key, value in OPEN.items()},
        ) as broker,
    ):
        yield kafka.bootstrap, f"{HOST}:{broker.addresses[LISTENER][1]}"


def same(both: tuple[str, str], *arguments: str) -> Ended:
    """Fails unless both say the same. Kafka confirms a change before it has applied it, so it is asked again."""
    trioka = command(*arguments, at=both[1])
    kafka = until(lambda: command(*arguments, at=both[0]), lambda ended: (ended.code, ended.out) == trioka[:2])
    assert (kafka.code, kafka.out) == (trioka.code, trioka.out), f"{arguments}: {kafka} {trioka}"
    return trioka


def until(ask: Callable[[], Ended], is_right: Callable[[Ended], bool]) -> Ended:
    """The first answer that is right, or the last one within PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_right(ended := ask()) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_S)
    return ended


def until_code(code: int, ask: Callable[[], Ended]) -> Ended:
    ended = until(ask, lambda ended: ended.code == code)
    assert ended.code == code, ended
    return ended


def until_rows(expected: int, ask: Callable[[], Ended]) -> Ended:
    ended = until(ask, lambda ended: ended.code == Exit.OK and len(ended.rows) == expected)
    assert ended.code == Exit.OK and len(ended.rows) == expected, ended
    return ended


def test_rules_are_added_listed_and_removed(both: tuple[str, str], home: Path) -> None:
    for line in (
        "acl add User:bob read,describe topic:orders",
        "acl add bob write topic:logs- --resource-pattern-type prefixed",
        "acl add User:* delete topic:logs-x --deny --host 127.0.0.1",
        "acl add User:spark create-tokens user:User:ann",
        "acl add bob AlterConfigs cluster",
    ):
        assert same(both, *line.split()).code == Exit.OK, line
    assert len(same(both, "acl", "list", "-o", "json").rows) == 6
    matching = same(both, "acl", "list", "--resource", "topic:logs-x", "--resource-pattern-type", "match", "-o", "json")
    assert [row["permission"] for row in matching.rows] == ["ALLOW", "DENY"]
    seen = run_tool(ACLS, "--bootstrap-server", both[0], "--list", "--topic", "logs-", "--resource-pattern-type", "any")
    assert "principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW" in seen
    for line, code, reason in (
        ("bob write topic:logs-x", Exit.OK, "allowed: ALLOW User:bob WRITE on prefixed topic:logs- from *"),
        ("bob delete topic:logs-x", Exit.UNAUTHORISED, "denied: DENY User:* DELETE on literal topic:logs-x"),
        ("bob describe topic:logs-y", Exit.OK, "allowed: ALLOW User:bob WRITE on prefixed"),
        ("bob write topic:orders", Exit.UNAUTHORISED, "denied: no rule allows it to User:bob"),
        ("ann read topic:orders", Exit.UNAUTHORISED, "denied: no rule allows it to User:ann"),
    ):
        ended = same(both, "acl", "can", *line.split())
        assert ended.code == code and ended.out.startswith(reason), ended
    assert same(both, "acl", "remove", "--principal", "bob", "-y").code == Exit.OK
    assert same(both, "acl", "remove", "--principal", "bob", "-y").code == Exit.NOT_FOUND
    assert len(same(both, "acl", "list", "-o", "json").rows) == 2


def test_quotas_are_set_listed_and_removed(both: tuple[str, str], home: Path) -> None:
    for line in (
        "producer_byte_rate=1MB request_percentage=50 --user alice",
        "consumer_byte_rate=5 --user-defaults --client-id etl",
        "controller_mutation_rate=2.5 --client-defaults",
        "connection_creation_rate=20 --ip 10.0.0.7",
        "connection_creation_rate=30 --ip-defaults",
    ):
        assert same(both, "quota", "set", *line.split()).code == Exit.OK, line
    assert len(same(both, "quota", "list", "-o", "json").rows) == 6
    assert len(same(both, "quota", "list", "--user", "alice").lines) == 2
    seen = run_tool(
        CONFIGS, "--bootstrap-server", both[0], "--describe", "--entity-type", "users", "--entity-name", "alice"
    )
    assert "producer_byte_rate=1000000.0" in seen and "request_percentage=50.0" in seen
    assert same(both, "quota", "remove", "request_percentage", "--user", "alice").code == Exit.OK
    assert len(same(both, "quota", "list", "--user", "alice").lines) == 1
    assert same(both, "quota", "remove", "--user", "alice").code == Exit.OK
    assert same(both, "quota", "remove", "--user", "alice").code == Exit.NOT_FOUND


@pytest.fixture(params=["kafka", "trioka"])
def secured(request: pytest.FixtureRequest, apache_kafka: None, tmp_path: Path) -> Iterator[str]:
    """The address of an Apache Kafka, and of a trioka, with logins and tokens."""
    if request.param == "kafka":
        with ApacheKafka(SECURED) as kafka:
            yield kafka.bootstrap
    else:
        with broker_in_thread(
            tmp_path / "data", None, **{key.replace(".", "_"): value for key, value in SECURED.items()}
        ) as broker:
            yield f"{HOST}:{broker.addresses[LISTENER][1]}"


def test_users_and_tokens(secured: str, home: Path) -> None:
    admin = _login(home, "PLAIN", "admin", "a")
    _users(secured, admin, home)
    _tokens(secured, home)


def _login(home: Path, mechanism: str, user: str, password: str, more: str = "") -> tuple[str, str]:
    file = home / f"{mechanism}-{user}.properties"
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} username="{user}" password="{password}"{more};\n'
    )
    return "--command-config", str(file)


def _users(at: str, admin: tuple[str, str], home: Path) -> None:
    def user(*arguments: str, stdin: bytes = b"") -> Ended:
        return command("user", *arguments, *admin, at=at, stdin=stdin)

    assert user("list", "-o", "json").rows == []
    assert user("create", "alice", stdin=b"first\n").code == Exit.OK
    until_rows(1, lambda: user("list", "-o", "json"))
    assert user("create", "alice", stdin=b"first\n").code == Exit.EXISTS
    second = ("create", "alice", "--mechanism", "scram-sha-256", "--iterations", "8192")
    assert user(*second, stdin=b"first").code == Exit.OK
    assert user("create", "bob", stdin=b"\n").code == Exit.USAGE
    assert until_rows(2, lambda: user("list", "alice", "-o", "json")).rows == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    assert user("passwd", "alice", stdin=b"second, =\n").code == Exit.OK
    lost = user("passwd", "alicia", stdin=b"x\n")
    assert lost.code == Exit.NOT_FOUND and "did you mean: alice?" in lost.stderr
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        right = _login(home, mechanism, "alice", "second, =")
        until_code(Exit.OK, lambda right=right: command("topics", "list", *right, at=at))  # type: ignore[misc]
        wrong = command("topics", "list", *_login(home, mechanism, "alice", "first"), at=at)
        assert wrong.code == Exit.UNAUTHORISED and "Check user name and password" in wrong.stderr
    assert user("delete", "alice", "--mechanism", "SCRAM-SHA-256", "-y").code == Exit.OK
    assert until_rows(1, lambda: user("list", "-o", "json")).rows[0]["mechanism"] == "SCRAM-SHA-512"
    assert user("delete", "alicia", "-y").code == Exit.NOT_FOUND


def _tokens(at: str, home: Path) -> None:
    alice = _login(home, "SCRAM-SHA-512", "alice", "second, =")

    def token(*arguments: str) -> Ended:
        return command("token", *arguments, *alice, at=at)

    assert token("list", "-o", "json").rows == []
    (made,) = token("create", "--max-life-time", "1h", "--renewer", "User:bob", "-o", "json").rows
    assert made["owner"] == "User:alice"
    listed = until_rows(1, lambda: token("list", "-o", "json"))
    (row,) = listed.rows
    assert row["token_id"] == made["token_id"] and row["renewers"] == ["User:bob"]
    assert made["hmac"] not in listed.out
    by_token = _login(home, "SCRAM-SHA-256", made["token_id"], made["hmac"], " tokenauth=true")
    assert command("topics", "list", *by_token, at=at).code == Exit.OK
    assert re.search("expires 20..-", token("renew", made["token_id"], "--renew-time-period", "10m").stderr)
    assert token("expire", "no-such-token").code == Exit.NOT_FOUND
    assert token("expire", made["token_id"]).code == Exit.OK
    until_rows(0, lambda: token("list", "-o", "json"))
