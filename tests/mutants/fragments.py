"""Fragments of code, and where they stand in a syntax tree.

A fragment is text that has a meaning in Python by itself or inside one construct:

    x = 1 · return a + b · two statements          statements
    if x: · elif x: · for a in b: · def f(a):      the header of a compound statement; its body is left as it is
    except KeyError:                               a handler, or the header of one
    @cached                                        decorators
    a + b                                          an expression
    a or b                                         adjacent ones in a longer `or` or `and`, too
    or a · a and                                   operands of an `or` or `and`
    a, b · size=1 · *rest                          adjacent arguments or elements
    size: int = 1 · size=1                         adjacent parameters
    "size": 1                                      adjacent items of a dict
    for x in y if z                                clauses of a comprehension

`readings` parses a text as each of them that it can be. `spans` lists the places of a tree where each may stand.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

BODY = "__body_of_a_header__"  # stands in a parsed header where the body is

Nodes = list[ast.AST]


class Reading(NamedTuple):
    kind: str
    nodes: Nodes


class Span(NamedTuple):
    """Adjacent nodes in the tree that a fragment of this kind may match, and how to put others in their place."""

    kind: str
    nodes: Nodes
    replace: Callable[[int, int, Nodes], None]  # from, to (exclusive), by what


class Item(ast.AST):
    """A key with its value, or a parameter with its default: two nodes that Python's tree keeps in two lists."""

    _fields = ("first", "second")

    def __init__(self, first: ast.AST | None = None, second: ast.AST | None = None) -> None:
        super().__init__()
        self.first = first
        self.second = second


# --- parsing


def _statements(text: str) -> Nodes:
    return list(ast.parse(text).body)


def _only(tree: ast.Module) -> ast.stmt:
    if len(tree.body) != 1:
        raise SyntaxError("more than one statement")
    return tree.body[0]


def _handlers(text: str) -> Nodes:
    statement = _only(ast.parse(f"try:\n    pass\n{text}"))
    if not isinstance(statement, ast.Try) or statement.orelse or statement.finalbody:
        raise SyntaxError("more than handlers")
    return list(statement.handlers)


def _decorators(text: str) -> Nodes:
    function = _only(ast.parse(f"{text}\ndef f(): pass"))
    if not isinstance(function, ast.FunctionDef) or not function.decorator_list:
        raise SyntaxError("no decorators")
    return list(function.decorator_list)


def _expression(text: str) -> Nodes:
    return [ast.parse(f"(\n{text}\n)", mode="eval").body]


def _items(text: str) -> Nodes:
    call = ast.parse(f"f(\n{text}\n)", mode="eval").body
    if not isinstance(call, ast.Call):
        raise SyntaxError("more than arguments")
    return [*call.args, *call.keywords]


def _parameters(text: str) -> Nodes:
    function = _only(ast.parse(f"def f(\n{text}\n): pass"))
    if not isinstance(function, ast.FunctionDef):
        raise SyntaxError("no parameters")
    return parameters_of(function.args)


def _pairs(text: str) -> Nodes:
    mapping = ast.parse(f"{{\n{text}\n}}", mode="eval").body
    if not isinstance(mapping, ast.Dict):
        raise SyntaxError("no items of a dict")
    return [Item(key, value) for key, value in zip(mapping.keys, mapping.values, strict=True)]


def _clauses(text: str) -> Nodes:
    listed = ast.parse(f"[_\n{text}\n]", mode="eval").body
    if not isinstance(listed, ast.ListComp):
        raise SyntaxError("no clauses")
    return list(listed.generators)


PARSERS: dict[str, Callable[[str], Nodes]] = {
    "statements": _statements,
    "handlers": _handlers,
    "decorators": _decorators,
    "expression": _expression,
    "items": _items,
    "parameters": _parameters,
    "pairs": _pairs,
    "clauses": _clauses,
}


def _layouts(text: str) -> Iterator[str]:
    """The text with the indentation that it may have when it begins in the middle of a line."""
    plain = textwrap.dedent(text).strip()
    yield plain
    first, _, rest = text.strip().partition("\n")
    rest = textwrap.dedent(rest)
    yield f"{first}\n{rest}"
    yield f"{first}\n{textwrap.indent(rest, '    ')}"


def parse(kind: str, text: str) -> Nodes:
    """The nodes of the text, read as this kind; SyntaxError if it cannot be."""
    if not text.strip():
        return []
    for layout in _layouts(text):
        if layout.startswith("elif ") and kind == "statements":
            layout = layout.removeprefix("el")
        last = layout.splitlines()[-1]
        inside = " " * (len(last) - len(last.lstrip()) + 4)
        headers = (f"\n{inside}{BODY}",) if kind in ("statements", "handlers") else ()
        for ending in ("", *headers):
            try:
                return PARSERS[kind](layout + ending)
            except SyntaxError:
                continue
    raise SyntaxError(f"{text!r} is not {kind}")


def readings(right: str, wrong: str) -> Iterator[tuple[Reading, Nodes]]:
    """What the two texts may mean, as long as both may mean the same kind of thing."""
    is_expression = _can_be("expression", right) and _can_be("expression", wrong)
    for kind in PARSERS:
        try:
            nodes, others = parse(kind, right), parse(kind, wrong)
        except SyntaxError:
            continue
        if kind == "expression" and (len(others) != 1 or not nodes):
            continue
        if kind == "statements" and is_expression:
            continue
        if kind == "items" and len(nodes) == 1 == len(others) and is_expression:
            continue
        yield Reading(kind, nodes), others
    yield from _operand_readings(right, wrong)


def _operands(text: str, operator: str) -> Nodes | None:
    """The operands in `or a`, `a or` or `or a or`; None if no operator stands at an end."""
    words = text.strip().removesuffix(":").strip()
    inner = re.sub(rf"^{operator}\b|\b{operator}$", "", words)
    inner = re.sub(rf"\b{operator}$", "", inner)
    try:
        nodes = parse("expression", inner)
    except SyntaxError:
        return None
    match nodes:
        case [ast.BoolOp(op=op, values=values)] if type(op).__name__.lower() == operator:
            nodes = list(values)
    return None if inner == words and words else nodes


def _operand_readings(right: str, wrong: str) -> Iterator[tuple[Reading, Nodes]]:
    for kind in ("And", "Or"):
        nodes, others = _operands(right, kind.lower()), _operands(wrong, kind.lower())
        if nodes and others is not None:
            yield Reading(kind, nodes), others


def _can_be(kind: str, text: str) -> bool:
    try:
        return bool(parse(kind, text))
    except SyntaxError:
        return False


# --- places in a tree


def spans(node: ast.AST) -> Iterator[Span]:
    """Where fragments may stand directly inside this node."""
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            yield Span("expression", [value], _single(node, field))
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, ast.expr):
                    yield Span("expression", [each], _one_of(value, index))
            kind = _kind_of_list(node, field)
            if kind is not None:
                yield Span(kind, value, _slice(value, fills=field == "body"))
    yield from _joined_lists(node)


def _kind_of_list(node: ast.AST, field: str) -> str | None:
    if field in ("body", "orelse", "finalbody"):
        return "statements"
    if field == "elts" and isinstance(node, ast.List | ast.Tuple | ast.Set):
        return "items"
    return {"handlers": "handlers", "decorator_list": "decorators", "generators": "clauses"}.get(field)


def _joined_lists(node: ast.AST) -> Iterator[Span]:
    if isinstance(node, ast.Call):
        yield Span("items", [*node.args, *node.keywords], _arguments(node, "args"))
    elif isinstance(node, ast.ClassDef):
        yield Span("items", [*node.bases, *node.keywords], _arguments(node, "bases"))
    elif isinstance(node, ast.Dict):
        pairs: Nodes = [Item(key, value) for key, value in zip(node.keys, node.values, strict=True)]
        yield Span("pairs", pairs, _dict(node))
    elif isinstance(node, ast.arguments):
        yield Span("parameters", parameters_of(node), _arguments_of(node))
    elif isinstance(node, ast.BoolOp):
        yield Span(type(node.op).__name__, list(node.values), _values(node))


def parameters_of(arguments: ast.arguments) -> Nodes:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    found = [Item(*each) for each in zip(positional, defaults, strict=True)]
    found += [Item(each, None) for each in (arguments.vararg,) if each is not None]
    found += [Item(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [*found, *(Item(each, None) for each in (arguments.kwarg,) if each is not None)]


def _single(node: ast.AST, field: str) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        (other,) = others
        setattr(node, field, other)

    return replace


def _one_of(values: Nodes, index: int) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        values[index : index + 1] = others

    return replace


def _slice(values: Nodes, *, fills: bool) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        values[start:end] = others
        if fills and not values:
            values.append(ast.Pass())

    return replace


def _arguments(node: ast.AST, field: str) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        every = [*getattr(node, field), *getattr(node, "keywords")]  # noqa: B009
        every[start:end] = others
        setattr(node, field, [each for each in every if not isinstance(each, ast.keyword)])
        setattr(node, "keywords", [each for each in every if isinstance(each, ast.keyword)])  # noqa: B010

    return replace


def _dict(node: ast.Dict) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        node.keys[start:end] = [each.first for each in others]  # type: ignore[attr-defined]
        node.values[start:end] = [each.second for each in others]  # type: ignore[attr-defined]

    return replace


def _arguments_of(node: ast.arguments) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        if end - start != len(others):
            raise ValueError("parameters may be changed, not added nor taken away: give the header of the function")
        for number, other in zip(range(start, end), others, strict=True):
            _set_parameter(node, number, other)

    return replace


def _set_parameter(node: ast.arguments, number: int, other: ast.AST) -> None:
    assert isinstance(other, Item) and isinstance(other.first, ast.arg)
    positional = len(node.posonlyargs) + len(node.args)
    named = number - positional - (node.vararg is not None)
    assert other.second is None or isinstance(other.second, ast.expr)
    if number < positional:
        owner = node.posonlyargs if number < len(node.posonlyargs) else node.args
        owner[number - (0 if owner is node.posonlyargs else len(node.posonlyargs))] = other.first
        default = number - positional + len(node.defaults)
        if other.second is not None and default >= 0:
            node.defaults[default] = other.second
    elif 0 <= named < len(node.kwonlyargs):
        node.kwonlyargs[named], node.kw_defaults[named] = other.first, other.second
    else:
        raise ValueError("give the header of the function to change *args or **kwargs")


def _values(node: ast.BoolOp) -> Callable[[int, int, Nodes], None]:
    def replace(start: int, end: int, others: Nodes) -> None:
        node.values[start:end] = others  # type: ignore[assignment]

    return replace
