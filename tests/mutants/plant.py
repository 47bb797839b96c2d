"""Planted mistakes: a copy of a module with one line changed, so that a test can show that it would notice.

@pytest.fixture
def storage() -> ModuleType:
    return producers

def test_the_window_has_five_batches(storage: ModuleType) -> None: ...

MISTAKES = [("WINDOW_BATCHES: Final = 5", "WINDOW_BATCHES: Final = 4", test_the_window_has_five_batches)]

@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(producers, right, wrong, rule)
"""

import inspect
from collections.abc import Callable
from itertools import count
from types import ModuleType

import pytest

Rule = Callable[[ModuleType], None]

_numbers = count(1)


def planted(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """A copy of the module in which `right`, which stands there once, reads `wrong`."""
    source = inspect.getsource(module)
    if source.count(right) != 1:  # no AssertionError: that is what a mistake which was noticed raises
        raise ValueError(f"{right!r} stands {source.count(right)} times in {module.__name__}")
    copy = ModuleType(f"{module.__name__}_with_mistake_{next(_numbers)}")
    copy.__package__ = module.__package__
    copy.__file__ = module.__file__
    exec(compile(source.replace(right, wrong), f"<{copy.__name__}>", "exec"), copy.__dict__)
    return copy


def assert_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    rule(module)
    mistaken = planted(module, right, wrong)
    with pytest.raises((Exception, pytest.fail.Exception)):
        rule(mistaken)
