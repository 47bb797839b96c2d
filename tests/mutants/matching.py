"""Where a fragment stands in a syntax tree, by itself or with other names."""

import ast
import builtins
from collections.abc import Iterator
from typing import NamedTuple

from mutants.fragments import BODY, Nodes, Span, readings, spans

FIXED = frozenset(dir(builtins)) | {"self", "cls", BODY}  # not renamed
UNCOUNTED = frozenset({"self", "cls", BODY})
NAME_FIELDS = frozenset({"id", "attr", "arg", "name", "asname"})
IGNORED_FIELDS = frozenset({"ctx", "type_comment", "kind"})
LOCAL_NODES = (ast.Name, ast.arg, ast.ExceptHandler)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
REST_OF_A_STATEMENT = frozenset({"orelse", "decorator_list"})  # kept when only a header is given


def names_in(tree: ast.AST) -> set[str]:
    return {
        value
        for node in ast.walk(tree)
        for field, value in ast.iter_fields(node)
        if field in NAME_FIELDS and isinstance(value, str)
    }


def _globals_of(tree: ast.Module) -> set[str]:
    inside = {id(each) for node in ast.walk(tree) if isinstance(node, SCOPES) for each in ast.walk(node)}
    bound = {node.name for node in tree.body if isinstance(node, SCOPES)}
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in inside:
            bound.add(node.id)
    return bound


class EnclosedSpan(NamedTuple):
    """A span, and the function or class that it stands in."""

    span: Span
    qualname: str
    scope: ast.AST


def places(tree: ast.AST, qualname: str = "", scope: ast.AST | None = None) -> Iterator[EnclosedSpan]:
    scope = scope or tree
    for span in spans(tree):
        yield EnclosedSpan(span, qualname, scope)
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, SCOPES):
            inside = f"{qualname}.{child.name}".lstrip(".")
            yield from places(child, inside, scope if isinstance(child, ast.ClassDef) else child)
        else:
            yield from places(child, qualname, scope)


class Kept:
    """Names are as they are in the fragment."""

    def __init__(self) -> None:
        self.new_names: dict[str, str] = {}
        self.header: ast.AST | None = None  # the statement in the tree whose header was matched

    @property
    def changed(self) -> list[str]:
        return [old for old, new in self.new_names.items() if old != new]

    def same(self, old: str, new: str, pattern: ast.AST) -> bool:
        self.new_names[old] = new
        return old == new


class Renamed(Kept):
    """Names are others, but one for one, and only those that are gone."""

    def __init__(self, local: set[str], everywhere: set[str], bound: set[str]) -> None:
        super().__init__()
        self._local = local
        self._everywhere = everywhere
        self._bound = bound

    def same(self, old: str, new: str, pattern: ast.AST) -> bool:
        if old in self.new_names:
            return self.new_names[old] == new
        if new in self.new_names.values():
            return False
        if old != new:
            if FIXED & {old, new}:
                return False
            still = self._local | self._bound if isinstance(pattern, LOCAL_NODES) else self._everywhere
            if old in still:
                return False
        self.new_names[old] = new
        return True

    def is_likely(self, is_narrow: bool) -> bool:
        kept = sum(old == new and old not in UNCOUNTED for old, new in self.new_names.items())
        return kept > len(self.changed) or (is_narrow and kept > 0)


def is_header(pattern: ast.AST) -> bool:
    match getattr(pattern, "body", None):
        case [ast.Expr(value=ast.Name(id=name))]:
            return bool(name == BODY)
        case _:
            return False


def matches(pattern: object, node: object, names: Kept) -> bool:
    if isinstance(pattern, list):
        return (
            isinstance(node, list)
            and len(pattern) == len(node)
            and all(matches(one, other, names) for one, other in zip(pattern, node, strict=True))
        )
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and pattern == node
    if type(pattern) is not type(node):
        return False
    assert isinstance(node, ast.AST)
    skipped = IGNORED_FIELDS
    if is_header(pattern):
        names.header = node
        skipped |= REST_OF_A_STATEMENT | {"body"}
    for field in pattern._fields:
        mine, its = getattr(pattern, field, None), getattr(node, field, None)
        if field in skipped:
            continue
        if field in NAME_FIELDS and isinstance(mine, str) and isinstance(its, str):
            if not names.same(mine, its, pattern):
                return False
        elif not matches(mine, its, names):
            return False
    return True


class Candidate(NamedTuple):
    place: EnclosedSpan
    start: int
    end: int
    others: Nodes
    names: Kept

    def apply(self) -> None:
        for node in [inner for other in self.others for inner in ast.walk(other)]:
            for field, value in ast.iter_fields(node):
                if field in NAME_FIELDS and isinstance(value, str):
                    setattr(node, field, self.names.new_names.get(value, value))
            if is_header(node):
                for field in ("body", *REST_OF_A_STATEMENT):
                    if hasattr(node, field) and not (field == "decorator_list" and getattr(node, field)):
                        setattr(node, field, getattr(self.names.header, field, []))
        self.place.span.replace(self.start, self.end, self.others)

    def __str__(self) -> str:
        nodes = self.place.span.nodes[self.start : self.end]
        line = next((each.lineno for node in nodes for each in ast.walk(node) if hasattr(each, "lineno")), "?")
        changed = ", ".join(f"{old} -> {self.names.new_names[old]}" for old in self.names.changed)
        return f"{self.place.qualname or 'the module'}, line {line}{f' ({changed})' if changed else ''}"


def _has_header(nodes: Nodes) -> bool:
    return any(is_header(inner) for node in nodes for inner in ast.walk(node))


def patterns(right: str, wrong: str) -> Iterator[tuple[str, Nodes, Nodes]]:
    """Kinds of spans, what is looked for in them, and what replaces it."""
    for (kind, nodes), others in readings(right, wrong):
        if _has_header(nodes) != _has_header(others):
            continue
        yield kind, nodes, others
        match nodes, others:
            case [ast.BoolOp(op=op, values=values)], [ast.BoolOp(op=other, values=new)] if type(op) is type(other):
                yield type(op).__name__, list(values), list(new)
            case [ast.BoolOp(op=op, values=values)], [other]:
                yield type(op).__name__, list(values), [other]
            case _:
                pass


def candidates(tree: ast.Module, right: str, wrong: str, function: str | None, *, renames: bool) -> list[Candidate]:
    looked_for = list(patterns(right, wrong))
    if not looked_for:
        raise ValueError(f"{right!r} and {wrong!r} are not two fragments of code of one kind")
    everywhere, bound = names_in(tree), _globals_of(tree)
    local: dict[int, set[str]] = {}
    found = []
    for place in _narrowed(tree, function):
        span = place.span
        for kind, nodes, others in looked_for:
            # In a list as long as the fragment, an `or` and all arguments of a tuple were met as an expression.
            shortest = len(nodes) + (kind in ("And", "Or"))
            if span.kind != kind or len(span.nodes) < shortest:
                continue
            for start in range(len(span.nodes) - len(nodes) + 1):
                names = Kept()
                if renames:
                    if id(place.scope) not in local:
                        local[id(place.scope)] = names_in(place.scope)
                    names = Renamed(local[id(place.scope)], everywhere, bound)
                if matches(nodes, span.nodes[start : start + len(nodes)], names):
                    found.append(Candidate(place, start, start + len(nodes), others, names))
    return found


def _narrowed(tree: ast.Module, function: str | None) -> list[EnclosedSpan]:
    every = list(places(tree))
    if function is None:
        return every
    inside = [each for each in every if f"{each.qualname}.".startswith(f"{function}.")]
    if inside:
        return inside
    name = function.rpartition(".")[2]  # it may have moved to another class
    owners = {each.qualname for each in every if each.qualname.rpartition(".")[2] == name}
    if len(owners) != 1:
        raise ValueError(f"there is no {function}, and {len(owners)} named {name}")
    (owner,) = owners
    return [each for each in every if f"{each.qualname}.".startswith(f"{owner}.")]
