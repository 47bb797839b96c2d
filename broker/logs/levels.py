"""The levels of this process's loggers, in Log4j's terms, as DescribeConfigs returns them for a BROKER_LOGGER.

A level that is set lasts until the process ends, as in Kafka; it is not persisted. A logger without a level inherits
that of its parent.
"""

import logging
from collections.abc import Mapping

from ..config.group_keys import LEVELS, LOGGERS, ROOT_LOGGER


def levels() -> dict[str, str]:
    """Each logger, with its effective level."""
    return {name: _word(_logger(name).getEffectiveLevel()) for name in LOGGERS}


def set_levels(wanted: Mapping[str, str | None]) -> None:
    """None makes the logger inherit its parent's level."""
    for name, word in wanted.items():
        _logger(name).setLevel(logging.NOTSET if word is None else LEVELS[word])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT_LOGGER else name)


def _word(level: int) -> str:
    """The highest Log4j level that includes this Python level; Python also has levels in between."""
    return next((word for word, number in LEVELS.items() if number >= level), "FATAL")
