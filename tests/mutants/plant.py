"""Planted mistakes: a copy of a module with one place changed, so that a test can show that it would notice.

@pytest.fixture
def storage() -> ModuleType:
    return producers

def test_the_window_has_five_batches(storage: ModuleType) -> None: ...

MISTAKES = [("WINDOW_BATCHES: Final = 5", "WINDOW_BATCHES: Final = 4", test_the_window_has_five_batches)]

@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(producers, right, wrong, rule)

`right` is found by its syntax tree (`mutants/fragments.py` lists what it may be): comments, line breaks and quotes do
not matter. It must stand in one place. Where it stands in several, name the function or class that is meant:
`within("ProducerState.replay", "if self.closed:")`.

If the tree has no such place, `planted` looks for one that differs in names only. A local variable counts as renamed if
its function no longer has the old name; an attribute or a global, if the module no longer has it. More names must be
kept than renamed, or the function must be given and one name kept: otherwise `if self.closed:` would match any other
`if self.x:` after that condition has vanished. `wrong` is then renamed as well.
"""

import ast
import inspect
from collections.abc import Callable
from itertools import count
from types import ModuleType

import pytest
from mutants.matching import Renamed, candidates

Rule = Callable[[ModuleType], None]

MAX_NAMED = 8  # so many candidates are named in an error

_numbers = count(1)


class _Within(str):
    function: str


def within(function: str, code: str) -> str:
    """The code where it stands in the function or class of this qualified name."""
    fragment = _Within(code)
    fragment.function = function
    return fragment


def planted(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """A copy of the module in which the code `right`, which stands there once, is `wrong`."""
    copy = ModuleType(f"{module.__name__}_with_mistake_{next(_numbers)}")
    copy.__package__ = module.__package__
    copy.__file__ = module.__file__
    tree = planted_tree(inspect.getsource(module), right, wrong, module.__name__)
    exec(compile(tree, f"<{copy.__name__}>", "exec"), copy.__dict__)
    return copy


def planted_tree(source: str, right: str, wrong: str, name: str) -> ast.Module:
    tree = ast.parse(source)
    function = right.function if isinstance(right, _Within) else None
    found = candidates(tree, right, wrong, function, renames=False)
    alike = [] if found else candidates(tree, right, wrong, function, renames=True)
    if not found:
        found = [
            each for each in alike if isinstance(each.names, Renamed) and each.names.is_likely(function is not None)
        ]
    if len(found) != 1:  # no AssertionError: that is what a mistake which was noticed raises
        named = "; ".join(str(each) for each in (found or alike)[:MAX_NAMED])
        where = f" in {function}" if function else ""
        raise ValueError(
            f"{right!r} stands {len(found)} times in {name}{where}"
            f"{f'; alike: {named}' if named else ''}; `within(function, code)` tells places apart"
        )
    found[0].apply()
    return ast.fix_missing_locations(_tidied(tree))


def _tidied(tree: ast.Module) -> ast.Module:
    """Without an `and` or `or` of a single value, which the compiler refuses."""

    class Tidy(ast.NodeTransformer):
        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
            self.generic_visit(node)
            return node.values[0] if len(node.values) == 1 else node

    tidied: ast.Module = Tidy().visit(tree)
    return tidied


def assert_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    rule(module)
    mistaken = planted(module, right, wrong)
    with pytest.raises((Exception, pytest.fail.Exception)):
        rule(mistaken)
