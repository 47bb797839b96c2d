"""Markers of tests. `nightly` and `slow` are written beside a test; the others follow from its file (style/kinds.py).

A test marked `nightly` runs only with TRIOKA_NIGHTLY=1 (`make test-all`): a slow case that repeats what a quicker case
of the same file shows with other numbers. A test marked `slow` runs everywhere but in `make test-fast`.
"""

import os

import pytest
from style.kinds import kinds

SKIPPED = pytest.mark.skip(reason="nightly: make test-all runs it")


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        function = getattr(item, "function", None)
        name = getattr(item, "originalname", None) or item.name
        for kind in kinds(item.path, name, getattr(function, "__code__", None)):
            item.add_marker(kind)
    if os.environ.get("TRIOKA_NIGHTLY") == "1":
        return
    for item in items:
        if item.get_closest_marker("nightly") is not None:
            item.add_marker(SKIPPED)
