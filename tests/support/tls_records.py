"""TLS 1.3 records that no library writes, such as empty ones: the client's side of a connection, encrypted by hand.

keys = expand(secret, "key" | "iv")            secret: CLIENT_TRAFFIC_SECRET_0 of the key log
record = 17 03 03 size ‖ AES-GCM(key, iv xor number, content ‖ type, the five bytes before)
"""

import ctypes
import ctypes.util
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

APPLICATION_DATA = 0x17
TAG_BYTES = 16
SECRET = "CLIENT_TRAFFIC_SECRET_0"


class RecordWriter:
    """The records of one client, after its handshake with TLS_AES_256_GCM_SHA384."""

    def __init__(self, key_log: Path) -> None:
        (secret,) = [bytes.fromhex(line.split()[2]) for line in key_log.read_text().splitlines() if SECRET in line]
        self._cipher = AESGCM(_expanded(secret, b"key", 32))
        self._iv = int.from_bytes(_expanded(secret, b"iv", 12))
        self._number = 0

    def record(self, content: bytes, kind: int = APPLICATION_DATA) -> bytes:
        head = struct.pack(">BHH", APPLICATION_DATA, 0x0303, len(content) + 1 + TAG_BYTES)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return head + self._cipher.encrypt(nonce, content + bytes((kind,)), head)


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446."""
    name = b"tls13 " + label
    info = struct.pack(">HB", size, len(name)) + name + b"\0"
    return HKDFExpand(hashes.SHA384(), size, info).derive(secret)


def call_openssl(function: str, tls: ssl.SSLObject | ssl.SSLSocket, *arguments: int) -> int:
    """Python has no method for it: the SSL of an SSLObject is the field behind the header and the socket."""
    library = ctypes.CDLL(ctypes.util.find_library("ssl"))
    called = library[function]
    called.argtypes = [ctypes.c_void_p, *(ctypes.c_int for _ in arguments)]
    address = id(tls._sslobj) + 3 * ctypes.sizeof(ctypes.c_void_p)  # type: ignore[union-attr]
    result: int = called(ctypes.c_void_p.from_address(address).value, *arguments)
    return result
