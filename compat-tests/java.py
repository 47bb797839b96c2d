"""A Java to run Apache Kafka with: `trioka.pipeline.installation.java` finds the machine's own, else brings one along.

Kafka 4 needs Java 17 or newer. The small programs of these tests are compiled by a compiler that is itself a jar, so a
mere runtime is enough.
"""

import functools
from pathlib import Path

from trioka.pipeline.installation.java import find

NEWEST_VERSION = 100


@functools.cache
def java() -> Path:
    """The path of a `java` of version 17 or newer. `TRIOKA_JAVA=bundled` skips the machine's own."""
    return find(range(17, NEWEST_VERSION), "Apache Kafka needs Java 17 or newer").program
