"""`trioka tier` as operators use it: three nodes with logins over TLS and an authorizer, and stores with faults. Every
problem is one sentence, and nothing is deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.certificates import authority, signed
from support.command_line import Ended, command
from support.object_stores import ACCESS_KEY, SECRET_KEY, faulty_s3, moto_s3
from support.secured_cluster import NODES, OTHER_USER, PASSWORD, STRANGERS_PASSWORD, USER, settings, stores
from support.serving import HOST
from support.tiered_topics import complete, create_tiered, fill, tiered, until_copied

from trioka.cli.terminal.failure import Exit

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Operators(NamedTuple):
    """Commands against a cluster, as an administrator and as a user without rights."""

    cluster: Cluster
    store: Path
    at: str
    configs: dict[str, Path]

    async def run(self, user: str, *words: str, limit: str = "20s") -> Ended:
        config = ("--command-config", str(self.configs[user]), "--timeout", limit)
        return await trio.to_thread.run_sync(partial(command, *words, *config, at=self.at))


@asynccontextmanager
async def operators(tmp_path: Path) -> AsyncIterator[Operators]:
    trusted, store = authority(), tmp_path / "store"
    how = {
        **settings("SASL_SSL"),
        **stores(tmp_path, trusted, signed(trusted, "CN=node")),
        **tiered(store),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{USER};User:ANONYMOUS",
    }
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **how) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 8)
        await until_copied(cluster)
        configs = {}
        for user, password in ((USER, PASSWORD), (OTHER_USER, STRANGERS_PASSWORD)):
            configs[user] = tmp_path / f"{user}.properties"
            configs[user].write_text(
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
                f"ssl.truststore.type=PEM\nssl.truststore.location={tmp_path / 'trusted.pem'}\n"
                "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{user}" password="{password}";\n'
            )
        yield Operators(cluster, store, f"{HOST}:{cluster[1].addresses[NODES][1]}", configs)


def is_a_sentence(ended: Ended, code: Exit, *words: str) -> None:
    assert ended.code == code, ended
    assert "Traceback" not in ended.stderr and all(word in ended.stderr for word in words), ended.stderr


@on_cluster
async def test_each_command_works_for_an_administrator_and_names_the_missing_right_of_others(tmp_path: Path) -> None:
    async with operators(tmp_path) as they:
        before = complete(they.store)
        for words in (
            ("tier", "status"),
            ("tier", "ls", "t"),
            ("tier", "verify", str(they.store)),
            ("tier", "sweep", str(they.store), "--execute"),
            ("tier", "lifecycle", "--print"),
        ):
            ended = await they.run(USER, *words)
            assert ended.code == Exit.OK, (words, ended.stderr)
        for words in (("tier", "status"), ("tier", "ls", "t"), ("tier", "verify", str(they.store))):
            is_a_sentence(await they.run(OTHER_USER, *words), Exit.UNAUTHORISED, "__remote_log_metadata cannot be read")
        refused = await they.run(OTHER_USER, "tier", "sweep", str(they.store), "--execute")
        is_a_sentence(refused, Exit.UNAUTHORISED, "trioka.tier.incarnation of broker")
        rules = await they.run(OTHER_USER, "tier", "lifecycle", "--print")
        assert rules.code == Exit.OK and "t-" not in rules.out, "topics that the user does not see are left out"
        allowed = await they.run(USER, "acl", "add", f"User:{OTHER_USER}", "describe", "topic:t")
        assert allowed.code == Exit.OK, allowed.stderr
        rules = await they.run(OTHER_USER, "tier", "lifecycle", "--print")
        is_a_sentence(rules, Exit.UNAUTHORISED, "configuration of topic t cannot be read")
        allowed = await they.run(USER, "acl", "add", f"User:{OTHER_USER}", "read", "topic:__remote_log_metadata")
        assert allowed.code == Exit.OK, allowed.stderr
        status = await they.run(OTHER_USER, "tier", "status", "-o", "json")
        assert status.code == Exit.OK and status.rows[0]["topic"] == "t", status.stderr
        assert complete(they.store) == before


@on_cluster
async def test_a_store_that_cannot_be_used_is_named_in_one_sentence(tmp_path: Path) -> None:
    async with operators(tmp_path) as they:
        (tmp_path / "empty").mkdir()
        empty = await they.run(USER, "tier", "verify", str(tmp_path / "empty"))
        is_a_sentence(empty, Exit.UNHEALTHY, "has no object of this cluster", "trioka.tier.url")
        swept = await they.run(USER, "tier", "sweep", str(tmp_path / "empty"), "--execute")
        is_a_sentence(swept, Exit.OK, "nothing to delete")
        with moto_s3() as endpoint:
            for name in ("verify", "sweep"):
                wrong = await they.run(USER, "tier", name, "s3://no-such-bucket/x", *s3(endpoint))
                is_a_sentence(wrong, Exit.UNREACHABLE, "s3://no-such-bucket/x", "no such bucket")
        for fault, code in (("hangs", Exit.UNREACHABLE), ("denied", Exit.UNAUTHORISED)):
            with faulty_s3(fault) as endpoint:
                ended = await they.run(USER, "tier", "verify", "s3://b/x", *s3(endpoint), limit="3s")
                is_a_sentence(ended, code, "s3://b/x")
                assert SECRET_KEY not in ended.stderr
        unknown = await they.run(USER, "tier", "verify", str(tmp_path / "nowhere"))
        is_a_sentence(unknown, Exit.USAGE, "is not the URL of a store")


def s3(endpoint: str) -> list[str]:
    options = {
        "region": "us-east-1",
        "allow_http": "true",
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "endpoint": endpoint,
    }
    return [word for key, value in options.items() for word in ("--store-option", f"{key}={value}")]
