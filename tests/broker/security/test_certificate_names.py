"""Names in certificates: as Java writes them, and as ssl.principal.mapping.rules map them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificate_names import MAPPED, NAMES, der
from support.certificates import authority, signed

from trioka.broker.security.tls.certificate import read_certificate
from trioka.broker.security.tls.cipher_suites import DEFAULT, TLS_1_3, chosen, java_name
from trioka.broker.security.tls.der import InvalidDer, dotted
from trioka.broker.security.tls.distinguished_name import name_text
from trioka.broker.security.tls.principal_mapping import InvalidRules, NoRuleApplies, PrincipalMapping


@pytest.mark.parametrize(("name", "text"), NAMES)
def test_a_name_is_written_as_java_does(name: bytes, text: str) -> None:
    assert name_text(name) == text


def test_a_certificate_is_read() -> None:
    identity = signed(authority(), "CN=ann,O=Example", names=("localhost", "127.0.0.1"))
    found = read_certificate(identity.der)
    assert found.subject == "CN=ann,O=Example"
    assert found.alternative_names == {b"\x82\tlocalhost", b"\x87\x04\x7f\x00\x00\x01"}
    assert found.not_before == identity.certificate.not_valid_before_utc.timestamp()
    assert found.not_after == identity.certificate.not_valid_after_utc.timestamp()
    for size in range(0, len(identity.der), 7):
        with pytest.raises(InvalidDer):
            read_certificate(identity.der[:size])


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_hostile_names_are_refused_or_written(noise: bytes) -> None:
    for data in (noise, der(0x30, noise), der(0x30, der(0x31, noise)), der(0x30, der(0x31, der(0x30, noise)))):
        for read in (name_text, read_certificate):
            try:
                read(data)
            except InvalidDer:
                continue


def test_a_long_object_identifier_is_refused() -> None:
    assert dotted(bytes.fromhex("2a864886f70d010901")) == "1.2.840.113549.1.9.1"
    assert dotted(bytes.fromhex("883703")) == "2.999.3"
    for identifier in (b"", b"\x80", b"\x81" * 5000 + b"\x01"):
        with pytest.raises(InvalidDer):
            dotted(identifier)


@pytest.mark.parametrize(("rules", "name", "mapped"), MAPPED)
def test_a_name_is_mapped_as_kafka_does(rules: str, name: str, mapped: str | None) -> None:
    mapping = PrincipalMapping(rules)
    if mapped is None:
        with pytest.raises(NoRuleApplies):
            mapping.user_name(name)
    else:
        assert mapping.user_name(name) == mapped


@pytest.mark.parametrize("rules", ["", "RULE:a", "RULE:(/b/", "RULE:(?=a)/b/", "RULE:a/$x/", "FOO"])
def test_rules_that_cannot_be_used_are_refused(rules: str) -> None:
    with pytest.raises(InvalidRules):
        PrincipalMapping(rules)


def test_an_empty_or_long_user_name_is_refused() -> None:
    for rules, name in (("DEFAULT", ""), ("RULE:^CN=(.*)$/$1/", "CN="), ("DEFAULT", "x" * 1025)):
        with pytest.raises(NoRuleApplies):
            PrincipalMapping(rules).user_name(name)


def test_suites_have_javas_names() -> None:
    suites = chosen(["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"])
    assert suites.tls_1_2.startswith("ECDHE-RSA-AES256-GCM-SHA384:@")
    assert suites.tls_1_3 == {"TLS_AES_128_GCM_SHA256"}
    assert chosen([]).tls_1_2.startswith(DEFAULT)
    assert chosen([]).tls_1_3 == TLS_1_3
    assert chosen(["TLS_AES_128_GCM_SHA256"]).tls_1_2 == ""
    assert java_name("ECDHE-RSA-AES256-GCM-SHA384") == "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    assert java_name("TLS_AES_128_GCM_SHA256") == "TLS_AES_128_GCM_SHA256"
    for name in ("SSL_RSA_WITH_RC4_128_MD5", "TLS_RSA_WITH_NULL_SHA256", "TLS_DH_anon_WITH_AES_128_CBC_SHA", "x"):
        with pytest.raises(ValueError, match="unknown or too weak"):
            chosen([name])
