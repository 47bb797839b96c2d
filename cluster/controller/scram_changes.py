"""SCRAM credentials are set and removed: AlterUserScramCredentials.

Checks, errors and their order are those of Apache Kafka 4.3.1, with two limits more: on the length of a name and of a
salt.
"""

from collections.abc import Sequence
from typing import Final

from trioka.protocol.errors import (
    DuplicateResource,
    KafkaError,
    PolicyViolation,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from trioka.protocol.internal_records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.sasl.scram import (
    MAX_ITERATIONS,
    MAX_NAME_BYTES,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    scram_keys,
)

from ..decision import DONE, Decision, ItemResult
from ..image.feature_levels import SCRAM_SINCE
from ..image.features import METADATA_VERSION
from ..image.metadata import Metadata
from ..quorum.metadata_log import MAX_RECORDS_PER_BATCH, MetadataRecord

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion

MAX_SALT_BYTES: Final = 1024
_MECHANISMS: Final = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}


@frozen
class ScramReply:
    user: str
    outcome: ItemResult


def alter_user_scram_credentials(
    metadata: Metadata, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Decision[ScramReply]:
    """One reply for each user. If a user is named twice, or one of its changes is refused, none of them is made."""
    if metadata.features.levels.get(METADATA_VERSION, 0) < SCRAM_SINCE:
        raise UnsupportedVersion("The current metadata version does not support SCRAM")
    replies: dict[str, ItemResult] = {}
    records: dict[str, MetadataRecord] = {}
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in changes:
        if replies.setdefault(change.name, DONE) is not DONE:
            continue
        try:
            if change.name in records:
                raise DuplicateResource("A user credential cannot be altered twice in the same request")
            record = _deleted(metadata, change) if isinstance(change, Deletion) else _upserted(change)
            records[change.name] = record
        except KafkaError as error:
            replies[change.name] = ItemResult.of(error)
    kept = [record for user, record in records.items() if replies[user] is DONE]
    if len(kept) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolation(f"a request can change {MAX_RECORDS_PER_BATCH} credentials, not more")
    return Decision(
        records=tuple(kept), replies=tuple(ScramReply(user=user, outcome=outcome) for user, outcome in replies.items())
    )


def _deleted(metadata: Metadata, deletion: Deletion) -> MetadataRecord:
    _checked(deletion.name, deletion.mechanism)
    if metadata.access.scram(deletion.name, deletion.mechanism) is None:
        raise ResourceNotFound("Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _upserted(upsertion: Upsertion) -> MetadataRecord:
    mechanism = _checked(upsertion.name, upsertion.mechanism)
    if upsertion.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    salt, salted = bytes(upsertion.salt), bytes(upsertion.salted_password)
    if not 0 < len(salt) <= MAX_SALT_BYTES:
        raise UnacceptableCredential(f"The salt must have from 1 to {MAX_SALT_BYTES} bytes")
    if len(salted) != mechanism.digest_bytes:
        raise UnacceptableCredential(f"The salted password must have {mechanism.digest_bytes} bytes")
    keys = scram_keys(mechanism, salted)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=upsertion.iterations,
    )


def _checked(name: str, number: int) -> ScramMechanism:
    if not name:
        raise UnacceptableCredential("Username must not be empty")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise UnacceptableCredential(f"Username must have at most {MAX_NAME_BYTES} bytes")
    if number not in _MECHANISMS:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    return _MECHANISMS[number]
