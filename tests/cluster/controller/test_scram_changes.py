"""SCRAM credentials are changed: what is refused and what is written. compat-tests/test_responses_scram.py
asks Kafka."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed

from trioka.cluster.controller import scram_changes as module
from trioka.cluster.image.metadata import Metadata
from trioka.protocol.internal_records.metadata import FeatureLevelRecord
from trioka.protocol.sasl.scram import SCRAM_SHA_256, salted_password, scram_keys

SALTED = salted_password(SCRAM_SHA_256, "pencil", b"salt", 4096)


@pytest.fixture
def scram_changes() -> ModuleType:
    return module


def metadata_with(*records: Any) -> Metadata:
    metadata = Metadata()
    for offset, record in enumerate([FeatureLevelRecord(name="metadata.version", feature_level=29), *records]):
        metadata.replay(record, offset, 1)
    return metadata


def upsertion(**changes: Any) -> module.Upsertion:
    fields = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": SALTED}
    return module.Upsertion(**{**fields, **changes})


def decided(module: Any, deletions: list[Any], upsertions: list[Any], *records: Any) -> dict[str, int]:
    decision = module.alter_user_scram_credentials(metadata_with(*records), deletions, upsertions)
    codes = {reply.user: reply.outcome.code for reply in decision.replies}
    assert {record.name for record in decision.records} == {user for user, code in codes.items() if not code}
    return codes


def test_the_keys_are_those_of_the_rfc_and_the_password_is_not_written(scram_changes: ModuleType) -> None:
    decision = scram_changes.alter_user_scram_credentials(metadata_with(), [], [upsertion()])
    (record,) = decision.records
    keys = scram_keys(SCRAM_SHA_256, SALTED)
    assert (record.stored_key, record.server_key, record.salt) == (keys.stored_key, keys.server_key, b"salt")
    assert (record.name, record.mechanism, record.iterations) == ("ann", 1, 4096)


def test_what_is_too_weak_is_refused(scram_changes: ModuleType) -> None:
    for changes, code in (
        ({"iterations": 4095}, 93),
        ({"iterations": 16385}, 93),
        ({"salt": b""}, 93),
        ({"salt": bytes(1025)}, 93),
        ({"salted_password": SALTED[:-1]}, 93),
        ({"mechanism": 0}, 33),
        ({"mechanism": 3}, 33),
        ({"iterations": 4096}, 0),
        ({"iterations": 16384}, 0),
    ):
        assert decided(scram_changes, [], [upsertion(**changes)]) == {"ann": code}, changes
    assert decided(scram_changes, [], [upsertion(name=""), upsertion(name="x" * 1025)]) == {"": 93, "x" * 1025: 93}


def test_a_user_is_changed_once_in_a_request(scram_changes: ModuleType) -> None:
    deletion = module.Deletion(name="ann", mechanism=1)
    assert decided(scram_changes, [deletion], []) == {"ann": 91}
    assert decided(scram_changes, [deletion], [upsertion()]) == {"ann": 91}
    (there,) = module.alter_user_scram_credentials(metadata_with(), [], [upsertion()]).records
    assert decided(scram_changes, [deletion], [], there) == {"ann": 0}
    assert decided(scram_changes, [deletion], [upsertion()], there) == {"ann": 92}
    assert decided(scram_changes, [], [upsertion(), upsertion(), upsertion(name="ben")]) == {"ann": 92, "ben": 0}


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    (
        "stored_key=keys.stored_key",
        "stored_key=keys.server_key",
        test_the_keys_are_those_of_the_rfc_and_the_password_is_not_written,
    ),
    ("if upsertion.iterations < MIN_ITERATIONS:", "if False:", test_what_is_too_weak_is_refused),
    ("if upsertion.iterations > MAX_ITERATIONS:", "if False:", test_what_is_too_weak_is_refused),
    ("if len(salted) != mechanism.digest_bytes:", "if False:", test_what_is_too_weak_is_refused),
    ("if len(name.encode()) > MAX_NAME_BYTES:", "if False:", test_what_is_too_weak_is_refused),
    ("            if change.name in records:", "            if False:", test_a_user_is_changed_once_in_a_request),
    (
        "for user, record in records.items() if replies[user] is DONE",
        "for user, record in records.items()",
        test_a_user_is_changed_once_in_a_request,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(module, right, wrong, rule)
