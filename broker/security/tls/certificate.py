"""The fields of a certificate that the broker reads: subject, dates and subject alternative names.

    Certificate ::= SEQUENCE { SEQUENCE {              -- to be signed
        [0] version, INTEGER serial, SEQUENCE algorithm, SEQUENCE issuer,
        SEQUENCE { notBefore, notAfter }, SEQUENCE subject, SEQUENCE public key,
        [3] SEQUENCE OF extensions }, algorithm, signature }

OpenSSL verifies certificates; nothing here decides whether one is trusted. The standard library shows the fields of a
peer's certificate only as a lossy dictionary, and those of its own certificate not at all, so they are read from the
DER.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from .der import OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, Element, InvalidDer, elements, only_element
from .distinguished_name import name_text

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_SUBJECT_ALTERNATIVE_NAME: Final = bytes((0x55, 0x1D, 0x11))  # 2.5.29.17


class Certificate(NamedTuple):
    der: bytes
    subject_der: bytes
    issuer_der: bytes
    not_before: float  # seconds since 1970
    not_after: float
    alternative_names: frozenset[bytes]  # DER of each GeneralName
    public_key_der: bytes

    @property
    def subject(self) -> str:
        return name_text(self.subject_der)


def read_certificate(der: bytes) -> Certificate:
    """Raises InvalidDer."""
    parts = list(elements(only_element(der, SEQUENCE)))
    if len(parts) != 3 or parts[0].tag != SEQUENCE:
        raise InvalidDer("is not a certificate")
    fields = list(elements(parts[0].content))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6 or any(fields[index].tag != SEQUENCE for index in (2, 3, 4, 5)):
        raise InvalidDer("is not a certificate")
    validity = list(elements(fields[3].content))
    if len(validity) != 2:
        raise InvalidDer("has an invalid validity")
    return Certificate(
        der=der,
        subject_der=fields[4].whole,
        issuer_der=fields[2].whole,
        not_before=_time(validity[0]),
        not_after=_time(validity[1]),
        alternative_names=_alternative_names(fields[6:]),
        public_key_der=fields[5].whole,
    )


def _time(element: Element) -> float:
    text = element.content.decode(errors="replace")
    try:
        if element.tag == _UTC_TIME:  # two digits of the year, from 1950 to 2049
            century = "19" if int(text[:2]) >= 50 else "20"
            return datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if element.tag == _GENERALIZED_TIME:
            return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        pass
    raise InvalidDer("has an invalid date")


def _alternative_names(fields: list[Element]) -> frozenset[bytes]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        for extension in elements(only_element(field.content, SEQUENCE)):
            parts = list(elements(extension.content))
            if (
                len(parts) >= 2
                and parts[0].tag == OBJECT_IDENTIFIER
                and parts[0].content == _SUBJECT_ALTERNATIVE_NAME
                and parts[-1].tag == OCTET_STRING
            ):
                return frozenset(name.whole for name in elements(only_element(parts[-1].content, SEQUENCE)))
    return frozenset()
