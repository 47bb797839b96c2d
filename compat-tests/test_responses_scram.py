"""SCRAM users, and SASL requests where no login is: Apache Kafka and trioka, asked the same."""

from collections.abc import Iterator
from typing import Any

import pytest
from judged import SETTINGS
from side_by_side import SideBySide, side_by_side
from support.sasl import upsertion

from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side(**SETTINGS) as sides:
        yield sides


def altered(sides: SideBySide, *, deletions: list[Any] | None = None, upsertions: list[Any] | None = None) -> None:
    request = AlterUserScramCredentialsRequest(deletions=deletions or [], upsertions=upsertions or [])
    sides.same(request, 0, order={"results": "user"})


def described(sides: SideBySide, *names: str) -> None:
    users = [DescribeUserScramCredentialsRequest.User(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users or None)
    sides.same(request, 0, order={"results": "user"})


def test_users_are_made_described_and_removed(sides: SideBySide) -> None:
    altered(sides, upsertions=[upsertion("ann", SHA_256, "a"), upsertion("ann", SHA_512, "a")])
    altered(sides, upsertions=[upsertion("ben", SHA_256, "b", iterations=8192)])
    described(sides)
    described(sides, "ann")
    described(sides, "ann", "nobody")
    described(sides, "ann", "ben", "ann")
    altered(sides, deletions=[Deletion(name="ann", mechanism=2)])
    described(sides, "ann")
    altered(sides, deletions=[Deletion(name="ann", mechanism=1), Deletion(name="ben", mechanism=1)])
    described(sides, "ann")
    described(sides)


def test_what_cannot_be_is_refused(sides: SideBySide) -> None:
    for changes in (
        {"iterations": 4095},
        {"iterations": 16385},
        {"iterations": 0},
        {"name": ""},
        {"mechanism": 0},
        {"mechanism": 3},
    ):
        altered(sides, upsertions=[upsertion("eve", SHA_256, "e", **changes)])
    for deletion in (
        Deletion(name="eve", mechanism=1),
        Deletion(name="", mechanism=1),
        Deletion(name="eve", mechanism=0),
    ):
        altered(sides, deletions=[deletion])
    described(sides)


def test_one_user_is_changed_once_in_a_request(sides: SideBySide) -> None:
    altered(sides, upsertions=[upsertion("ann", SHA_256, "a"), upsertion("ann", SHA_256, "b")])
    altered(sides, deletions=[Deletion(name="ann", mechanism=1)], upsertions=[upsertion("ann", SHA_256, "b")])
    altered(sides, upsertions=[upsertion("cid", SHA_256, "a"), upsertion("cid", SHA_512, "b", iterations=1)])
    described(sides)


def test_sasl_requests_on_an_open_listener(sides: SideBySide) -> None:
    for version in (0, 1):
        sides.same(SaslHandshakeRequest(mechanism="PLAIN"), version)
    for version in (0, 1, 2):
        sides.same(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
