"""SCRAM credentials (RFC 5802): the salted hash of a password, which does not allow a login.
protocol/sasl/scram.py has the formulas.

A credential is given in the format of Kafka's StorageTool, and the same records are written:

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]

Error texts never contain the input: it may be a password.
"""

import binascii
import re
from base64 import b64decode
from typing import Final

from trioka.protocol.internal_records.metadata import UserScramCredentialRecord
from trioka.protocol.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    salt_text,
    salted_password,
    scram_keys,
)

_CREDENTIAL: Final = re.compile(r"\s*([^=]*)=\[(.*)\]\s*", re.DOTALL)
_PARTS: Final = frozenset({"name", "password", "saltedpassword", "salt", "iterations"})


def credential_of(text: str, random: bytes) -> UserScramCredentialRecord:
    """ValueError, with one sentence, for invalid text. `random` provides the salt if the text has none."""
    matched = _CREDENTIAL.fullmatch(text)
    if matched is None:
        raise ValueError("a credential has the form MECHANISM=[name=NAME,password=PASSWORD]")
    if matched[1] not in SCRAM_MECHANISMS:
        raise ValueError(f"a mechanism is one of {', '.join(SCRAM_MECHANISMS)}")
    mechanism = SCRAM_MECHANISMS[matched[1]]
    fields = _parts(matched[2])
    if not fields.get("name"):
        raise ValueError("a credential needs a name")
    iterations = _iterations(fields.get("iterations", str(MIN_ITERATIONS)))
    salt = _decoded(fields["salt"], "salt") if "salt" in fields else salt_text(random)
    if "password" in fields:
        salted = salted_password(mechanism, fields["password"], salt, iterations)
    elif "saltedpassword" not in fields:
        raise ValueError("a credential needs a password or a saltedpassword")
    elif "salt" not in fields:
        raise ValueError("a saltedpassword needs its salt")
    else:
        salted = _decoded(fields["saltedpassword"], "saltedpassword")
    keys = scram_keys(mechanism, salted)
    return UserScramCredentialRecord(
        name=fields["name"],
        mechanism=mechanism.number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _parts(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in _PARTS:
            raise ValueError(f"a credential has nothing but {', '.join(sorted(_PARTS))}, each with a value")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        fields[name] = value
    return fields


def _iterations(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ValueError(f"iterations are a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _decoded(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the {name} must be base64") from None
