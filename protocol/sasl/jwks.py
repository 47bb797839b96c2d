"""JSON Web Key Sets (RFC 7517): the public keys of an issuer, out of the document that it publishes.

A key set may hold keys that cannot be used here: of unknown types, for encryption, too short, symmetric. They are left
out; a set without any usable key is refused. A key with private parts is left out too: it counts as compromised,
because it was published.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from .jwt import ALGORITHMS, EC, EDWARDS, MAX_KEY_ID_CHARS, RSA, VerificationKey

MAX_KEY_SET_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192  # a verification takes 0.5 ms; it grows with the square
MAX_RSA_EXPONENT: Final = 1 << 32
EC_CURVES: Final[Mapping[str, tuple[str, int]]] = {"P-256": ("secp256r1", 32), "P-384": ("secp384r1", 48)}
EDWARDS_BYTES: Final[Mapping[str, int]] = {"Ed25519": 32, "Ed448": 57}
MAX_NUMBER_CHARS: Final = 2048  # in base64url: a number of 12,288 bits


class InvalidKeySet(ValueError):
    """The document is no key set, or has no key that can be used."""


def read_key_set(data: bytes) -> tuple[VerificationKey, ...]:
    """The keys that can be used, with distinct key ids."""
    if len(data) > MAX_KEY_SET_BYTES:
        raise InvalidKeySet(f"it has more than {MAX_KEY_SET_BYTES} bytes")
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise InvalidKeySet("it is no JSON in UTF-8") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InvalidKeySet('it has no list of "keys"')
    if len(listed) > MAX_KEYS:
        raise InvalidKeySet(f"it has {len(listed)} keys, more than {MAX_KEYS}")
    keys = [key for each in listed if isinstance(each, dict) and (key := _key(each)) is not None]
    if not keys:
        raise InvalidKeySet("it has no key that can verify signatures")
    names = [(key.key_id, key.key_type, key.curve) for key in keys]
    if len(set(names)) != len(names):
        raise InvalidKeySet("two of its keys have the same key id (kid)")
    return tuple(keys)


def _key(jwk: Mapping[str, Any]) -> VerificationKey | None:
    """None for a key that cannot be used here, or is not well-formed."""
    key_id, algorithm, operations = jwk.get("kid"), jwk.get("alg"), jwk.get("key_ops")
    if key_id is not None and (not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_KEY_ID_CHARS):
        return None
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ALGORITHMS):
        return None
    if jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    make = _MAKERS.get(str(jwk.get("kty")))
    try:
        return None if make is None else make(jwk, key_id, algorithm)
    except ValueError:  # a point that is not on its curve, or an even modulus
        return None


def _rsa(jwk: Mapping[str, Any], key_id: str | None, algorithm: str | None) -> VerificationKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    modulus, exponent = int.from_bytes(_bytes(jwk, "n")), int.from_bytes(_bytes(jwk, "e"))
    if not MIN_RSA_BITS <= modulus.bit_length() <= MAX_RSA_BITS or not 3 <= exponent < MAX_RSA_EXPONENT:
        raise ValueError("the key is too short or too long")
    return VerificationKey(key_id, RSA, "", algorithm, RSAPublicNumbers(exponent, modulus).public_key())


def _ec(jwk: Mapping[str, Any], key_id: str | None, algorithm: str | None) -> VerificationKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    curve, size = EC_CURVES.get(str(jwk.get("crv")), ("", 0))
    x, y = _bytes(jwk, "x"), _bytes(jwk, "y")
    if not curve or len(x) != size or len(y) != size:
        raise ValueError("the curve is unknown, or the point has another size")
    kind = ec.SECP256R1() if curve == "secp256r1" else ec.SECP384R1()
    numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), kind)
    return VerificationKey(key_id, EC, curve, algorithm, numbers.public_key())


def _edwards(jwk: Mapping[str, Any], key_id: str | None, algorithm: str | None) -> VerificationKey:
    from cryptography.hazmat.primitives.asymmetric import ed448, ed25519

    name, x = str(jwk.get("crv")), _bytes(jwk, "x")
    if EDWARDS_BYTES.get(name) != len(x):
        raise ValueError("the curve is unknown, or the point has another size")
    make: Callable[[bytes], Any] = (
        ed25519.Ed25519PublicKey.from_public_bytes if name == "Ed25519" else ed448.Ed448PublicKey.from_public_bytes
    )
    return VerificationKey(key_id, EDWARDS, "", algorithm, make(x))


def _bytes(jwk: Mapping[str, Any], name: str) -> bytes:
    text = jwk.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= MAX_NUMBER_CHARS:
        raise ValueError(f"{name} is missing or too long")
    return urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


_MAKERS: Final = {RSA: _rsa, EC: _ec, EDWARDS: _edwards}
