"""Registering, looking up and deleting: decisions on a state, and the records that they add."""

from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.gateway.registry import changes, register
from trioka.gateway.registry.errors import RegistryError
from trioka.gateway.registry.records import Record, Reference, mode_record
from trioka.gateway.registry.register import Registered, SchemaRequest
from trioka.gateway.registry.state import LATEST, RegistryState

DEFAULT = ',"default":0'


def record_of(*fields: str, name: str = "Order") -> str:
    """The text of an Avro record whose fields are ints; `x?` has a default."""
    declared = ",".join(
        f'{{"name":"{each.rstrip("?")}","type":"int"{DEFAULT if each.endswith("?") else ""}}}' for each in fields
    )
    return f'{{"type":"record","name":"{name}","fields":[{declared}]}}'


class Registry:
    """A state, and what is done to it."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.state = RegistryState()

    def apply(self, records: tuple[Record, ...]) -> None:
        for each in records:
            self.state.replay(*each)

    def register(self, subject: str, text: str, *references: Reference, **more: Any) -> tuple[int, int]:
        """Its version and its id."""
        request = SchemaRequest(text, references=references, **more)
        done: Registered = self.module.register(self.state, subject, request)
        self.apply(done.records)
        return done.schema.version, done.schema.id

    def change(self, name: str, *arguments: Any, **more: Any) -> Any:
        module = self.module if hasattr(self.module, name) else changes
        done = getattr(module, name)(self.state, *arguments, **more)
        self.apply(done.records)
        return done.body

    def refused(self, code: int, do: Any, *arguments: Any, **more: Any) -> str:
        with pytest.raises(RegistryError) as caught:
            do(*arguments, **more)
        assert caught.value.code == code
        assert caught.value.message[0].isupper()
        return caught.value.message


@pytest.fixture
def module() -> ModuleType:
    return register


def test_the_same_schema_has_one_version_and_one_id(module: ModuleType) -> None:
    registry = Registry(module)
    assert registry.register("a", record_of("x")) == (1, 1)
    assert registry.register("a", record_of("x").replace(",", ", ")) == (1, 1)
    assert registry.register("b", record_of("x")) == (1, 1)
    assert registry.register("b", record_of("x", "y?")) == (2, 2)


def test_each_context_counts_its_own_ids(module: ModuleType) -> None:
    registry = Registry(module)
    registry.register("a", record_of("x"))
    assert registry.register(":.other:a", record_of("y")) == (1, 1)
    assert registry.state.contexts() == [".", ".other"]


def test_an_incompatible_schema_is_refused_by_the_level_of_its_subject(module: ModuleType) -> None:
    registry = Registry(module)
    registry.register("a", record_of("x"))
    message = registry.refused(409, registry.register, "a", record_of("x", "y"))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    registry.change("set_config", "a", {"compatibility": "none"})
    assert registry.register("a", record_of("x", "y")) == (2, 2)


def test_backward_asks_the_new_reader_and_forward_the_old_one(module: ModuleType) -> None:
    for level, fields, code in (("BACKWARD", ("x", "y"), 409), ("FORWARD", ("x", "y"), None), ("FORWARD", (), 409)):
        registry = Registry(module)
        registry.change("set_config", None, {"compatibility": level})
        registry.register("a", record_of("x"))
        if code is None:
            registry.register("a", record_of(*fields))
        else:
            registry.refused(code, registry.register, "a", record_of(*fields))


def test_full_asks_both(module: ModuleType) -> None:
    registry = Registry(module)
    registry.change("set_config", None, {"compatibility": "FULL"})
    registry.register("a", record_of("x"))
    registry.refused(409, registry.register, "a", record_of("x", "y"))
    registry.refused(409, registry.register, "a", record_of())
    registry.register("a", record_of("x", "y?"))


def test_a_transitive_level_asks_every_version(module: ModuleType) -> None:
    for level, code in (("BACKWARD", None), ("BACKWARD_TRANSITIVE", 409)):
        registry = Registry(module)
        registry.change("set_config", None, {"compatibility": level})
        registry.register("a", record_of("x"))
        registry.register("a", record_of("x", "y?"))
        if code is None:
            registry.register("a", record_of("x", "y"))
        else:
            message = registry.refused(code, registry.register, "a", record_of("x", "y"))
            assert "version 1" in message


def test_the_type_of_a_subject_cannot_change(module: ModuleType) -> None:
    registry = Registry(module)
    registry.register("a", record_of("x"))
    registry.refused(409, registry.register, "a", '{"type":"object"}', schema_type="JSON")


def test_a_read_only_subject_takes_nothing_and_loses_nothing(module: ModuleType) -> None:
    registry = Registry(module)
    registry.register("a", record_of("x"))
    registry.change("set_mode", "a", "readonly", force=False)
    registry.refused(42205, registry.register, "a", record_of("x", "y?"))
    registry.refused(42205, registry.change, "delete_subject", "a", permanent=False)
    registry.refused(42205, registry.change, "delete_version", "a", 1, permanent=False)
    registry.register("b", record_of("x"))


def test_ids_are_brought_along_only_while_importing(module: ModuleType) -> None:
    registry = Registry(module)
    registry.refused(42205, registry.register, "a", record_of("x"), id=7)
    registry.change("set_mode", None, "IMPORT", force=False)
    registry.refused(42205, registry.register, "a", record_of("x"))
    assert registry.register("a", record_of("x"), id=7, version=3) == (3, 7)
    assert registry.register("a", record_of("y"), id=8, version=9) == (9, 8)  # no compatibility is asked
    registry.refused(42205, registry.register, "b", record_of("z"), id=7)
    registry.change("set_mode", None, "READWRITE", force=False)
    assert registry.register("b", record_of("z")) == (1, 9)


def test_importing_needs_an_empty_registry_or_force(module: ModuleType) -> None:
    registry = Registry(module)
    registry.register("a", record_of("x"))
    registry.refused(42205, registry.change, "set_mode", None, "IMPORT", force=False)
    registry.change("delete_subject", "a", permanent=False)
    registry.change("set_mode", None, "IMPORT", force=False)
    assert registry.state.subjects(deleted=True) == []


def test_a_reference_must_exist_and_keeps_its_target(module: ModuleType) -> None:
    registry = Registry(module)
    text = '{"type":"record","name":"B","fields":[{"name":"o","type":"Order"}]}'
    reference = Reference("Order", "a", 1)
    registry.refused(42201, registry.register, "b", text)
    registry.refused(42201, registry.register, "b", text, reference)
    registry.register("a", record_of("x"))
    assert registry.register("b", text, reference) == (1, 2)
    registry.refused(42206, registry.change, "delete_version", "a", 1, permanent=False)
    registry.refused(42206, registry.change, "delete_subject", "a", permanent=False)
    registry.change("delete_subject", "b", permanent=False)
    registry.change("delete_subject", "a", permanent=False)
    registry.refused(42206, registry.change, "delete_subject", "a", permanent=True)


def test_a_soft_deleted_schema_comes_back_with_its_id_as_a_new_version(module: ModuleType) -> None:
    registry = Registry(module)
    registry.register("a", record_of("x"))
    registry.change("delete_subject", "a", permanent=False)
    assert registry.register("a", record_of("x")) == (2, 1)
    assert list(registry.state.versions("a")) == [2]


def test_normalisation_makes_other_spellings_the_same(module: ModuleType) -> None:
    registry = Registry(module)
    one, other = (
        '{"type":"record","name":"A","fields":[],"b":1,"a":2}',
        '{"type":"record","name":"A","fields":[],"a":2,"b":1}',
    )
    registry.register("a", one)
    assert registry.register("a", other) == (2, 2)
    registry.change("set_config", None, {"normalize": True})
    assert registry.register("b", one) == registry.register("b", other)


def test_a_schema_that_no_record_can_hold_is_refused(module: ModuleType) -> None:
    registry = Registry(module)
    registry.refused(42209, registry.register, "a", record_of("x").replace("Order", "O" * 1_000_001))


def test_a_version_can_only_be_the_next_one(module: ModuleType) -> None:
    registry = Registry(module)
    registry.refused(42201, registry.register, "a", record_of("x"), version=5)
    assert registry.register("a", record_of("x"), version=1) == (1, 1)


def test_lookups_tell_a_missing_subject_from_a_missing_schema(module: ModuleType) -> None:
    registry = Registry(module)
    request = SchemaRequest(record_of("x"))
    registry.refused(40401, module.lookup, registry.state, "a", request)
    registry.register("a", record_of("y"))
    registry.refused(40403, module.lookup, registry.state, "a", request)
    registry.change("set_config", None, {"compatibility": "NONE"})
    registry.register("a", record_of("x"))
    assert module.lookup(registry.state, "a", request).version == 2


# -- deletions, levels, modes ------------------------------------------------------------------------------------------


@pytest.fixture
def change_module() -> ModuleType:
    return changes


def test_a_permanent_deletion_needs_a_soft_one_before(change_module: ModuleType) -> None:
    registry = Registry(change_module)
    registry.module = register
    registry.register("a", record_of("x"))
    registry.register("a", record_of("x", "y?"))
    registry.module = change_module
    registry.refused(40405, registry.change, "delete_subject", "a", permanent=True)
    registry.refused(40407, registry.change, "delete_version", "a", 1, permanent=True)
    assert registry.change("delete_version", "a", 1, permanent=False) == 1
    registry.refused(40406, registry.change, "delete_version", "a", 1, permanent=False)
    assert registry.change("delete_version", "a", 1, permanent=True) == 1
    registry.refused(40402, registry.change, "delete_version", "a", 1, permanent=True)
    assert registry.change("delete_subject", "a", permanent=False) == [2]
    registry.refused(40404, registry.change, "delete_subject", "a", permanent=False)
    assert registry.change("delete_subject", "a", permanent=True) == [2]
    registry.refused(40401, registry.change, "delete_subject", "a", permanent=True)
    registry.refused(40401, registry.change, "delete_version", "a", LATEST, permanent=False)


def test_level_and_mode_go_with_the_last_version(change_module: ModuleType) -> None:
    registry = Registry(register)
    registry.register("a", record_of("x"))
    registry.module = change_module
    registry.change("set_config", "a", {"compatibility": "FULL"})
    registry.change("set_mode", "a", "READWRITE", force=False)
    registry.change("delete_subject", "a", permanent=False)
    assert registry.change("delete_subject", "a", permanent=True) == [1]
    assert (registry.state.config("a"), registry.state.mode("a")) == (None, None)


def test_levels_are_checked_and_kept_field_by_field(change_module: ModuleType) -> None:
    registry = Registry(change_module)
    for bad in ({}, {"compatibility": "SOME"}, {"compatibility": 5}):
        registry.refused(42203, registry.change, "set_config", "a", bad)
    registry.refused(422, registry.change, "set_config", "a", {"compatibility": "FULL", "defaultRuleSet": {}})
    registry.change("set_config", "a", {"compatibility": "FULL"})
    registry.change("set_config", "a", {"normalize": True})
    assert registry.state.config("a") == {"normalize": True, "compatibilityLevel": "FULL"}
    registry.refused(40408, change_module.get_config, registry.state, "b", default_to_global=False)
    assert change_module.get_config(registry.state, "b", default_to_global=True)["compatibilityLevel"] == "BACKWARD"
    assert registry.change("delete_config", "a")["compatibilityLevel"] == "FULL"
    registry.refused(40408, registry.change, "delete_config", "a")


def test_modes_are_checked(change_module: ModuleType) -> None:
    registry = Registry(change_module)
    for bad in (None, "SOME", 5):
        registry.refused(42204, registry.change, "set_mode", "a", bad, force=False)
    registry.refused(42204, registry.change, "set_mode", "a", "READONLY_OVERRIDE", force=False)
    registry.refused(40409, change_module.get_mode, registry.state, "a", default_to_global=False)
    registry.apply((mode_record(None, "READONLY"),))
    registry.refused(42205, registry.change, "set_config", None, {"compatibility": "FULL"})
    assert registry.change("set_mode", None, "READWRITE", force=False) == {"mode": "READWRITE"}


MISTAKES = [
    (
        register,
        "earlier if is_transitive else earlier[-1:]",
        "earlier[-1:]",
        test_a_transitive_level_asks_every_version,
    ),
    (register, 'if kind in ("FORWARD", "FULL"):', 'if kind in ("FORWARD",):', test_full_asks_both),
    (
        register,
        "made.unreadable(each)",
        "each.unreadable(made)",
        test_backward_asks_the_new_reader_and_forward_the_old_one,
    ),
    (
        register,
        "request.id if request.id is not None else state.id_of(content)",
        "request.id",
        test_the_same_schema_has_one_version_and_one_id,
    ),
    (
        register,
        "holders and content_of(holders[0]) != content",
        "False",
        test_ids_are_brought_along_only_while_importing,
    ),
    (register, "if stored.schema_type != schema_type:", "if False:", test_the_type_of_a_subject_cannot_change),
    (register, "if target is None:", "if False:", test_a_reference_must_exist_and_keeps_its_target),
    (changes, "if any(other.subject != subject for other in referrers):", "if False:", None),
    (
        changes,
        "if not schema.is_deleted and permanent:",
        "if False:",
        test_a_permanent_deletion_needs_a_soft_one_before,
    ),
    (changes, "if permanent and live:", "if False:", test_a_permanent_deletion_needs_a_soft_one_before),
    (changes, "if state.mode(subject) is not None:", "if False:", test_level_and_mode_go_with_the_last_version),
    (changes, "mode == READONLY_OVERRIDE and subject is not None", "False", test_modes_are_checked),
]


def _referrers_are_kept(module: ModuleType) -> None:
    registry = Registry(register)
    registry.register("a", record_of("x"))
    text = '{"type":"record","name":"B","fields":[{"name":"o","type":"Order"}]}'
    registry.register("b", text, Reference("Order", "a", 1))
    registry.module = module
    registry.refused(42206, registry.change, "delete_subject", "a", permanent=False)


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule | None) -> None:
    assert_noticed(module, right, wrong, rule or _referrers_are_kept)
