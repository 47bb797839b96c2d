"""Replay of `_schemas`."""

from collections.abc import Iterable
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.gateway.registry import state
from trioka.gateway.registry.errors import RegistryError
from trioka.gateway.registry.records import (
    BadRecord,
    Record,
    Reference,
    StoredSchema,
    clear_subject_record,
    config_record,
    delete_subject_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from trioka.gateway.registry.state import Place, RegistryState, content_of


def schema(subject: str, version: int, number: int, text: str = "", **more: object) -> StoredSchema:
    return StoredSchema(subject=subject, version=version, id=number, text=text or f"schema {number}", **more)  # type: ignore[arg-type]


def replayed(module: ModuleType, *found: StoredSchema | Record) -> RegistryState:
    made: RegistryState = module.RegistryState()
    for each in found:
        made.replay(*(schema_record(each) if isinstance(each, StoredSchema) else each))
    return made


def numbers(found: Iterable[StoredSchema]) -> list[int]:
    return [each.version for each in found]


@pytest.fixture
def module() -> ModuleType:
    return state


def test_a_deleted_subject_hides_its_versions_up_to_that_one(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1), schema("a", 2, 2), delete_subject_record("a", 1))
    assert numbers(found.live_versions("a")) == [2]
    assert list(found.versions("a")) == [1, 2]
    assert found.by_id(".", 1)[0].is_deleted


def test_versions_after_a_deletion_are_live(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1), delete_subject_record("a", 1), schema("a", 2, 1, "schema 1"))
    assert found.subjects() == ["a"]
    assert found.version("a", -1).version == 2


def test_an_empty_value_is_a_tombstone_as_karapace_writes_it(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1), Record(schema_tombstone("a", 1).key, b""))
    assert found.subjects(deleted=True) == []


def test_a_tombstone_removes_the_id_with_its_last_version(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1, "s"), schema("b", 1, 1, "s"), schema_tombstone("a", 1))
    assert [each.subject for each in found.by_id(".", 1)] == ["b"]
    found.replay(*schema_tombstone("b", 1))
    assert found.by_id(".", 1) == []
    assert found.id_of(content_of(schema("a", 1, 1, "s"))) is None


def test_an_id_is_not_given_again_after_its_schema_is_gone(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 5), schema_tombstone("a", 1))
    assert found.next_id(".") == 6


def test_ids_are_counted_in_each_context(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 5), schema(":.x:a", 1, 2))
    assert (found.next_id("."), found.next_id(".x"), found.next_id(".new")) == (6, 3, 1)
    assert found.by_id(".x", 5) == []
    assert found.contexts() == [".", ".x"]


def test_a_referred_version_knows_its_referrers(module: ModuleType) -> None:
    refers = schema("b", 1, 2, references=(Reference("x", "a", 1),))
    found = replayed(module, schema("a", 1, 1), refers)
    assert found.referrers(Place("a", 1)) == [refers]
    found.replay(*delete_subject_record("b", 1))
    assert found.referrers(Place("a", 1)) == []
    assert numbers(found.referrers(Place("a", 1), deleted=True)) == [1]
    found.replay(*schema_tombstone("b", 1))
    assert found.referrers(Place("a", 1), deleted=True) == []


def test_a_reference_without_a_context_stays_in_its_own(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1), schema(":.x:b", 1, 1, references=(Reference("x", "a", 1),)))
    assert found.referrers(Place("a", 1)) == []
    assert numbers(found.referrers(Place(":.x:a", 1))) == [1]


def test_a_level_is_that_of_the_subject_then_the_context_then_all(module: ModuleType) -> None:
    found = replayed(module)
    assert found.config_in_scope(":.x:a")["compatibilityLevel"] == "BACKWARD"
    for subject, level in ((None, "NONE"), (":.x:", "FULL"), (":.x:a", "FORWARD")):
        found.replay(*config_record(subject, {"compatibilityLevel": level}))
        assert found.config_in_scope(":.x:a")["compatibilityLevel"] == level
    assert found.config_in_scope("a")["compatibilityLevel"] == "NONE"
    found.replay(*config_record(":.x:a", None))
    assert found.config_in_scope(":.x:a")["compatibilityLevel"] == "FULL"


def test_an_override_of_all_beats_the_mode_of_a_subject(module: ModuleType) -> None:
    found = replayed(module, mode_record("a", "READWRITE"), mode_record(None, "READONLY"))
    assert (found.mode_in_scope("a"), found.mode_in_scope("b")) == ("READWRITE", "READONLY")
    found.replay(*mode_record(None, "READONLY_OVERRIDE"))
    assert found.mode_in_scope("a") == "READONLY_OVERRIDE"


def test_clearing_removes_only_what_was_deleted(module: ModuleType) -> None:
    found = replayed(
        module, schema("a", 1, 1), delete_subject_record("a", 1), schema("a", 2, 2), clear_subject_record("a")
    )
    assert list(found.versions("a")) == [2]


def test_a_version_that_is_missing_and_a_subject_that_is_missing_are_told_apart(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1))
    for subject, code in (("a", 40402), ("b", 40401)):
        with pytest.raises(RegistryError) as caught:
            found.version(subject, 2)
        assert caught.value.code == code


def test_a_record_that_is_none_changes_nothing(module: ModuleType) -> None:
    found = replayed(module, schema("a", 1, 1))
    good = schema_record(schema("b", 1, 2))
    for key, value in (
        (None, b"{}"),
        (b"x", b"{}"),
        (good.key, b"{}"),
        (good.key, schema_record(schema("c", 1, 2)).value),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"SOME"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b"{}"),
    ):
        with pytest.raises(BadRecord):
            found.replay(key, value)
    found.replay(b'{"keytype":"NOOP","magic":0}', None)
    found.replay(b'{"keytype":"OF_LATER","magic":0}', b"{}")
    assert found.subjects(deleted=True) == ["a"]
    assert found.config_in_scope(None) == {"compatibilityLevel": "BACKWARD"}


MISTAKES = [
    (
        "each.version <= version and not each.is_deleted",
        "not each.is_deleted",
        test_a_deleted_subject_hides_its_versions_up_to_that_one,
    ),
    (
        "self._max_ids[context] = max(self._max_ids[context], schema.id)",
        "self._max_ids[context] = len(self._places)",
        test_an_id_is_not_given_again_after_its_schema_is_gone,
    ),
    ("del self._ids[content_of(schema)]", "pass", test_a_tombstone_removes_the_id_with_its_last_version),
    (
        "if self._modes.get(None) == READONLY_OVERRIDE:",
        "if False:",
        test_an_override_of_all_beats_the_mode_of_a_subject,
    ),
    ("self._referrers[target].discard(place)", "pass", test_a_referred_version_knows_its_referrers),
    ("if schema.is_deleted:", "if True:", test_clearing_removes_only_what_was_deleted),
    (
        "(schema.subject, schema.version) != (key.subject, key.version)",
        "schema.version != key.version",
        test_a_record_that_is_none_changes_nothing,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(state, right, wrong, rule)
