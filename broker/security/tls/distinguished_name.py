"""The text of a distinguished name, equal to Java's X500Principal.getName() (RFC 2253).

    DER     SEQUENCE OF (SET OF (SEQUENCE of object identifier, string))      C=DE, O=Example, CN=ann
    text    last part first                                                   CN=ann,O=Example,C=DE

ACLs and super.users name clients by this text, so it must be Java's to the byte. Java differs from other writers in
three ways: only the nine attributes of RFC 2253 have names, others are written as `1.2.3=#<hex of the DER value>`; `=`
is escaped; and the bytes of every kind of string are taken for UTF-8.
"""

from typing import Final

from .der import OBJECT_IDENTIFIER, SEQUENCE, SET, InvalidDer, dotted, elements, only_element

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString. Java writes the others as hex.
_TEXT_TAGS: Final = frozenset({12, 19, 20, 22, 27, 30})
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_TRIMMED: Final = " \r"  # escaped at both ends


def name_text(name: bytes) -> str:
    """The text of a DER name; raises InvalidDer."""
    relative_names = [_relative_name(part.tag, part.content) for part in elements(only_element(name, SEQUENCE))]
    return ",".join(reversed(relative_names))


def _relative_name(tag: int, content: bytes) -> str:
    if tag != SET:
        raise InvalidDer("has a name whose part is not a set")
    return "+".join(_attribute(part.tag, part.content) for part in elements(content))


def _attribute(tag: int, content: bytes) -> str:
    parts = list(elements(content))
    if tag != SEQUENCE or len(parts) != 2 or parts[0].tag != OBJECT_IDENTIFIER:
        raise InvalidDer("has a name with an invalid attribute")
    identifier, value = dotted(parts[0].content), parts[1]
    keyword = KEYWORDS.get(identifier)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or identifier}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    start = len(escaped) - len(escaped.lstrip(_TRIMMED))
    end = len(escaped.rstrip(_TRIMMED))
    return "".join(
        char if start <= index < end else f"\\{char}"  # a text of blanks only is escaped throughout
        for index, char in enumerate(escaped)
    )
