"""The errors that we declare are the errors of Apache Kafka: all of them, no others, and as retriable as there."""

import pytest
from oracle import run_program

from trioka.protocol.errors import BY_CODE


@pytest.mark.usefixtures("apache_kafka")
def test_errors_are_those_of_apache_kafka() -> None:
    of_kafka = {}
    for line in run_program("Errors").splitlines():
        code, name, retriable = line.split()
        of_kafka[int(code)] = (name, retriable == "true")
    assert of_kafka.pop(0) == ("NONE", False)
    assert {code: (error.name, error.retriable) for code, error in BY_CODE.items()} == of_kafka
