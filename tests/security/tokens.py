"""Issuers for tests: keys, key sets, and tokens, right ones and forged ones."""

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "kafka"
NOW_S: Final = 1_800_000_000  # when tokens of these tests are made and checked


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return base64url(value.to_bytes((value.bit_length() + 7) // 8))


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def other_rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def _ec_key(curve: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1() if curve == "P-256" else ec.SECP384R1())


def ec_key(curve: str = "P-256") -> ec.EllipticCurvePrivateKey:
    return _ec_key(curve)


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def rsa_jwk(key: rsa.RSAPrivateKey, kid: str | None = "rsa", **more: Any) -> dict[str, Any]:
    public = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "use": "sig", "n": number(public.n), "e": number(public.e), **more}


def ec_jwk(key: ec.EllipticCurvePrivateKey, kid: str = "ec", **more: Any) -> dict[str, Any]:
    public, size = key.public_key().public_numbers(), (key.curve.key_size + 7) // 8
    curve = {256: "P-256", 384: "P-384"}[key.curve.key_size]
    x, y = public.x.to_bytes(size), public.y.to_bytes(size)
    return {"kty": "EC", "kid": kid, "crv": curve, "x": base64url(x), "y": base64url(y), **more}


def ed_jwk(key: ed25519.Ed25519PrivateKey, kid: str = "ed", **more: Any) -> dict[str, Any]:
    x = key.public_key().public_bytes_raw()
    return {"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": base64url(x), **more}


def key_set(*jwks: dict[str, Any]) -> bytes:
    return json.dumps({"keys": jwks or [rsa_jwk(rsa_key()), ec_jwk(ec_key()), ed_jwk(ed_key())]}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    """Those of a good token; None takes one away."""
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": NOW_S, "exp": NOW_S + 600, "scope": "read write"}
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def signed(
    said: dict[str, Any] | bytes | None = None, *, alg: str = "RS256", key: Any = None, header: Any = None
) -> str:
    """A token with any header and any claims, signed as `alg` says with the key that it needs."""
    head = {"alg": alg, "kid": {"R": "rsa", "P": "rsa", "E": "ec"}[alg[0]] if alg != "EdDSA" else "ed"}
    head = {name: value for name, value in {**head, **(header or {})}.items() if value is not None}
    body = said if isinstance(said, bytes) else json.dumps(claims() if said is None else said).encode()
    text = f"{base64url(json.dumps(head).encode())}.{base64url(body)}"
    return f"{text}.{base64url(signature(alg, key, text.encode()))}"


def signature(alg: str, key: Any, data: bytes) -> bytes:
    if alg == "EdDSA":
        return bytes((key or ed_key()).sign(data))
    digests: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    digest = digests[alg[2:]]
    if alg.startswith("ES"):
        private = key or ec_key("P-256" if alg == "ES256" else "P-384")
        r, s = utils.decode_dss_signature(private.sign(data, ec.ECDSA(digest)))
        size = (private.curve.key_size + 7) // 8
        return r.to_bytes(size) + s.to_bytes(size)
    pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
    chosen = pss if alg.startswith("PS") else padding.PKCS1v15()
    return bytes((key or rsa_key()).sign(data, chosen, digest))
