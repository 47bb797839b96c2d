"""Who may do what, and how they prove who they are: access rules (acls.py), SCRAM credentials, delegation tokens.

They are kept and told, and nothing more: those who authorise and authenticate read them. A credential never shows its
secrets when it is printed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from trioka.protocol.internal_records.metadata import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from trioka.protocol.lazy_dataclass import frozen

from .acls import Acls
from .metadata_log import MetadataRecord
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


class Access:
    def __init__(self) -> None:
        self.acls = Acls()
        self._scram: dict[tuple[int, str], ScramCredential] = {}
        self._tokens: dict[str, DelegationToken] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Access):
            return NotImplemented
        return (self.acls, self._scram, self._tokens) == (other.acls, other._scram, other._tokens)

    __hash__ = None  # type: ignore[assignment]

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        return MappingProxyType(self._tokens)

    def scram(self, name: str, mechanism: int) -> ScramCredential | None:
        return self._scram.get((mechanism, name))

    def scram_users(self) -> Iterator[tuple[str, int, ScramCredential]]:
        for (mechanism, name), credential in sorted(self._scram.items(), key=lambda item: item[0]):
            yield name, mechanism, credential

    def copy(self) -> "Access":
        access = Access()
        access.acls = self.acls.copy()
        access._scram.update(self._scram)
        access._tokens.update(self._tokens)
        return access

    # --- replay

    def replay_scram(self, record: UserScramCredentialRecord) -> ScramCredential:
        credential = self._scram[record.mechanism, record.name] = ScramCredential(
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )
        return credential

    def replay_scram_removal(self, record: RemoveUserScramCredentialRecord) -> None:
        if self._scram.pop((record.mechanism, record.name), None) is None:
            raise ReplayError(f"user {record.name!r} has no credential for SCRAM mechanism {record.mechanism}")

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
            yield DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_ms,
                max_timestamp=token.max_ms,
                expiration_timestamp=token.expiry_ms,
                token_id=token.token_id,
            )
