"""The security part of the metadata image: access rules (acls.py), SCRAM credentials, delegation tokens.

They are only stored here; authorization and authentication read them. A credential never shows its
secrets when it is printed.
"""

import hmac
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from hashlib import sha256
from heapq import nsmallest
from types import MappingProxyType

from trioka.protocol.internal_records.metadata import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.sasl.scram import MIN_ITERATIONS, SCRAM_MECHANISMS

from ..quorum.metadata_log import MetadataRecord
from .acls import Acls
from .replay_error import ReplayError


@frozen
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@frozen
class DelegationToken:
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


class SecurityImage:
    def __init__(self) -> None:
        self.acls = Acls()
        self._scram: dict[tuple[int, str], ScramCredential] = {}
        self._tokens: dict[str, DelegationToken] = {}
        self._user_digests: dict[str, bytes] = {}  # of all credentials of a user
        self._iterations: Counter[tuple[int, int]] = Counter()  # mechanism and iterations: how many credentials
        self._two_digests: bytes | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecurityImage):
            return NotImplemented
        return (self.acls, self._scram, self._tokens) == (other.acls, other._scram, other._tokens)

    __hash__ = None  # type: ignore[assignment]

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        return MappingProxyType(self._tokens)

    def scram(self, name: str, mechanism: int) -> ScramCredential | None:
        return self._scram.get((mechanism, name))

    def scram_secret(self, cluster_id: str, secret_key: bytes) -> bytes:
        """The secret from which unknown users get their salts: the same on all nodes, and after a restart.

        It is derived from the secret key of all nodes (delegation.token.secret.key). Without such a key it is derived
        from the two users whose digests are the smallest, so that no single user knows it, and few changes of
        credentials change it."""
        if secret_key:
            return hmac.digest(secret_key, f"salts of unknown users {cluster_id}".encode(), "sha256")
        if self._two_digests is None:
            self._two_digests = b"".join(nsmallest(2, self._user_digests.values()))
        return sha256(cluster_id.encode() + self._two_digests).digest()

    def usual_iterations(self, mechanism: int) -> int:
        """The iterations of most credentials of the mechanism; in a tie, the smallest."""
        found = [(-count, iterations) for (each, iterations), count in self._iterations.items() if each == mechanism]
        return min(found)[1] if found else MIN_ITERATIONS

    def scram_users(self) -> Iterator[tuple[str, int, ScramCredential]]:
        for (mechanism, name), credential in sorted(self._scram.items(), key=lambda item: item[0]):
            yield name, mechanism, credential

    def copy(self) -> "SecurityImage":
        access = SecurityImage()
        access.acls = self.acls.copy()
        access._scram.update(self._scram)
        access._user_digests.update(self._user_digests)
        access._iterations.update(self._iterations)
        access._tokens.update(self._tokens)
        return access

    # --- replay

    def replay_scram(self, record: UserScramCredentialRecord) -> ScramCredential:
        self._forget_iterations(record.mechanism, record.name)
        credential = self._scram[record.mechanism, record.name] = ScramCredential(
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )
        self._iterations[record.mechanism, record.iterations] += 1
        self._digest_user(record.name)
        return credential

    def replay_scram_removal(self, record: RemoveUserScramCredentialRecord) -> None:
        self._forget_iterations(record.mechanism, record.name)
        if self._scram.pop((record.mechanism, record.name), None) is None:
            raise ReplayError(f"user {record.name!r} has no credential for SCRAM mechanism {record.mechanism}")
        self._digest_user(record.name)

    def _forget_iterations(self, mechanism: int, name: str) -> None:
        known = self._scram.get((mechanism, name))
        if known is not None:
            self._iterations[mechanism, known.iterations] -= 1
            self._iterations += Counter()  # removes counts of 0

    def _digest_user(self, name: str) -> None:
        found = [self._scram.get((each.number, name)) for each in SCRAM_MECHANISMS.values()]
        keys = b"".join(each.stored_key + each.server_key for each in found if each is not None)
        if keys:
            self._user_digests[name] = sha256(keys).digest()
        else:
            self._user_digests.pop(name, None)
        self._two_digests = None

    def replay_token(self, record: DelegationTokenRecord) -> DelegationToken:
        token = self._tokens[record.token_id] = DelegationToken(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_ms=record.issue_timestamp,
            max_ms=record.max_timestamp,
            expiry_ms=record.expiration_timestamp,
        )
        return token

    def replay_token_removal(self, record: RemoveDelegationTokenRecord) -> None:
        self._tokens.pop(record.token_id, None)

    def scram_records(self) -> Iterator[MetadataRecord]:
        for name, mechanism, credential in self.scram_users():
            yield UserScramCredentialRecord(
                name=name,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )

    def token_records(self) -> Iterator[MetadataRecord]:
        for _, token in sorted(self._tokens.items()):
            yield token_record(token)


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )
