"""The rules about pages: what they define, cite and link to is there.

A rule takes texts and returns violations as sentences, as in `style/tidy.py`: a planted violation needs no file.
`tests/style/test_documents.py` applies the rules to our pages.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from style.tidy import Source

# --- invariants

INVARIANTS = "docs/INVARIANTS.md"
INVARIANT = re.compile(r"\b(?:TI|TM|[IKSTG])[1-9][0-9]?\b")
DEFINITION = re.compile(r"^- \*\*((?:TI|TM|[IKSTG])[1-9][0-9]?)\*\* ", re.M)
WATCHED_BY = re.compile(r"Watched\s+by\s+`")

# In bench/ G1 is a garbage collector, in compat-tests/ S1 and T1 are members of a group. tests/style/ holds the planted
# violations of these rules.
NO_CITATIONS = ("bench/", "compat-tests/", "tests/style/")


def defined_invariants(page: str) -> list[tuple[str, str]]:
    """Names and definitions, in the order of the page."""
    parts = DEFINITION.split(page)
    return [(name, text.split("\n\n")[0]) for name, text in zip(parts[1::2], parts[2::2], strict=True)]


def cited_invariants(sources: Iterable[Source]) -> dict[str, str]:
    """Each name that code, a test or a page cites, with the first place that does."""
    found: dict[str, str] = {}
    for source in sources:
        if not source.path.endswith((".py", ".md")) or source.path.startswith((INVARIANTS, *NO_CITATIONS)):
            continue
        for number, line in enumerate(source.lines, 1):
            for name in INVARIANT.findall(line):
                found.setdefault(name, f"{source.path}:{number}")
    return found


def invariants_agree(defined: Sequence[tuple[str, str]], cited: Mapping[str, str]) -> Iterator[str]:
    names = [name for name, _ in defined]
    for name, place in sorted(cited.items()):
        if name not in names:
            yield f"{place}: {name} is not defined in {INVARIANTS}."
    for name, text in defined:
        if name not in cited:
            yield f"{INVARIANTS}: {name} is cited nowhere; delete it, or cite it in the test that watches it."
        if names.count(name) > 1:
            yield f"{INVARIANTS}: {name} is defined twice."
        if not WATCHED_BY.search(text):
            yield f"{INVARIANTS}: {name} names no test or module that watches it."


# --- decisions

DECISIONS = "docs/decisions/"
DECISION_FILE = re.compile(r"docs/decisions/(\d{4})-[a-z0-9-]+\.md")
STATUS = re.compile(r"Status: (?:accepted|superseded by (\d+))")


def decisions_have_a_status(pages: Sequence[Source]) -> Iterator[str]:
    """The title has the number of the file, and the third line says whether the decision still holds."""
    numbers = {int(found[1]) for page in pages if (found := DECISION_FILE.fullmatch(page.path))}
    for page in pages:
        name = DECISION_FILE.fullmatch(page.path)
        if name is None:
            yield f"{page.path}: a decision is a file `0001-name.md`."
            continue
        if not page.text.startswith(f"# {int(name[1])}. "):
            yield page.violation(1, f"the title should begin with `# {int(name[1])}. `.")
        status = STATUS.fullmatch(page.lines[2]) if len(page.lines) > 2 else None
        if status is None:
            yield page.violation(3, "the third line should be `Status: accepted` or `Status: superseded by N`.")
        elif status[1] and not (int(status[1]) in numbers and int(status[1]) > int(name[1])):
            yield page.violation(3, f"there is no later decision {status[1]}.")


def decisions_are_listed(index: str, pages: Sequence[Source]) -> Iterator[str]:
    for page in pages:
        number, title = page.lines[0].removeprefix("# ").split(". ", 1)
        row = (
            f"| {number} | [{title}]({page.path.removeprefix(DECISIONS)}) | {page.lines[2].removeprefix('Status: ')} |"
        )
        if row not in index:
            yield f"{DECISIONS}README.md: there should be a row `{row}`."


# --- links and paths

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
QUOTED = re.compile(r"`([\w./*-]+)`")
FOLDERS = """archive bench broker cli cluster compat-tests coordinator docs gateway pipeline protocol requirements
    storage testing tests"""
ROOT_FOLDERS = tuple(f"{folder}/" for folder in FOLDERS.split())
MODULE = re.compile(r"[\w./*-]+(?:\.py|\.c|/)")
HEADING = re.compile(r"^## (.*)$", re.M)

# These pages also tell of what is gone: nothing has to be there that they name.
HISTORIES = frozenset({"CHANGELOG.md", "bench/HISTORY.md"})
# The sections of this page are named after packages, and name modules without them.
MAP = "docs/ARCHITECTURE.md"


def folders_of(paths: Iterable[str]) -> set[str]:
    return {"/".join(parts[:end]) for path in paths for parts in [path.split("/")] for end in range(1, len(parts))}


def links_resolve(page: Source, paths: frozenset[str]) -> Iterator[str]:
    """`paths`: every file and folder of the repository. Links to other sites, and within the page, are not followed."""
    for target in LINK.findall(FENCE.sub("", page.text)):
        path = target.split("#")[0]
        if path and "://" not in path and not path.startswith("mailto:"):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path))
            if place not in paths:
                yield f"{page.path}: there is no {target}."


def named_paths_exist(page: Source, paths: frozenset[str]) -> Iterator[str]:
    """What stands in backticks and begins with a folder of the root is there; an asterisk stands for anything."""
    if page.path in HISTORIES or "\nStatus: superseded" in page.text:
        return
    sections = HEADING.split(page.text) if page.path == MAP else [page.text]
    for package, text in zip(["", *sections[1::2]], sections[0::2], strict=True):
        for name in QUOTED.findall(FENCE.sub("", text)):
            if name.startswith(ROOT_FOLDERS):
                patterns = [name.rstrip("/")]
            elif f"{package}/" in ROOT_FOLDERS and MODULE.fullmatch(name):
                patterns = [f"{package}/{name.rstrip('/')}", f"{package}/*/{name.rstrip('/')}"]
            else:
                continue
            if not any(path == pattern or fnmatchcase(path, pattern) for pattern in patterns for path in paths):
                yield f"{page.path}: there is no `{name}`" + (f" in {package}/." if package else ".")
