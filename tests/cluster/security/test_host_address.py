"""One spelling of a client's address, from wherever it is known."""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import assert_noticed

from trioka.cluster.security import host_address

LOOPBACK = "0:0:0:0:0:0:0:1"

# As accept() returns it, as an envelope has it, as Java prints it.
CLIENTS = [
    (("10.0.0.7", 5000), bytes([10, 0, 0, 7]), "10.0.0.7"),
    (("::ffff:10.0.0.7", 5000, 0, 0), bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 7]), "10.0.0.7"),
    (("::1", 5000, 0, 0), bytes(15) + b"\1", LOOPBACK),
    (("2001:db8::a:0", 5000, 0, 0), b"\x20\x01\x0d\xb8" + bytes(9) + b"\x0a" + bytes(2), "2001:db8:0:0:0:0:a:0"),
]


@pytest.fixture
def addresses() -> ModuleType:
    return host_address


def test_a_connection_and_an_envelope_spell_an_address_alike(addresses: ModuleType) -> None:
    for accepted, data, spelled in CLIENTS:
        assert addresses.client_host(accepted) == addresses.from_bytes(data) == spelled
        assert addresses.from_bytes(addresses.to_bytes(spelled)) == spelled


def test_a_scope_is_a_number_and_does_not_go_into_an_envelope(addresses: ModuleType) -> None:
    spelled = addresses.client_host(("fe80::1%eth0", 5000, 0, 2))
    assert spelled == "fe80:0:0:0:0:0:0:1%2"
    assert addresses.from_bytes(addresses.to_bytes(spelled)) == "fe80:0:0:0:0:0:0:1"


def test_what_is_no_address_stays_as_it_is_and_has_no_bytes(addresses: ModuleType) -> None:
    for text in ("", "*", "localhost", "10.0.0.300", "1:2", "::1::"):
        assert addresses.java_text(text) == text
        assert addresses.to_bytes(text) == b""
    for size in (0, 1, 5, 15, 17):
        with pytest.raises(ValueError, match="IPv4"):
            addresses.from_bytes(bytes(size))


def test_every_spelling_of_an_address_is_known(addresses: ModuleType) -> None:
    for spelled in (LOOPBACK, "::1", "0000:0000:0000:0000:0000:0000:0000:0001", "::0.0.0.1", "::1%1"):
        assert addresses.is_address_of(LOOPBACK, spelled), spelled
    for spelled in ("10.0.0.7", "::ffff:10.0.0.7", "::FFFF:a00:7"):
        assert addresses.is_address_of("10.0.0.7", spelled), spelled
    for scoped in ("fe80:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:1%2"):
        assert addresses.is_address_of(scoped, "fe80::1%eth0") and addresses.is_address_of(scoped, "FE80::1")
    for other in ("::2", "10.0.0.7", "localhost", "*", ""):
        assert not addresses.is_address_of(LOOPBACK, other), other


# fmt: off
MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("    if mapped is not None:\n", "    if False:\n", test_a_connection_and_an_envelope_spell_an_address_alike),
    ('f"{int.from_bytes(data[at : at + 2]):x}"', 'f"{int.from_bytes(data[at : at + 2]):04x}"',
     test_a_connection_and_an_envelope_spell_an_address_alike),
    ("    return str(IPv4Address(data))", "    return str(IPv6Address(data))",
     test_a_connection_and_an_envelope_spell_an_address_alike),
    ('f"{host}%{address[3]}" if scope else host', "address[0]",
     test_a_scope_is_a_number_and_does_not_go_into_an_envelope),
    ("_without_scope(spelled) == _without_scope(host)", "False", test_every_spelling_of_an_address_is_known),
    ('return java_text(host.partition("%")[0])', "return java_text(host)", test_every_spelling_of_an_address_is_known),
]
# fmt: on


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(host_address, right, wrong, rule)
