"""What a coordinator keeps, as records: what is written is read again, and what is not known is left alone."""

import pytest

from trioka.coordinator.decision import StoredRecord
from trioka.coordinator.record_codec import GROUPS, TRANSACTIONS
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.internal_records.transactions import TransactionLogKey, TransactionLogValue

COMMIT = StoredRecord(
    OffsetCommitKey(group="g", topic="orders", partition=3),
    OffsetCommitValue(
        offset=42, leader_epoch=7, metadata="here", commit_timestamp=1_700_000_000_000, topic_id=bytes(range(16))
    ),
)


def test_what_is_written_is_read_again() -> None:
    assert GROUPS.decode(*GROUPS.encode(COMMIT)) == COMMIT
    transaction = StoredRecord(
        TransactionLogKey(transactional_id="t"),
        TransactionLogValue(
            producer_id=5,
            producer_epoch=2,
            transaction_timeout_ms=60_000,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=1,
            transaction_start_timestamp_ms=-1,
        ),
    )
    assert TRANSACTIONS.decode(*TRANSACTIONS.encode(transaction)) == transaction


def test_a_commit_is_written_as_kafka_writes_it() -> None:
    key, value = GROUPS.encode(COMMIT)
    assert key.hex(" ") == "00 01 00 01 67 00 06 6f 72 64 65 72 73 00 00 00 03"
    assert value is not None
    assert value.hex(" ") == (
        "00 04 00 00 00 00 00 00 00 2a 00 00 00 07 05 68 65 72 65 00 00 01 8b cf e5 68 00 "
        "01 00 10 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f"
    )


def test_a_commit_with_an_expiry_is_written_in_the_version_that_has_it() -> None:
    expiring = StoredRecord(
        COMMIT.key, OffsetCommitValue(offset=42, metadata="here", commit_timestamp=1_000, expire_timestamp=2_000)
    )
    _, value = GROUPS.encode(expiring)
    assert value is not None
    assert (
        value.hex(" ")
        == "00 01 00 00 00 00 00 00 00 2a 00 04 68 65 72 65 00 00 00 00 00 00 03 e8 00 00 00 00 00 00 07 d0"
    )
    assert GROUPS.decode(*GROUPS.encode(expiring)) == expiring


def test_what_is_forgotten_has_a_key_and_no_value() -> None:
    key, value = GROUPS.encode(StoredRecord(COMMIT.key, None))
    assert value is None
    assert GROUPS.decode(key, None) == StoredRecord(COMMIT.key, None)


def test_an_unknown_kind_is_left_alone() -> None:
    assert GROUPS.decode(b"\x7f\x00anything", b"\x00\x00") is None


@pytest.mark.parametrize(("key", "value"), [(b"", b""), (b"\x00", None), (b"\x00\x01\x00", None)])
def test_a_record_that_is_cut_short_is_no_record(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        GROUPS.decode(key, value)
