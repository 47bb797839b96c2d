"""Which offsets a table has: by its snapshots, by its properties, or not known."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.archive import table_progress as progress_module
from trioka.archive.errors import ArchiveError
from trioka.archive.table_progress import OFFSETS, TOPIC, TOPIC_ID, TableProgress

ID = "MWJ6FHTfRYy67jzwZdeqSQ"


def at(offset: int, *, topic_id: str = ID) -> dict[str, str]:
    return TableProgress(topic="orders", topic_id=topic_id, offsets={0: offset}).properties()


@pytest.fixture
def progress() -> ModuleType:
    return progress_module


def read(module: ModuleType, snapshots: list[dict[str, str]], properties: dict[str, str]) -> dict[int, int]:
    found = module.read_progress("db.orders", iter(snapshots), properties, topic="orders", topic_id=ID)
    return dict(found.offsets)


def test_the_newest_snapshot_with_offsets_counts(progress: ModuleType) -> None:
    assert read(progress, [at(20), at(10)], at(20)) == {0: 20}
    assert read(progress, [{}, {"operation": "replace"}, at(10)], at(10)) == {0: 10}


def test_a_table_that_was_rolled_back_is_filled_from_there(progress: ModuleType) -> None:
    assert read(progress, [at(10)], at(20)) == {0: 10}
    assert read(progress, [], at(20)) == {}


def test_the_tables_properties_count_where_its_snapshots_have_expired(progress: ModuleType) -> None:
    assert read(progress, [{"operation": "replace"}], at(20)) == {0: 20}


def test_an_empty_table_begins_at_the_start(progress: ModuleType) -> None:
    assert read(progress, [], {"commit.retry.num-retries": "0"}) == {}


def test_a_table_of_something_else_is_refused(progress: ModuleType) -> None:
    for snapshots, properties in (
        ([{"operation": "append"}], {}),  # rows of unknown origin
        ([at(10, topic_id="AAAAAAAAAAAAAAAAAAAAAA")], {}),  # the topic was created again
        ([{**at(10), TOPIC: "payments"}], {}),
        ([], at(10, topic_id="AAAAAAAAAAAAAAAAAAAAAA")),
        ([{OFFSETS: "{}"}], {}),
    ):
        with pytest.raises(ArchiveError):
            read(progress, snapshots, properties)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"0": -1}', '{"x": 1}', '{"0": "1"}', '{"-1": 1}', "null"])
def test_offsets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ArchiveError, match=r"trioka\.offsets"):
        read(progress_module, [{TOPIC: "orders", TOPIC_ID: ID, OFFSETS: text}], {})


MISTAKES: list[tuple[str, str, Rule]] = [
    ("OFFSETS in found", "False", test_a_table_that_was_rolled_back_is_filled_from_there),
    (
        "OFFSETS in properties and not is_empty",
        "OFFSETS in properties",
        test_a_table_that_was_rolled_back_is_filled_from_there,
    ),
    (
        "OFFSETS in properties and not is_empty",
        "False",
        test_the_tables_properties_count_where_its_snapshots_have_expired,
    ),
    (
        "(found.get(TOPIC), found.get(TOPIC_ID)) != (topic, topic_id)",
        "found.get(TOPIC) != topic",
        test_a_table_of_something_else_is_refused,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(progress_module, right, wrong, rule)
