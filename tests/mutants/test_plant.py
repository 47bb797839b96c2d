"""Planted mistakes are found by syntax: layout and renames do not matter, and a vanished condition is an error."""

import ast
import textwrap

import pytest
from mutants.plant import planted_tree, within

SOURCE = textwrap.dedent(
    '''
    """A module."""

    LIMIT: int = 5


    class Queue:
        def put(self, item, size=1):
            if self.closed:
                raise ValueError("closed")
            if len(self.items) >= LIMIT or size > self.space:
                return False
            self.items.append(item)  # the newest is the last
            self.count(item, weight=size)
            return True

        def take(self):
            if self.closed:
                raise ValueError("closed")
            try:
                return self.items.pop(0)
            except IndexError:
                return None

        def sizes(self):
            return {"items": len(self.items), "space": [each for each in self.parts if each.free]}
    '''
)


def changed(source: str, right: str, wrong: str) -> str:
    return ast.unparse(planted_tree(source, right, wrong, "a_module"))


def expected(source: str, right: str, wrong: str) -> str:
    assert source.count(right) == 1
    return ast.unparse(ast.parse(source.replace(right, wrong)))


FRAGMENTS = [
    ("LIMIT: int = 5", "LIMIT: int = 4"),
    ("self.items.append(item)", "self.items.insert(0, item)"),
    ("self.items.append(item)  # the newest is the last\n", "\n"),
    ("return self.items.pop(0)", "return self.items.pop()"),
    ("if len(self.items) >= LIMIT or size > self.space:", "if False:"),
    ("def take(self):", "def take(self, timeout=None):"),
    ("len(self.items) >= LIMIT", "len(self.items) > LIMIT"),
    (" or size > self.space", ""),
    ("len(self.items) >= LIMIT or", ""),
    ("weight=size", "weight=1"),
    ("item, weight=size", "item"),
    ("size=1", "size=2"),
    ("except IndexError:", "except KeyError:"),
    ('"items": len(self.items)', '"items": 0'),
    ("for each in self.parts if each.free", "for each in self.parts"),
]


@pytest.mark.parametrize(("right", "wrong"), FRAGMENTS)
def test_every_kind_of_fragment_is_replaced_as_its_text_would_be(right: str, wrong: str) -> None:
    assert changed(SOURCE, right, wrong) == expected(SOURCE, right, wrong)


def test_comments_line_breaks_and_quotes_do_not_matter() -> None:
    right = "if len(self.items) >= LIMIT or size > self.space:\n    return False"
    other = SOURCE.replace(
        "if len(self.items) >= LIMIT or size > self.space:",
        "if (\n            len(self.items) >= LIMIT  # full\n            or size > self.space\n        ):",
    )
    assert other != SOURCE
    assert changed(other, right, "pass") == changed(SOURCE, right, "pass")
    assert changed(SOURCE, "'items': len(self.items)", "'items': 0") == expected(SOURCE, "len(self.items),", "0,")


def test_a_renamed_variable_is_still_found_and_renamed_in_the_mistake() -> None:
    right, wrong = "self.count(item, weight=size)", "self.count(item, weight=item)"
    renamed = SOURCE.replace("item, size", "record, size").replace("(item", "(record")
    assert "self.count(record, weight=record)" in changed(renamed, right, wrong)


def test_a_renamed_attribute_is_still_found() -> None:
    renamed = SOURCE.replace("space", "room")
    assert "LIMIT or size >= self.room" in changed(
        renamed, "len(self.items) >= LIMIT or size > self.space", "len(self.items) >= LIMIT or size >= self.space"
    )


def test_a_name_that_is_still_there_was_not_renamed() -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        changed(SOURCE, "self.items.append(self.closed)", "pass")


def test_a_moved_function_is_still_found_by_its_place() -> None:
    moved = SOURCE.replace("class Queue:", "class Other:")
    for source in (SOURCE, moved):
        planted = changed(source, within("Queue.take", "if self.closed:"), "if False:")
        assert planted.count("if False:") == 1
        assert planted.index("def take") < planted.index("if False:")


def test_a_mistake_that_may_stand_in_two_places_is_refused_by_their_names() -> None:
    with pytest.raises(ValueError, match=r"stands 2 times in a_module.*Queue\.put, line 9.*Queue\.take, line 18"):
        changed(SOURCE, "if self.closed:", "if False:")


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        ("len(self.items) >= LIMIT or ", "len(self.items) >= LIMIT"),
        (" or size > self.space", "or size > self.space"),
        ("if each.free", "each.free"),
    ],
)
def test_a_vanished_condition_is_not_found_anywhere_else(condition: str, right: str) -> None:
    changed(SOURCE, right, "False" if not right.startswith("or") else "")
    gone = SOURCE.replace(condition, "")
    assert gone != SOURCE
    with pytest.raises(ValueError, match="stands 0 times"):
        changed(gone, right, "False" if not right.startswith("or") else "")


def test_a_vanished_condition_does_not_match_another_of_the_same_shape() -> None:
    gone = SOURCE.replace("self.closed", "self.frozen", 1)
    assert "if False:" in changed(gone, "if self.closed:", "if False:")
    with pytest.raises(ValueError, match=r"stands 0 times.*closed -> frozen"):
        changed(gone.replace("if self.closed:", "if self.items and self.count:"), "if self.closed:", "if False:")


def test_a_fragment_that_is_no_code_is_refused() -> None:
    with pytest.raises(ValueError, match="not two fragments of code of one kind"):
        changed(SOURCE, "len(self.items) >=", "len(self.items) >")
