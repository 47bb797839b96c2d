"""Names in DER with their texts, and mapping rules with the user names that they yield: tables that Java confirms."""

CN, ORG, DC, EMAIL = "0603550403", "060355040a", "060a0992268993f22c640119", "06092a864886f70d010901"
UTF8, PRINTABLE, IA5, UNIVERSAL, BMP = 12, 19, 22, 28, 30


def der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content)
    head = bytes((tag, size)) if size < 128 else bytes((tag, 0x82)) + size.to_bytes(2, "big")
    return head + content


def attribute(identifier: str, value: str | bytes, tag: int = UTF8) -> bytes:
    return der(0x30, bytes.fromhex(identifier), der(tag, value.encode() if isinstance(value, str) else value))


def dn(*parts: bytes) -> bytes:
    return der(0x30, *(der(0x31, part) for part in parts))


# The results of X500Principal.getName() of Java 17; compat-tests/test_certificate_names.py verifies them.
NAMES: list[tuple[bytes, str]] = [
    (dn(), ""),
    (dn(attribute(CN, "ann")), "CN=ann"),
    (dn(attribute(ORG, "Example"), attribute(CN, "ann")), "CN=ann,O=Example"),
    (dn(attribute(CN, 'a,b=c+d<e>f#g;h"i\\j')), 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
    (dn(attribute(CN, "  a b  ")), "CN=\\ \\ a b\\ \\ "),
    (dn(attribute(CN, "a\0b")), "CN=a\\00b"),
    (dn(attribute(CN, "Jürgen 北")), "CN=Jürgen 北"),
    (dn(attribute(EMAIL, "a@b", IA5)), "1.2.840.113549.1.9.1=#1603614062"),
    (dn(attribute(DC, "org", IA5)), "DC=org"),
    (dn(attribute(CN, "ann") + attribute(ORG, "x")), "CN=ann+O=x"),
    (dn(attribute(CN, "")), "CN="),
    (dn(attribute(CN, b"\0\0\0a", UNIVERSAL)), "CN=#1c0400000061"),
    (dn(attribute(CN, b"\0a", BMP)), "CN=\\00a"),
]

# Rules, name, and the user name of Kafka's SslPrincipalMapper; None if no rule matches.
MAPPED: list[tuple[str, str, str | None]] = [
    ("DEFAULT", "CN=ann,O=x", "CN=ann,O=x"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=duke,OU=ServiceUsers,O=x", "duke"),
    ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L,DEFAULT", "CN=Duke,OU=Adm,O=x", "duke@adm"),
    ("RULE:^CN=(.*?)$/$1/U, DEFAULT", "CN=duke", "DUKE"),
    ("RULE:^CN=a$/x/,RULE:^CN=b$/y/", "CN=b", "y"),
    ("RULE:^CN=a$/x/", "CN=b", None),
    ("RULE:^CN=(.*)$/$1$2/", "CN=a", "a$2"),
    ("RULE:CN=(.*?)/$1/", "CN=a", "a"),
    ("RULE:.*/all/", "CN=a", "allall"),
    ("RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U", "cn=a,ou=b,dc=c,dc=d", "A@B"),
    ("RULE:^CN=([^,]+)$/a\\/$1/", "CN=b", "a/b"),
]
