"""The levels of this process's loggers, in Log4j's words: what DescribeConfigs tells of a BROKER_LOGGER.

A level that is set holds until the process ends, as it does in Kafka; it is nobody's configuration. A logger without
one has that of the logger above it.
"""

import logging
from collections.abc import Mapping

from ..config.group_keys import LEVELS, LOGGERS, ROOT_LOGGER


def levels() -> dict[str, str]:
    """Each logger, and the level that counts for it."""
    return {name: _word(_logger(name).getEffectiveLevel()) for name in LOGGERS}


def set_levels(wanted: Mapping[str, str | None]) -> None:
    """None gives a logger back to the one above it."""
    for name, word in wanted.items():
        _logger(name).setLevel(logging.NOTSET if word is None else LEVELS[word])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT_LOGGER else name)


def _word(level: int) -> str:
    """The most silent word that still lets this level through; Python has numbers between Log4j's words."""
    return next((word for word, number in LEVELS.items() if number >= level), "FATAL")
