"""Tests marked `nightly` run only with TRIOKA_NIGHTLY=1 (`make test-all`): slow cases that repeat what a quicker case
of the same file shows with other numbers."""

import os

import pytest

SKIPPED = pytest.mark.skip(reason="nightly: make test-all runs it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("TRIOKA_NIGHTLY") == "1":
        return
    for item in items:
        if item.get_closest_marker("nightly") is not None:
            item.add_marker(SKIPPED)
