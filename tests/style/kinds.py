"""Which of the markers `mutation`, `simulation` and `process` a test has, by what its code names and its file imports.

These markers are not written by hand, so none is forgotten. CONTRIBUTING.md describes the rules for people:

- `mutation`: the name of the test begins with `test_a_planted_mistake`, or its code names `assert_noticed` or `planted`
  (tests/mutants/plant.py), the two functions that plant a mistake in a copy of a module.
- `simulation`: the file is in tests/simulation, or imports a module of it, or of the catalog of mutants (WORLDS).
- `process`: the file is in compat-tests, or imports `subprocess` or `multiprocessing`, or imports a module of tests/ or
  bench/ that does.

The last two rules are about files, not about single tests: a file with one test that starts a process has the marker on
all of its tests. They see imports at the top of a file and inside its functions, and follow them one step.
"""

import ast
import re
from functools import cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
MODULE_FOLDERS = ("tests", "bench")  # where the modules are that tests share; pythonpath in pyproject.toml names them

PLANTED_NAME = "test_a_planted_mistake"
PLANTERS = frozenset({"assert_noticed", "planted"})
WORLDS = re.compile(r"simulation\.\w+|mutants\.catalog\w*")
PROCESSES = frozenset({"subprocess", "multiprocessing"})


def kinds(path: Path, name: str, code: CodeType | None) -> list[str]:
    """The markers of the test called `name` in the file at `path`, whose function has this code, if it has any."""
    place = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else path.parts
    imported = imports(path)
    found = []
    if name.startswith(PLANTED_NAME) or (code is not None and PLANTERS & set(names(code))):
        found.append("mutation")
    if "simulation" in place[:-1] or any(WORLDS.fullmatch(module) and shared(module) for module in imported):
        found.append("simulation")
    if place[0] == "compat-tests" or starts_processes(imported):
        found.append("process")
    return found


def names(code: CodeType) -> list[str]:
    """The global names and attributes that a function uses, those of the functions inside it included."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in names(constant)]
    return [*code.co_names, *inner]


def starts_processes(imported: frozenset[str]) -> bool:
    if _begin_processes(imported):
        return True
    return any(_begin_processes(imports(file)) for module in imported if (file := shared(module)) is not None)


def _begin_processes(imported: frozenset[str]) -> bool:
    return any(module.split(".")[0] in PROCESSES for module in imported)


@cache
def shared(module: str) -> Path | None:
    """The file of a module that tests share, if `module` is one."""
    for folder in MODULE_FOLDERS:
        file = (ROOT / folder).joinpath(*module.split(".")).with_suffix(".py")
        if file.is_file():
            return file
    return None


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports absolutely, wherever in it; none, if it is not Python. What is imported from a
    package may be a module of it, so `from simulation import network` names `simulation` and `simulation.network`."""
    if path.suffix != ".py":
        return frozenset()
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)
