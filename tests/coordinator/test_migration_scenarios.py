"""Groups change their protocol while they work: consumers of both kinds join, leave and time out."""

import pytest
from support.migration_steps import STEPS, MigrationWorld
from support.scenarios import check, files


@pytest.mark.parametrize("name", files("migration"))
def test_responses_to_members_of_a_changing_group(name: str) -> None:
    check(name, STEPS, MigrationWorld())
