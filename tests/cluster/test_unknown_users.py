"""What users that do not exist get for a salt and iterations: nothing that distinguishes them from others, as far
as that is possible without a record of its own.
"""

from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed, within

from trioka.cluster.image import security_image
from trioka.protocol.internal_records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord

CLUSTER, KEY = "a cluster", b"key of all nodes"


@pytest.fixture
def module() -> ModuleType:
    return security_image


def credential(name: str, mechanism: int = 1, *, iterations: int = 4096, key: str = "") -> UserScramCredentialRecord:
    stored = f"{key or name} {mechanism}".encode()
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"salt", stored_key=stored, server_key=b"server", iterations=iterations
    )


def image(module: ModuleType, *records: UserScramCredentialRecord) -> Any:
    made = module.SecurityImage()
    for record in records:
        made.replay_scram(record)
    return made


def test_with_a_secret_key_the_secret_never_changes(module: ModuleType) -> None:
    secrets = {
        image(module, *(credential(name) for name in names)).scram_secret(CLUSTER, KEY) for names in ("", "a", "abc")
    }
    assert len(secrets) == 1
    assert secrets != {image(module).scram_secret("another cluster", KEY)} != {image(module).scram_secret(CLUSTER, b"")}
    assert image(module).scram_secret(CLUSTER, b"another key") not in secrets


def test_without_a_secret_key_it_is_made_of_two_users(module: ModuleType) -> None:
    """A user with two credentials, one for each mechanism, still knows only one of two."""
    names = [f"user {number}" for number in range(50)]
    whole = image(module, *(credential(name, mechanism) for name in names for mechanism in (1, 2)))
    secret = whole.scram_secret(CLUSTER, b"")
    assert secret == whole.copy().scram_secret(CLUSTER, b"")
    backwards = image(module, *(credential(name, mechanism) for name in reversed(names) for mechanism in (2, 1)))
    assert backwards.scram_secret(CLUSTER, b"") == secret, "the order of records does not matter"
    changing = set()
    for name in names:
        for mechanism in (1, 2):
            changed = whole.copy()
            changed.replay_scram(credential(name, mechanism, key="another password"))
            if changed.scram_secret(CLUSTER, b"") != secret:
                changing.add((name, mechanism))
    of_the_secret = {name for name, mechanism in changing if (name, 3 - mechanism) in changing}
    assert len(of_the_secret) == 2 and len(changing) < 15


def test_a_user_that_is_gone_has_no_part_in_the_secret(module: ModuleType) -> None:
    before = image(module, credential("ann"))
    after = image(module, credential("ann"), credential("ben"), credential("ben", 2))
    for mechanism in (1, 2):
        assert after.scram_secret(CLUSTER, b"") != before.scram_secret(CLUSTER, b"")
        after.replay_scram_removal(RemoveUserScramCredentialRecord(name="ben", mechanism=mechanism))
    assert after.scram_secret(CLUSTER, b"") == before.scram_secret(CLUSTER, b"")
    assert after == before


def test_iterations_are_those_of_most_credentials_of_the_mechanism(module: ModuleType) -> None:
    found = image(module)
    assert found.usual_iterations(1) == 4096
    for number, (mechanism, iterations) in enumerate([(1, 8192), (1, 8192), (1, 5000), (2, 5000), (2, 16384)]):
        found.replay_scram(credential(f"user {number}", mechanism, iterations=iterations))
    for each in (found, found.copy()):
        assert (each.usual_iterations(1), each.usual_iterations(2)) == (8192, 5000)
    found.replay_scram(credential("user 0", 1, iterations=6000))  # changed: 6000, 8192, 5000
    assert found.usual_iterations(1) == 5000
    for number in (1, 2):
        found.replay_scram_removal(RemoveUserScramCredentialRecord(name=f"user {number}", mechanism=1))
    assert found.usual_iterations(1) == 6000


MISTAKES = [
    ("if secret_key:", "if False:", test_with_a_secret_key_the_secret_never_changes),
    ("nsmallest(2, self._user_digests.values())", "self._user_digests.values()",
     test_without_a_secret_key_it_is_made_of_two_users),
    ("nsmallest(2, self._user_digests.values())", "nsmallest(1, self._user_digests.values())",
     test_without_a_secret_key_it_is_made_of_two_users),
    (within("SecurityImage._digest_user", "self._two_digests = None"), "pass",
     test_a_user_that_is_gone_has_no_part_in_the_secret),
    ("self._user_digests.pop(name, None)", "pass", test_a_user_that_is_gone_has_no_part_in_the_secret),
    ("self._iterations[mechanism, known.iterations] -= 1", "pass",
     test_iterations_are_those_of_most_credentials_of_the_mechanism),
    ("access._iterations.update(self._iterations)", "pass",
     test_iterations_are_those_of_most_credentials_of_the_mechanism),
    ("access._user_digests.update(self._user_digests)", "pass", test_without_a_secret_key_it_is_made_of_two_users),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(security_image, right, wrong, rule)
