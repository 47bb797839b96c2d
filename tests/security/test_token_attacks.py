"""Delegation tokens in hostile hands: each request that may not be, its error, and that nothing changed.

The clients here have logged in already, as the connection says; how they log in is another matter.
"""

from pathlib import Path
from typing import Any

import trio
from support.serving import ask, on_trio, running_broker

from trioka.broker.api import SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.broker.config.addresses import SecurityProtocol
from trioka.broker.network.internal_call import call_handler
from trioka.cluster.acls import AclOperation, AclPermission, AclResourceType, PatternType
from trioka.cluster.delegation_tokens import token_hmac
from trioka.protocol.errors import (
    NONE,
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
)
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from trioka.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512
from trioka.protocol.schema import Request

SECRET = "key of all nodes"
KEYS: dict[str, Any] = {"delegation_token_secret_key": SECRET}
ACLS: dict[str, Any] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
ANN, BOB, EVE, ANONYMOUS = "User:ann", "User:bob", "User:eve", "User:ANONYMOUS"
NEVER = -1


async def request(
    broker: Broker,
    requested: Request,
    principal: str = ANN,
    *,
    protocol: SecurityProtocol = SecurityProtocol.SASL_SSL,
    by_token: bool = False,
) -> Any:
    version = SUPPORTED_APIS[type(requested).__key__ or 0].last
    return await call_handler(
        broker, requested, version, principal=principal, security_protocol=protocol, is_token_authenticated=by_token
    )


def creation(owner: str = "", *renewers: str, lifetime_ms: int = -1, owner_type: str = "User") -> Request:
    renewer = CreateDelegationTokenRequest.Renewer
    return CreateDelegationTokenRequest(
        owner_principal_type=owner_type if owner else "",
        owner_principal_name=owner,
        renewers=[renewer(principal_type="User", principal_name=name) for name in renewers],
        max_lifetime_ms=lifetime_ms,
    )


def renewal(hmac: bytes, period_ms: int = -1) -> Request:
    return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def expiry(hmac: bytes, period_ms: int = -1) -> Request:
    return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


def description(*owners: str) -> Request:
    owner = DescribeDelegationTokenRequest.Owner
    named = [owner(principal_type="User", principal_name=name) for name in owners]
    return DescribeDelegationTokenRequest(owners=named or None)


async def token_of(broker: Broker, *renewers: str, principal: str = ANN, lifetime_ms: int = -1) -> Any:
    created = await request(broker, creation("", *renewers, lifetime_ms=lifetime_ms), principal)
    assert created.error_code == NONE
    return created


async def allow(broker: Broker, principal: str, operation: AclOperation, kind: AclResourceType, name: str) -> None:
    rule = CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=AclPermission.ALLOW,
    )
    (result,) = (await ask(broker, CreateAclsRequest(creations=[rule]), 3)).results
    assert result.error_code == NONE


@on_trio
async def test_over_an_open_connection_no_request_about_tokens_is_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS) as broker:
        hmac = (await token_of(broker)).hmac
        not_allowed = DelegationTokenRequestNotAllowed.code
        open_ways: list[dict[str, Any]] = [
            {"protocol": SecurityProtocol.PLAINTEXT},
            {"protocol": SecurityProtocol.SSL, "principal": ANONYMOUS},
            {"by_token": True},
        ]
        for how in open_ways:
            created = await request(broker, creation(), **how)
            assert (created.error_code, created.hmac, created.expiry_timestamp_ms) == (not_allowed, b"", NEVER)
            for requested in (renewal(hmac), expiry(hmac)):
                response = await request(broker, requested, **how)
                assert (response.error_code, response.expiry_timestamp_ms) == (not_allowed, NEVER)
            result = await request(broker, description(), **how)
            assert (result.error_code, result.tokens) == (not_allowed, [])
        assert len(broker.metadata.access.tokens) == 1
        assert (await request(broker, creation(), protocol=SecurityProtocol.SSL)).error_code == NONE


@on_trio
async def test_over_a_plaintext_listener_a_real_client_gets_no_token(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS) as broker:
        for listener in ("PLAINTEXT", "CONTROLLER"):
            assert (await ask(broker, creation(), 3, listener)).error_code == DelegationTokenRequestNotAllowed.code
            response = await ask(broker, renewal(b"x"), 2, listener)
            assert response.error_code == DelegationTokenRequestNotAllowed.code
            assert (await ask(broker, description(), 3, listener)).error_code == DelegationTokenRequestNotAllowed.code
        assert not broker.metadata.access.tokens


@on_trio
async def test_without_a_secret_key_tokens_are_switched_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for requested in (creation(), renewal(b"x"), expiry(b"x"), description()):
            assert (await request(broker, requested)).error_code == DelegationTokenAuthDisabled.code, requested


@on_trio
async def test_a_wrong_hmac_finds_no_token(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS) as broker:
        token = await token_of(broker)
        assert token.hmac == token_hmac(SECRET.encode(), token.token_id)
        for wrong in (b"", token.hmac[:-1], token.hmac + b"\0", bytes(64), token.token_id.encode()):
            for requested in (renewal(wrong), expiry(wrong)):
                assert (await request(broker, requested)).error_code == DelegationTokenNotFound.code
        assert token.token_id in broker.metadata.access.tokens


@on_trio
async def test_a_stranger_neither_renews_nor_expires_nor_sees_a_token(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS, **ACLS) as broker:
        token = await token_of(broker, "bob")
        for requested in (renewal(token.hmac), expiry(token.hmac), expiry(token.hmac, 5)):
            assert (await request(broker, requested, EVE)).error_code == DelegationTokenOwnerMismatch.code
        for owners in ((), ("ann",), ("eve",), ("bob",)):
            assert (await request(broker, description(*owners), EVE)).tokens == []
        for principal in (ANN, BOB):
            (found,) = (await request(broker, description(), principal)).tokens
            assert (found.token_id, found.hmac) == (token.token_id, token.hmac)
        assert (await request(broker, renewal(token.hmac), BOB)).error_code == NONE
        assert (await request(broker, expiry(token.hmac), BOB)).error_code == NONE
        assert (await request(broker, renewal(token.hmac), BOB)).error_code == DelegationTokenNotFound.code


@on_trio
async def test_a_token_for_another_owner_needs_create_tokens(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS, **ACLS) as broker:
        refused = await request(broker, creation("bob"))
        assert refused.error_code == DelegationTokenAuthorizationFailed.code
        assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "ann")
        await allow(broker, ANN, AclOperation.CREATE_TOKENS, AclResourceType.USER, BOB)
        made = await request(broker, creation("bob"))
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (NONE, "bob", "ann")
        # It is bob's: who asked for it has no right to it.
        assert (await request(broker, renewal(made.hmac))).error_code == DelegationTokenOwnerMismatch.code
        assert (await request(broker, description())).tokens == []
        assert (await request(broker, renewal(made.hmac), BOB)).error_code == NONE


@on_trio
async def test_the_owner_of_a_token_is_a_user_whatever_rules_allow(tmp_path: Path) -> None:
    """The token would log in as User:root, about whom the rule says nothing."""
    async with running_broker(tmp_path, **KEYS, **ACLS) as broker:
        await allow(broker, ANN, AclOperation.CREATE_TOKENS, AclResourceType.USER, "Group:root")
        refused = await request(broker, creation("root", owner_type="Group"))
        assert refused.error_code == InvalidPrincipalType.code
        assert not broker.metadata.access.tokens


@on_trio
async def test_tokens_of_others_are_told_to_those_who_may_describe_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS, **ACLS) as broker:
        first, second = await token_of(broker), await token_of(broker)
        await allow(broker, EVE, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, first.token_id)
        await allow(broker, BOB, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, ANN)
        assert [each.token_id for each in (await request(broker, description(), EVE)).tokens] == [first.token_id]
        both = {each.token_id for each in (await request(broker, description("ann"), BOB)).tokens}
        assert both == {first.token_id, second.token_id}
        assert (await request(broker, description("bob"), BOB)).tokens == []


@on_trio
async def test_a_token_past_its_time_logs_nobody_in(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS) as broker:
        token = await token_of(broker)
        login = broker.tokens.credential(SCRAM_SHA_256, token.token_id)
        assert login is not None and login.principal == ANN
        assert login.expires_at_ms == token.expiry_timestamp_ms
        assert (await request(broker, expiry(token.hmac, 0))).error_code == NONE
        while broker.clock.now_ms() <= broker.metadata.access.tokens[token.token_id].expiry_ms:
            pass
        assert broker.tokens.credential(SCRAM_SHA_256, token.token_id) is None
        assert (await request(broker, renewal(token.hmac))).error_code == DelegationTokenExpired.code
        assert (await request(broker, expiry(token.hmac))).error_code == NONE
        assert broker.tokens.credential(SCRAM_SHA_256, token.token_id) is None


@on_trio
async def test_the_controller_removes_tokens_past_their_time(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"delegation_token_expiry_check_interval_ms": 1, "broker_session_timeout_ms": 200}
    async with running_broker(tmp_path, **KEYS, **settings) as broker:
        token = await token_of(broker, lifetime_ms=1)
        stays = await token_of(broker)
        while token.token_id in broker.metadata.access.tokens:
            await trio.sleep(0.01)
        assert stays.token_id in broker.metadata.access.tokens


@on_trio
async def test_tokens_outlive_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **KEYS) as broker:
        token = await token_of(broker, "bob")
    async with running_broker(tmp_path, **KEYS) as broker:
        (found,) = (await request(broker, description())).tokens
        assert (found.token_id, found.hmac) == (token.token_id, token.hmac)
        assert broker.tokens.credential(SCRAM_SHA_512, token.token_id) is not None
    async with running_broker(tmp_path, delegation_token_secret_key="another key") as broker:
        (found,) = (await request(broker, description())).tokens
        assert found.hmac != token.hmac
        assert (await request(broker, renewal(token.hmac))).error_code == DelegationTokenNotFound.code
