"""Pages define what is cited, and what they name is there: our pages first, then a planted violation for every rule."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from style import documents, repository
from style.tidy import Source

ROOT = Path(__file__).resolve().parents[2]
SOURCES = list(repository.sources(ROOT))


def complain(violations: Iterable[str]) -> None:
    found = list(violations)
    assert not found, "\n" + "\n".join(found)


# Invariants.


def test_every_invariant_that_is_cited_is_defined_and_every_other_way_round() -> None:
    defined = documents.defined_invariants((ROOT / documents.INVARIANTS).read_text(encoding="utf-8"))
    cited = documents.cited_invariants(SOURCES)
    assert {"I1", "K1", "S1", "T1", "G1"} <= set(cited)
    complain(documents.invariants_agree(defined, cited))


RULE = "- **I1** An acknowledged record is kept. Watched by `tests/x.py`.\n"
CODE = Source("storage/log.py", "# it is kept (I1)")


@pytest.mark.parametrize(
    ("page", "sources", "violation"),
    [
        (RULE, [CODE, Source("tests/x.py", '"""Kept, and more (I1, I18)."""')], "tests/x.py:1: I18 is not defined"),
        (RULE, [CODE, Source("docs/x.md", "\nthe rule K1")], "docs/x.md:2: K1 is not defined"),
        (RULE, [Source("bench/x.py", "I1")], "I1 is cited nowhere"),
        (RULE, [Source(documents.INVARIANTS, RULE)], "I1 is cited nowhere"),
        (RULE + RULE, [CODE], "I1 is defined twice"),
        (RULE.replace("Watched by", "See"), [CODE], "I1 names no test"),
    ],
)
def test_a_planted_violation_of_the_list_of_invariants_is_caught(
    page: str, sources: list[Source], violation: str
) -> None:
    complain(documents.invariants_agree(documents.defined_invariants(RULE), documents.cited_invariants([CODE])))
    found = documents.invariants_agree(documents.defined_invariants(page), documents.cited_invariants(sources))
    assert violation in "\n".join(found)


# Decisions.

DECISION_PAGES = [
    source
    for source in SOURCES
    if source.path.startswith(documents.DECISIONS) and source.path != f"{documents.DECISIONS}README.md"
]


def test_every_decision_has_a_status_and_is_listed() -> None:
    assert len(DECISION_PAGES) >= 22
    complain(documents.decisions_have_a_status(DECISION_PAGES))
    index = (ROOT / documents.DECISIONS / "README.md").read_text(encoding="utf-8")
    complain(documents.decisions_are_listed(index, DECISION_PAGES))


FIRST = Source("docs/decisions/0001-logs.md", "# 1. Logs are files\n\nStatus: superseded by 2\n")
SECOND = Source("docs/decisions/0002-maps.md", "# 2. Logs are maps\n\nStatus: accepted\n\nWhy.\n")


@pytest.mark.parametrize(
    "wrong",
    [
        Source(FIRST.path, FIRST.text.replace("by 2", "by 3")),
        Source(FIRST.path, FIRST.text.replace("by 2", "by 1")),
        Source(FIRST.path, FIRST.text.replace("superseded by 2", "superseded")),
        Source(FIRST.path, FIRST.text.replace("superseded by 2", "accepted, for 0.1.0.")),
        Source(FIRST.path, FIRST.text.replace("# 1.", "# 3.")),
        Source(FIRST.path, "# 1. Logs are files\n"),
        Source("docs/decisions/logs.md", FIRST.text),
    ],
)
def test_a_planted_violation_of_a_decision_is_caught(wrong: Source) -> None:
    complain(documents.decisions_have_a_status([FIRST, SECOND]))
    assert list(documents.decisions_have_a_status([wrong, SECOND]))


def test_a_decision_that_is_not_listed_is_caught() -> None:
    index = "| 1 | [Logs are files](0001-logs.md) | superseded by 2 |"
    complain(documents.decisions_are_listed(index, [FIRST]))
    assert list(documents.decisions_are_listed(index, [FIRST, SECOND]))
    assert list(documents.decisions_are_listed(index.replace("superseded by 2", "accepted"), [FIRST]))


# Links and paths.

PAGES = [source for source in SOURCES if source.path.endswith(".md")]
LISTED = repository.listing(ROOT)
PATHS = frozenset({*LISTED, *documents.folders_of(LISTED)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_what_a_page_links_to_and_names_is_there(page: Source) -> None:
    complain([*documents.links_resolve(page, PATHS), *documents.named_paths_exist(page, PATHS)])


TREE = ["README.md", "docs/TUTORIAL.md", "storage/log.py", "broker/network/server.py", "tests/storage/test_log.py"]
SMALL = frozenset({*TREE, *documents.folders_of(TREE)})


@pytest.mark.parametrize(
    ("path", "right", "wrong"),
    [
        ("README.md", "[x](docs/TUTORIAL.md#start)", "[x](docs/TUTOR.md)"),
        ("docs/TUTORIAL.md", "[x](../README.md), [y](#z)", "[x](README.md)"),
        ("docs/TUTORIAL.md", "[x](https://example.org/y), [tests](../tests)", "[x](../test)"),
        ("docs/X.md", "`storage/log.py` and `storage/`", "`storage/logs.py`"),
        ("docs/X.md", "`tests/*/test_log.py`, `log.py`, `/metrics`", "`tests/*/test_logs.py`"),
        ("docs/X.md", "```\n`storage/x.py` [x](y.md)\n```", "# 1.\n\nStatus: accepted\n\n`storage/x.py`"),
        (documents.MAP, "## storage\n\n`log.py`\n\n## broker\n\n`network/`, `server.py`", "## storage\n\n`logs.py`"),
        (documents.MAP, "## Glossary\n\n`x.py`", "## broker\n\n`log.py`"),
    ],
)
def test_a_planted_link_or_path_that_leads_nowhere_is_caught(path: str, right: str, wrong: str) -> None:
    def violations(text: str) -> list[str]:
        page = Source(path, text)
        return [*documents.links_resolve(page, SMALL), *documents.named_paths_exist(page, SMALL)]

    complain(violations(right))
    assert violations(wrong)


def test_a_page_about_the_past_may_name_what_is_gone() -> None:
    for path, text in (
        ("CHANGELOG.md", "`storage/x.py`"),
        ("docs/x.md", "# 1.\n\nStatus: superseded by 2\n`storage/x.py`"),
    ):
        complain(documents.named_paths_exist(Source(path, text), SMALL))
