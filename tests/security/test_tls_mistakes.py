"""Planted mistakes in what a TLS listener demands of certificates, in the names it maps them to, and in reloads."""

import ssl
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from mutants.plant import assert_noticed, planted, within
from support.certificates import Identity, authority, client_tls, signed
from support.serving import SETTINGS, broker_in_thread
from support.tls_broker import SECURE, is_served, tls_settings

from trioka.broker.clock import SystemClock
from trioka.broker.config.server import load
from trioka.broker.network.tls import handshakes as tls_handshakes
from trioka.broker.network.tls import reload as tls_reload
from trioka.broker.security.tls import principal_mapping as mapping_module
from trioka.broker.security.tls.certificate import read_certificate

AUTHORITY = authority()
SERVER = signed(AUTHORITY)

# -- names -------------------------------------------------------------------------------------------------------------


def mapped(module: ModuleType, rules: str, name: str) -> str | None:
    try:
        found: str = module.PrincipalMapping(rules).user_name(name)
    except module.NoRuleApplies:
        return None
    return found


def a_rule_matches_the_whole_name(module: ModuleType) -> None:
    assert mapped(module, "RULE:CN=ann/ann/", "CN=ann,O=Evil") is None


def no_name_is_empty(module: ModuleType) -> None:
    assert mapped(module, "RULE:^CN=(.*)$/$1/", "CN=") is None


def the_first_rule_that_matches_decides(module: ModuleType) -> None:
    assert mapped(module, "RULE:^CN=x$/x/,RULE:^CN=(.*)$/$1/U,DEFAULT", "CN=ann") == "ANN"


def no_name_is_longer_than_the_limit(module: ModuleType) -> None:
    assert mapped(module, "DEFAULT", "x" * (mapping_module.MAX_NAME_CHARACTERS + 1)) is None


NAME_MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("rule.pattern.fullmatch(name) is None", "rule.pattern.match(name) is None", a_rule_matches_the_whole_name),
    (within("PrincipalMapping.user_name", "if not mapped:"), "if False:", no_name_is_empty),
    (
        'mapped.lower() if rule.case == "L" else mapped.upper() if rule.case == "U" else mapped',
        "mapped",
        the_first_rule_that_matches_decides,
    ),
    (within("PrincipalMapping.user_name", "if mapped is None:"), "if False:", the_first_rule_that_matches_decides),
    ("if len(mapped) > MAX_NAME_CHARACTERS:", "if False:", no_name_is_longer_than_the_limit),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), NAME_MISTAKES)
def test_a_mistake_in_names_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(mapping_module, right, wrong, rule)


# -- what is demanded of a client --------------------------------------------------------------------------------------


def long_chains_are_refused(directory: Path) -> None:
    """OpenSSL lets one certificate more pass than its depth says."""
    issuer = AUTHORITY
    for number in range(20):
        issuer = authority(f"CN=Authority {number}", signed_by=issuer)
    settings = tls_settings(SERVER, AUTHORITY, directory, ssl_client_auth="required")
    with broker_in_thread(directory / "data", **settings) as broker:
        assert not is_served(broker, client_tls(AUTHORITY, signed(issuer, "CN=ann"), directory))


def suites_of_tls_1_3_are_limited(directory: Path) -> None:
    suites = "TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    settings = tls_settings(SERVER, AUTHORITY, directory, ssl_cipher_suites=suites)
    with broker_in_thread(directory / "data", **settings) as broker:
        tls = client_tls(AUTHORITY, None, directory)
        assert not is_served(broker, tls)  # OpenSSL's first choice of TLS 1.3 is AES-256
        tls.maximum_version = ssl.TLSVersion.TLSv1_2
        assert is_served(broker, tls)


@pytest.mark.parametrize("rule", [long_chains_are_refused, suites_of_tls_1_3_are_limited])
def test_a_client_is_refused(rule: Callable[[Path], None], tmp_path: Path) -> None:
    rule(tmp_path)


def test_a_suite_that_is_not_looked_at_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = "if suite in TLS_1_3 and suite not in handshake.server.tls_1_3_suites:", "if False:"
    monkeypatch.setattr(tls_handshakes, "TlsHandshakes", planted(tls_handshakes, right, wrong).TlsHandshakes)
    with pytest.raises(AssertionError):
        suites_of_tls_1_3_are_limited(tmp_path)


# -- reloads -----------------------------------------------------------------------------------------------------------


def complaint(module: ModuleType, new: Identity, directory: Path) -> str:
    """About a certificate that takes the place of SERVER."""
    settings = {**SETTINGS, **tls_settings(SERVER, AUTHORITY, directory)}
    config = load({key.replace("_", "."): value for key, value in settings.items()}).config
    reload = module.TlsReload(SimpleNamespace(clock=SystemClock()))
    found: str = reload._complaint(config, SECURE, read_certificate(SERVER.der), read_certificate(new.der))
    return found


REFUSED: list[tuple[str, str, Identity]] = [
    ("if new.not_after < self._now():", "has ended", signed(AUTHORITY, days=(-3, -1))),
    (
        "old.subject_der != new.subject_der and not config.of_listener(name, keys.SSL_ALLOW_DN_CHANGES)",
        "ssl.allow.dn.changes",
        signed(AUTHORITY, "CN=other"),
    ),
    (
        "not old.alternative_names <= new.alternative_names "
        "and not config.of_listener(name, keys.SSL_ALLOW_SAN_CHANGES)",
        "ssl.allow.san.changes",
        signed(AUTHORITY, names=("localhost",)),
    ),
]


@pytest.mark.parametrize(("right", "reason", "new"), REFUSED)
def test_a_certificate_that_must_not_be_loaded_is_refused(
    right: str, reason: str, new: Identity, tmp_path: Path
) -> None:
    def is_refused(module: ModuleType) -> None:
        assert reason in complaint(module, new, tmp_path)
        assert complaint(module, signed(AUTHORITY, names=("localhost", "127.0.0.1", "more")), tmp_path) == ""

    wrong = "if False:" if right.endswith(":") else "False"
    assert_noticed(tls_reload, right, wrong, is_refused)
