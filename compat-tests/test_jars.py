"""The list of the judge's jars."""

import jars
import pytest

from trioka.pipeline.installation.repository import read_pins


@pytest.mark.parametrize("listed", ["jars.txt", "connect_jars.txt", "shell_jars.txt", "streams_jars.txt"])
def test_every_pin_has_a_whole_checksum_and_kafka_is_one_version(listed: str) -> None:
    pins = read_pins(jars.PINS.with_name(listed))
    assert all(len(pin.sha256) == 64 for pin in pins)
    assert {pin.version for pin in pins if pin.group == "org.apache.kafka"} == {"4.3.1"}
