"""Apache Kafka's jars: `jars.txt` pins every one of them, `trioka.pipeline.installation.repository` fetches and checks
it."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trioka.pipeline.installation.repository import DOWNLOADS_AT_ONCE, Pin, all_checked, checked, read_pins

PINS = Path(__file__).with_name("jars.txt")
COMPILER = "ecj"


@functools.cache
def pins() -> dict[str, Pin]:
    """The pinned jars by their artifact's name."""
    return {pin.artifact: pin for pin in read_pins(PINS)}


@functools.cache
def jar(artifact: str) -> Path:
    """The path of one jar, such as `kafka-clients`, fetched if need be and checked, once per process."""
    return checked(pins()[artifact])


@functools.cache
def class_path() -> str:
    """Everything that a broker, a client or a tool of Apache Kafka needs, as `java -cp` wants it."""
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        paths = pool.map(jar, (artifact for artifact in pins() if artifact != COMPILER))
        return os.pathsep.join(str(path) for path in paths)


@functools.cache
def class_path_with(listed: str) -> str:
    """The same with all that another list beside this file pins, such as `connect_jars.txt`."""
    return os.pathsep.join([*map(str, all_checked(read_pins(PINS.with_name(listed)))), class_path()])
