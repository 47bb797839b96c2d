"""Long chains of references: each schema refers to the one before it."""

import pytest

from trioka.gateway.registry.errors import InvalidSchema
from trioka.gateway.registry.records import Reference, StoredSchema, schema_record
from trioka.gateway.registry.register import MAX_REFERENCES, SchemaRequest, dependencies_of, register
from trioka.gateway.registry.state import RegistryState


def chain(length: int) -> RegistryState:
    state = RegistryState()
    for number in range(1, length + 1):
        references = (Reference(f"r{number - 1}", f"s{number - 1}", 1),) if number > 1 else ()
        schema = StoredSchema(subject=f"s{number}", version=1, id=number, text='"int"', references=references)
        state.replay(*schema_record(schema))
    return state


def test_a_chain_of_references_is_followed_to_its_limit_and_then_refused() -> None:
    request = SchemaRequest('"int"', references=(Reference("last", f"s{MAX_REFERENCES}", 1),))
    state = chain(MAX_REFERENCES)
    found = dependencies_of(state, "new", request.references)
    assert [each.name for each in found] == [*(f"r{number}" for number in range(1, MAX_REFERENCES)), "last"]
    assert register(state, "new", request).schema.version == 1
    longer = (Reference("last", f"s{MAX_REFERENCES + 1}", 1),)
    with pytest.raises(InvalidSchema, match="more than"):
        dependencies_of(chain(MAX_REFERENCES + 1), "new", longer)
