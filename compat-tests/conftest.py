"""What all compat tests share: the judge must be there, or the test says loudly that it did not judge."""

import os

import jars
import pytest
from java import java

from trioka.pipeline.installation.cache import Unavailable


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    """Java and Apache Kafka's jars are at hand. Without them a test is skipped, but in CI it fails: there, nobody
    reads the reasons of skipped tests.
    """
    try:
        java()
        jars.class_path()
    except Unavailable as missing:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"CI needs the real Apache Kafka as a judge. {missing}")
        pytest.skip(f"NOT JUDGED BY APACHE KAFKA: {missing}")
