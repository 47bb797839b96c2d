"""Signed JSON Web Tokens (RFC 7515, 7519), as OAUTHBEARER takes them: the check of a token, without I/O.

    base64url(header) . base64url(claims) . base64url(signature)

The order of the checks: size, form, header, key, signature, claims. Claims are read only after the signature holds.

What is not in the list is refused: an algorithm, a header that names a key or its place (`jwk`, `jku`, `x5c`, `x5u`), a
header that changes what is signed (`crit`, `b64`, `zip`), a name that occurs twice, a number that is not finite. The
algorithm must fit the type of the key in the key set, so that no public key is ever taken for the secret of an HMAC.

Times are whole or fractional seconds since 1970, as in the token. `cryptography` is imported with the first
key.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

MAX_TOKEN_BYTES: Final = 16 * 1024
MAX_NAME_CHARS: Final = 255
MAX_KEY_ID_CHARS: Final = 256
MAX_TIME_S: Final = 1 << 38  # the year 10,680; a later time is a mistake
SEGMENTS: Final = 3
REFUSED_HEADERS: Final = ("crit", "b64", "zip", "jku", "jwk", "x5u", "x5c")
TYPES: Final = frozenset({"JWT", "AT+JWT", "APPLICATION/AT+JWT", "JOSE"})
RSA, EC, EDWARDS = "RSA", "EC", "OKP"

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")


class InvalidToken(ValueError):
    """The token is refused. The reason is for the log only; it names no secret, and claims only as far as they are
    checked."""


class Algorithm(NamedTuple):
    key_type: str
    hash: str = ""  # the name of a class in cryptography.hazmat.primitives.hashes
    is_pss: bool = False
    curve: str = ""
    coordinate_bytes: int = 0


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "RS256": Algorithm(RSA, "SHA256"),
    "RS384": Algorithm(RSA, "SHA384"),
    "RS512": Algorithm(RSA, "SHA512"),
    "PS256": Algorithm(RSA, "SHA256", is_pss=True),
    "PS384": Algorithm(RSA, "SHA384", is_pss=True),
    "PS512": Algorithm(RSA, "SHA512", is_pss=True),
    "ES256": Algorithm(EC, "SHA256", curve="secp256r1", coordinate_bytes=32),
    "ES384": Algorithm(EC, "SHA384", curve="secp384r1", coordinate_bytes=48),
    "EdDSA": Algorithm(EDWARDS),
}


class VerificationKey(NamedTuple):
    """A public key of the issuer."""

    key_id: str | None
    key_type: str
    curve: str  # of EC keys
    algorithm: str | None  # the only algorithm that the issuer uses it for, if the key set names one
    public: "PublicKeyTypes"


class Rules(NamedTuple):
    """The required claims of a token. None or no audience: any value."""

    issuer: str | None
    audiences: frozenset[str]
    clock_skew_s: float = 30.0
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class Claims(NamedTuple):
    """The claims of a valid token."""

    subject: str
    expires_at_ms: int
    scopes: tuple[str, ...]


def verify(token: str, keys: Sequence[VerificationKey], rules: Rules, now_s: float) -> Claims:
    """The claims of a valid token; InvalidToken for any other."""
    header, signed, signature = split(token)
    key = _key(header, keys)
    if not _is_signed(header["alg"], key, signed, signature):
        raise InvalidToken("the signature does not fit")
    claims = _json_object(_decoded(token.split(".")[1], "claims"), "claims")
    expires_at_s = _check_times(claims, rules.clock_skew_s, now_s)
    _check_issuer_and_audience(claims, rules)
    return Claims(
        subject=_subject(claims, rules.subject_claim),
        expires_at_ms=int(expires_at_s * 1000),
        scopes=_scopes(claims, rules.scope_claim),
    )


def split(token: str) -> tuple[dict[str, Any], bytes, bytes]:
    """The header, the signed bytes, and the signature; InvalidToken if the form is not that of a signed JWT."""
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"it has {len(token)} bytes, more than {MAX_TOKEN_BYTES}")
    if not token.isascii():
        raise InvalidToken("it has other characters than ASCII")
    segments = token.split(".", SEGMENTS)
    if len(segments) != SEGMENTS:
        raise InvalidToken(f"it has not {SEGMENTS} segments")
    header = _json_object(_decoded(segments[0], "header"), "header")
    for name in REFUSED_HEADERS:
        if name in header:
            raise InvalidToken(f"its header has {name}")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken(f"its algorithm is none of {', '.join(ALGORITHMS)}")
    if key_id is not None and (not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_KEY_ID_CHARS):
        raise InvalidToken(f"its key id (kid) is not a text of 1 to {MAX_KEY_ID_CHARS} characters")
    if kind is not None and (not isinstance(kind, str) or kind.upper() not in TYPES):
        raise InvalidToken("its type (typ) is not that of an access token")
    return header, token.rpartition(".")[0].encode("ascii"), _decoded(segments[2], "signature")


class UnknownKey(InvalidToken):
    """The key set has no key of this id. The issuer may have a new one."""


def _key(header: dict[str, Any], keys: Sequence[VerificationKey]) -> VerificationKey:
    """The one key that the token may have been signed with. A token without a key id needs a key set with only one key
    that fits."""
    key_id, algorithm = header.get("kid"), header["alg"]
    named = [key for key in keys if key_id is None or key.key_id == key_id]
    if not named:
        raise UnknownKey("no key of the key set has its key id (kid)")
    fitting = [key for key in named if _fits(key, algorithm)]
    if len(fitting) != 1:
        raise InvalidToken(f"{len(fitting)} keys of the key set fit its algorithm and key id; one must")
    return fitting[0]


def _fits(key: VerificationKey, name: str) -> bool:
    algorithm = ALGORITHMS[name]
    if key.key_type != algorithm.key_type or key.curve != algorithm.curve:
        return False
    return key.algorithm in (None, name)


def _is_signed(name: str, key: VerificationKey, signed: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa, utils

    algorithm, public = ALGORITHMS[name], key.public
    try:
        if algorithm.key_type == EDWARDS:
            assert isinstance(public, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey)
            public.verify(signature, signed)
            return True
        digest: hashes.HashAlgorithm = getattr(hashes, algorithm.hash)()
        if algorithm.key_type == RSA:
            assert isinstance(public, rsa.RSAPublicKey)
            pss = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
            public.verify(signature, signed, pss if algorithm.is_pss else padding.PKCS1v15(), digest)
            return True
        assert isinstance(public, ec.EllipticCurvePublicKey)
        size = algorithm.coordinate_bytes
        if len(signature) != 2 * size:
            return False
        r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        public.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(digest))
    except InvalidSignature:
        return False
    return True


# --- claims


def _check_times(claims: dict[str, Any], skew_s: float, now_s: float) -> float:
    expires_at_s, issued_at_s = _time(claims, "exp"), _time(claims, "iat")
    if expires_at_s is None or issued_at_s is None:
        raise InvalidToken("it has no exp or no iat")
    if expires_at_s + skew_s <= now_s:
        raise InvalidToken(f"it expired {now_s - expires_at_s:.0f} s ago")
    if issued_at_s - skew_s > now_s:
        raise InvalidToken("it is issued in the future (iat)")
    not_before_s = _time(claims, "nbf")
    if not_before_s is not None and not_before_s - skew_s > now_s:
        raise InvalidToken("it is not valid yet (nbf)")
    return expires_at_s


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TIME_S:
        raise InvalidToken(f"{name} is not a time in seconds since 1970")
    return float(value)


def _check_issuer_and_audience(claims: dict[str, Any], rules: Rules) -> None:
    if rules.issuer is not None:
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or issuer != rules.issuer:
            raise InvalidToken("its issuer (iss) is another one")
    if rules.audiences:
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
            raise InvalidToken("its audience (aud) is neither a text nor a list of texts")
        if rules.audiences.isdisjoint(named):
            raise InvalidToken("its audience (aud) is another one")


def _subject(claims: dict[str, Any], name: str) -> str:
    subject = claims.get(name)
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_NAME_CHARS:
        raise InvalidToken(f"{name} is not a text of 1 to {MAX_NAME_CHARS} characters")
    if not subject.isprintable() or subject != subject.strip():
        raise InvalidToken(f"{name} has control characters, or spaces at its ends")
    return subject


def _scopes(claims: dict[str, Any], name: str) -> tuple[str, ...]:
    value = claims.get(name, "")
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(isinstance(each, str) and each.strip() for each in scopes):
        raise InvalidToken(f"{name} is neither a text nor a list of texts")
    if len(set(scopes)) != len(scopes):
        raise InvalidToken(f"{name} names a scope twice")
    return tuple(scopes)


# --- JSON and base64


def _decoded(segment: str, name: str) -> bytes:
    """base64url without padding (RFC 7515), in the one spelling that each value has."""
    if not _BASE64URL.fullmatch(segment) or len(segment) % 4 == 1:
        raise InvalidToken(f"its {name} is not base64url")
    data = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    if urlsafe_b64encode(data).rstrip(b"=").decode() != segment:
        raise InvalidToken(f"its {name} is not base64url")
    return data


def _json_object(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode(), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError):  # a deep nesting exhausts the parser's stack
        raise InvalidToken(f"its {name} is no JSON in UTF-8, or has a name twice") from None
    if not isinstance(found, dict):
        raise InvalidToken(f"its {name} is no JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
