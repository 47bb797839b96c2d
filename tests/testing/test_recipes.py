"""Every block of Python in docs/RECIPES.md and docs/COMING-FROM-TESTCONTAINERS.md is run, as the page shows it."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("RECIPES.md", "COMING-FROM-TESTCONTAINERS.md")


def blocks() -> list[str]:
    texts = [(DOCS / page).read_text(encoding="utf-8") for page in PAGES]
    found = [re.findall(r"```python\n(.*?)```", text, re.DOTALL) for text in texts]
    assert all(found)
    return [block for of_page in found for block in of_page]


def test_every_python_block_of_the_pages_passes(pytester: pytest.Pytester) -> None:
    found = blocks()
    pytester.makepyfile(**{f"test_block_{number}": text for number, text in enumerate(found)})
    tests = sum(len(re.findall(r"(?m)^ *(?:async )?def test_", text)) for text in found)
    assert len(found) > 10
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--strict-markers")
    result.assert_outcomes(passed=tests)


def test_no_block_is_without_a_test() -> None:
    assert [text for text in blocks() if "def test_" not in text] == []
