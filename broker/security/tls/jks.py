"""Reads Java key stores of the format JKS.

    FEEDFEED  version (int32: 1 or 2)  count (int32)
    entry     tag (int32)  alias (text)  date (int64)
       tag 1  private key: length (int32), EncryptedPrivateKeyInfo; chain: count (int32), certificates
       tag 2  trusted certificate
    certificate   type (text), length (int32), DER
    digest    SHA-1 of the password as UTF-16, "Mighty Aphrodite", and everything before

A text is a length (uint16) and so many bytes. The private key is XORed with a key stream of SHA-1 and has a digest of
its own. The format is weak: it only keeps a key from a reader without the password, and files need their modes.
"""

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from .der import OCTET_STRING, SEQUENCE, InvalidDer, elements, only_element

MAGIC: Final = b"\xfe\xed\xfe\xed"
MAX_ENTRIES: Final = 10_000
MAX_CHAIN: Final = 100
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_KEY: Final = 1
_TRUSTED: Final = 2
_KEY_PROTECTOR: Final = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1


class InvalidJks(ValueError):
    """The store cannot be read. The message starts with a verb."""


class PrivateKey(NamedTuple):
    protected: bytes  # EncryptedPrivateKeyInfo
    chain: tuple[bytes, ...]  # DER


class Jks(NamedTuple):
    keys: dict[str, PrivateKey]  # by alias
    trusted: dict[str, bytes]  # DER, by alias


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise InvalidJks("ends in the middle of an entry")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def text(self) -> str:
        size = int(struct.unpack(">H", self.take(2))[0])
        return self.take(size).decode(errors="replace")

    def count(self, limit: int) -> int:
        count = self.number()
        if not 0 <= count <= limit:
            raise InvalidJks(f"has {count} entries, but the maximum is {limit}")
        return count


def read_jks(data: bytes, password: str | None) -> Jks:
    """All entries; raises InvalidJks. Without a password, which Java allows for trust stores, the digest is not
    compared."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        computed = hashlib.sha1(_utf16(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(computed, digest):
            raise InvalidJks("does not fit its password, or is damaged")
    reader = _Reader(body)
    if reader.take(4) != MAGIC or (version := reader.number()) not in (1, 2):
        raise InvalidJks("is not a JKS store")
    store = Jks({}, {})
    for _ in range(reader.count(MAX_ENTRIES)):
        tag, alias = reader.number(), reader.text()
        reader.take(8)
        if tag == _KEY:
            protected = reader.take(reader.number())
            chain = tuple(_certificate(reader, version) for _ in range(reader.count(MAX_CHAIN)))
            store.keys[alias] = PrivateKey(protected, chain)
        elif tag == _TRUSTED:
            store.trusted[alias] = _certificate(reader, version)
        else:
            raise InvalidJks(f"has an entry of the unknown type {tag}")
    if reader.at != len(body):
        raise InvalidJks("has bytes behind its last entry")
    return store


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2 and (kind := reader.text()) != "X.509":
        raise InvalidJks(f"has a certificate of the type {kind[:40]!r}, but must have X.509")
    return reader.take(reader.number())


def recovered_key(key: PrivateKey, password: str) -> bytes:
    """The PKCS8 form of a private key; raises InvalidJks."""
    try:
        algorithm, protected = elements(only_element(key.protected, SEQUENCE))
        identifier = next(elements(algorithm.content))
    except (InvalidDer, ValueError, StopIteration):
        raise InvalidJks("has a private key that is damaged") from None
    if identifier.content != _KEY_PROTECTOR or protected.tag != OCTET_STRING:
        raise InvalidJks("has a private key that is encrypted by an unknown algorithm")
    data = protected.content
    if len(data) < 2 * _DIGEST_BYTES:
        raise InvalidJks("has a private key that is damaged")
    encrypted, digest = data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    secret, block = _utf16(password), data[:_DIGEST_BYTES]
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(left ^ right for left, right in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), digest):
        raise InvalidJks("has a private key that does not fit ssl.key.password, or ssl.keystore.password without it")
    return plain


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", errors="surrogatepass")
