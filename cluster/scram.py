"""SCRAM credentials (RFC 5802): what is kept of a password, so that whoever reads it cannot log in with it.

    salted password  =  PBKDF2(password, salt, iterations)
    stored key       =  H(HMAC(salted password, "Client Key"))
    server key       =  HMAC(salted password, "Server Key")

A credential is said as Kafka's StorageTool takes it, and what is written is what it writes:

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]

What was wrong is told without a word of what was said: that may be a password.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode
from typing import Final

from trioka.protocol.internal_records.metadata import UserScramCredentialRecord

MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
SALT_BYTES: Final = 20

_CREDENTIAL: Final = re.compile(r"\s*([^=]*)=\[(.*)\]\s*", re.DOTALL)
_PARTS: Final = frozenset({"name", "password", "saltedpassword", "salt", "iterations"})


def credential_of(text: str, random_salt: bytes) -> UserScramCredentialRecord:
    """ValueError, with one sentence, for what is no credential. `random_salt` is for one that brings none."""
    matched = _CREDENTIAL.fullmatch(text)
    if matched is None:
        raise ValueError("a credential is said as MECHANISM=[name=NAME,password=PASSWORD]")
    if matched[1] not in MECHANISMS:
        raise ValueError(f"a mechanism is one of {', '.join(MECHANISMS)}")
    mechanism, digest = MECHANISMS[matched[1]]
    said = _parts(matched[2])
    if not said.get("name"):
        raise ValueError("a credential needs a name")
    iterations = _iterations(said.get("iterations", str(FEWEST_ITERATIONS)))
    salt = _decoded(said["salt"], "salt") if "salt" in said else random_salt
    if "password" in said:
        salted = hashlib.pbkdf2_hmac(digest, said["password"].encode(), salt, iterations)
    elif "saltedpassword" not in said:
        raise ValueError("a credential needs a password or a saltedpassword")
    elif "salt" not in said:
        raise ValueError("a saltedpassword needs its salt")
    else:
        salted = _decoded(said["saltedpassword"], "saltedpassword")
    return UserScramCredentialRecord(
        name=said["name"],
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
        iterations=iterations,
    )


def _parts(text: str) -> dict[str, str]:
    said: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in _PARTS:
            raise ValueError(f"a credential has nothing but {', '.join(sorted(_PARTS))}, each with a value")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        said[name] = value
    return said


def _iterations(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not FEWEST_ITERATIONS <= int(text) <= MOST_ITERATIONS:
        raise ValueError(f"iterations are a number from {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
    return int(text)


def _decoded(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the {name} must be base64") from None
