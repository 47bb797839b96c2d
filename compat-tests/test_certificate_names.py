"""Names in certificates: Java's own X500Principal and Kafka's SslPrincipalMapper agree with the tables of our tests."""

from oracle import run_program
from support.certificate_names import MAPPED, NAMES


def answers(lines: list[str]) -> list[str | None]:
    message = run_program("CertificateNames", stdin="\n".join(lines) + "\n").splitlines()
    assert len(message) == len(lines)
    return [None if line == "none" else bytes.fromhex(line.removeprefix("=")).decode() for line in message]


def test_java_writes_names_like_our_table() -> None:
    assert answers([f"name {name.hex()}" for name, _ in NAMES]) == [text for _, text in NAMES]


def test_kafka_maps_names_like_our_table() -> None:
    lines = [f"map {rules.encode().hex()} {name.encode().hex()}" for rules, name, _ in MAPPED]
    assert answers(lines) == [mapped for _, _, mapped in MAPPED]
