"""The audit log of changes: each line tells which client has changed what, and none tells a secret."""

import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed, within
from support.broker_cluster import on_cluster, running_cluster
from support.requests_by_api import TOPIC
from support.sasl import upsertion
from support.serving import on_trio, running_broker

from trioka.broker.api import SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.broker.config.addresses import SecurityProtocol
from trioka.broker.network.internal_call import call_handler
from trioka.broker.security import audit
from trioka.cluster.acls import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType, rule_record
from trioka.cluster.configs import ConfigOperation, ConfigResourceType
from trioka.cluster.metadata import Metadata
from trioka.cluster.quotas import quota_entity, quota_record
from trioka.protocol.internal_records.metadata import (
    ConfigRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from trioka.protocol.schema import Request

ROOT, HOST = "User:root", "10.1.2.3"
PASSWORD, SECRET_KEY, STORE_PASSWORD = "scram-s3cret", "key of all nodes", "store-s3cret"
SETTINGS: dict[str, Any] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": f"User:ANONYMOUS;{ROOT}",
    "delegation_token_secret_key": SECRET_KEY,
}
BINDING: AclBinding = (
    AclResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:ann",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


@pytest.fixture
def module() -> ModuleType:
    return audit


async def ask_as_root(broker: Broker, request: Request) -> Any:
    version = SUPPORTED_APIS[type(request).__key__ or 0].last
    return await call_handler(
        broker, request, version, principal=ROOT, host=HOST, security_protocol=SecurityProtocol.SASL_SSL
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.name == "trioka.audit"]
    caplog.clear()
    return found


def configs(*changes: tuple[int, str, str, str | None], validate_only: bool = False) -> Request:
    resource = IncrementalAlterConfigsRequest.Resource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource.Config(
                        name=key,
                        config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
                        value=value,
                    )
                ],
            )
            for kind, name, key, value in changes
        ],
        validate_only=validate_only,
    )


@on_trio
async def test_acls_and_users_are_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trioka.audit")
    async with running_broker(tmp_path, **SETTINGS) as broker:
        creation = CreateAclsRequest.Creation(
            resource_type=2,
            resource_name="orders",
            resource_pattern_type=3,
            principal="User:ann",
            host="*",
            operation=3,
            permission_type=3,
        )
        await ask_as_root(broker, CreateAclsRequest(creations=[creation]))
        rule = "ACL ALLOW READ on TOPIC LITERAL orders to User:ann from *"
        assert lines(caplog) == [f"{rule} created by {ROOT} from {HOST}"]
        await ask_as_root(broker, CreateAclsRequest(creations=[creation]))
        assert lines(caplog) == []  # it was there
        everything = DeleteAclsRequest.Filter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        await ask_as_root(broker, DeleteAclsRequest(filters=[everything]))
        assert lines(caplog) == [f"{rule} deleted by {ROOT} from {HOST}"]

        for what in ("created", "changed"):
            wanted = upsertion("ann", "SCRAM-SHA-256", PASSWORD)
            await ask_as_root(broker, AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]))
            expected = f"SCRAM user ann {what} for SCRAM-SHA-256 with 4096 iterations by {ROOT} from {HOST}"
            assert lines(caplog) == [expected]
        gone = AlterUserScramCredentialsRequest.Deletion(name="ann", mechanism=1)
        await ask_as_root(broker, AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[]))
        assert lines(caplog) == [f"SCRAM user ann deleted for SCRAM-SHA-256 by {ROOT} from {HOST}"]


@on_trio
async def test_tokens_are_audited_without_their_hmacs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trioka.audit")
    async with running_broker(tmp_path, **SETTINGS) as broker:
        token = await ask_as_root(broker, CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))
        name = f"delegation token {token.token_id}"
        heard = lines(caplog)
        expected = f"{name} created for {ROOT} until {token.expiry_timestamp_ms} by {ROOT} from {HOST}"
        assert heard == [expected]
        await ask_as_root(broker, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000))
        heard += (renewed := lines(caplog))
        assert len(renewed) == 1 and renewed[0].startswith(f"{name} shortened from {token.expiry_timestamp_ms} to ")
        await ask_as_root(broker, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1))
        heard += (renewed := lines(caplog))
        assert len(renewed) == 1 and renewed[0].startswith(f"{name} renewed from ")
        await ask_as_root(broker, ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
        heard += (expired := lines(caplog))
        assert expired == [f"{name} removed by {ROOT} from {HOST}"]
        assert not any(bytes(token.hmac).hex() in line or SECRET_KEY in line for line in heard)


@on_trio
async def test_quotas_and_configurations_are_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trioka.audit")
    async with running_broker(tmp_path, **SETTINGS) as broker:
        await broker.create_missing_topics({TOPIC: 1})
        entry = AlterClientQuotasRequest.Entry
        for value, said in ((1000.0, "no value to 1000.0"), (2000.0, "1000.0 to 2000.0"), (None, "2000.0 to no value")):
            change = entry.Op(key="producer_byte_rate", value=value or 0.0, remove=value is None)
            wanted = entry(entity=[entry.Entity(entity_type="user", entity_name="ann")], ops=[change])
            await ask_as_root(broker, AlterClientQuotasRequest(entries=[wanted], validate_only=True))
            assert lines(caplog) == []
            await ask_as_root(broker, AlterClientQuotasRequest(entries=[wanted], validate_only=False))
            expected = f"quota of user ann producer_byte_rate changed from {said} by {ROOT} from {HOST}"
            assert lines(caplog) == [expected]

        topic, node = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
        await ask_as_root(broker, configs((topic, TOPIC, "retention.ms", "5000")))
        await ask_as_root(broker, configs((topic, TOPIC, "retention.ms", "6000"), validate_only=True))
        await ask_as_root(broker, configs((topic, TOPIC, "retention.ms", None), (node, "", "log.cleaner.threads", "1")))
        by = f"by {ROOT} from {HOST}"
        assert lines(caplog) == [
            f"configuration of topic {TOPIC} retention.ms changed from no value to '5000' {by}",
            f"configuration of topic {TOPIC} retention.ms changed from '5000' to no value {by}",
            f"configuration of broker <default> log.cleaner.threads changed from no value to '1' {by}",
        ]
        jaas = "listener.name.plaintext.plain.sasl.jaas.config"
        secret = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="{STORE_PASSWORD}";'
        response = await ask_as_root(broker, configs((node, "1", jaas, secret)))
        heard = lines(caplog)
        assert response.responses[0].error_code or heard == [
            f"configuration of broker 1 {jaas} changed from no value to [hidden] {by}"
        ]
        assert STORE_PASSWORD not in "".join(heard)


@on_cluster
async def test_a_change_through_another_node_names_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trioka.audit")
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        other = next(broker for broker in cluster.up if broker is not active)
        async with cluster.asking(other.node_id) as client:
            wanted = upsertion("ann", "SCRAM-SHA-256", PASSWORD)
            request: Request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
            (result,) = (await client.ask(request, 0)).results
            assert result.error_code == 0
            expected = "created for SCRAM-SHA-256 with 4096 iterations by User:ANONYMOUS from 127.0.0.1"
            assert lines(caplog) == [f"SCRAM user ann {expected}"]
            request = configs((ConfigResourceType.BROKER, "", "log.cleaner.threads", "1"))
            (result,) = (await client.ask(request, 1)).responses
            assert result.error_code == 0
            change = "configuration of broker <default> changed through the controller by User:ANONYMOUS from 127.0.0.1"
            assert change in lines(caplog)


# -- audit lines of records, without a broker -------------------------------------------------------------------------


def response(module: ModuleType, before: Metadata, *records: Any) -> list[tuple[str, str, str]]:
    return [tuple(each) for each in module.described(records, before)]


def config(kind: int, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name="1", name=key, value=value)


def test_secret_values_are_hidden_and_others_shown(module: ModuleType) -> None:
    before = Metadata()
    broker, topic = ConfigResourceType.BROKER, ConfigResourceType.TOPIC
    before.configs.replay(config(broker, "ssl.keystore.password", "old-s3cret"))
    for key in (
        "ssl.keystore.password",
        "listener.name.x.ssl.key.password",
        "listener.name.x.plain.sasl.jaas.config",
        "sasl.jaas.config",
        "a.key.of.a.later.version",
    ):
        ((_, _, what),) = response(module, before, config(broker, key, "new-s3cret"))
        assert "s3cret" not in what and what.endswith("to [hidden]"), what
    ((_, _, what),) = response(module, before, config(topic, "unknown", "new-s3cret"))
    assert "s3cret" not in what
    ((_, _, what),) = response(module, before, config(topic, "retention.ms", "5\nx"))
    assert what.endswith("to '5\\nx'")


def test_each_kind_of_record_is_audited_with_its_former_value(module: ModuleType) -> None:
    before = Metadata()
    rule = rule_record(b"1" * 16, BINDING)
    credential = UserScramCredentialRecord(
        name="ann", mechanism=2, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=5000
    )
    token = DelegationTokenRecord(
        owner="User:ann",
        requester="User:bob",
        renewers=[],
        issue_timestamp=0,
        max_timestamp=9,
        expiration_timestamp=5,
        token_id="id",
    )
    quota = quota_record(quota_entity({"user": None, "client-id": "c"}), "request_percentage", 7.0)
    topic = TopicRecord(name="orders", topic_id=bytes(16))
    made = response(module, before, rule, credential, token, quota, topic)
    assert [what for _, _, what in made] == [
        "created",
        "created for SCRAM-SHA-512 with 5000 iterations",
        "created for User:ann until 5",
        "request_percentage changed from no value to 7.0",
    ]
    assert made[3][1] == "client-id c user <default>"
    before.access.acls.replay(rule)
    before.access.replay_scram(credential)
    before.access.replay_token(token)
    removals = (
        RemoveAccessControlEntryRecord(id=b"1" * 16),
        RemoveUserScramCredentialRecord(name="ann", mechanism=2),
        RemoveDelegationTokenRecord(token_id="id"),
    )
    assert [what for _, _, what in response(module, before, *removals)] == [
        "deleted", "deleted for SCRAM-SHA-512", "removed",
    ]  # fmt: skip
    assert [what for _, _, what in response(module, before, credential, token)] == [
        "changed for SCRAM-SHA-512 with 5000 iterations",
        "renewed from 5 to 5",
    ]
    assert response(module, before, removals[0])[0][1] == "ALLOW READ on TOPIC LITERAL orders to User:ann from *"


MISTAKES = [
    ("return key is None or key.type.sensitive", "return key is None", test_secret_values_are_hidden_and_others_shown),
    ("return key is None or key.type.sensitive", "return False", test_secret_values_are_hidden_and_others_shown),
    (within("_is_hidden", "record.name not in known"), "False", test_secret_values_are_hidden_and_others_shown),
    ("yield _of_quota(record, before)", "pass", test_each_kind_of_record_is_audited_with_its_former_value),
    (
        "before.access.scram(record.name, record.mechanism) is None",
        "True",
        test_each_kind_of_record_is_audited_with_its_former_value,
    ),
    (
        "NO_VALUE if record.remove else str(record.value)",
        "NO_VALUE",
        test_each_kind_of_record_is_audited_with_its_former_value,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(audit, right, wrong, rule)


def test_the_lines_of_one_request_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trioka.audit")
    call: Any = type("Call", (), {})()
    call.connection = type("Connection", (), {"principal": "User:ann\n", "host": HOST})()
    changes = [audit.AuditedChange("ACL", "x\ny", "created")] * (audit.MAX_LINES + 7)
    audit._write(call, changes)
    heard = lines(caplog)
    assert len(heard) == audit.MAX_LINES + 1 and heard[-1] == f"7 more changes by 'User:ann\\n' from {HOST}"
    assert heard[0] == f"ACL 'x\\ny' created by 'User:ann\\n' from {HOST}"
