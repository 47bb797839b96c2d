"""The common rule of all compat tests: Apache Kafka must be available, or the test fails or is skipped with a
reason."""

import os

import jars
import pytest
from java import java

from trioka.pipeline.installation.cache import Unavailable


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    """Java and Apache Kafka's jars are available. Without them a test is skipped, but in CI it fails, because skip
    reasons go unread there.
    """
    try:
        java()
        jars.class_path()
    except Unavailable as missing:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"CI needs the real Apache Kafka as a judge. {missing}")
        pytest.skip(f"NOT JUDGED BY APACHE KAFKA: {missing}")
