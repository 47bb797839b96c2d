"""Which tests are marked `mutation`, `simulation` and `process`: the rules on small files, then on ours."""

from pathlib import Path
from types import CodeType

import pytest
from style.kinds import ROOT, kinds

CLEAN = "import trioka.storage.log\n"


def code_of(text: str) -> CodeType:
    space: dict[str, object] = {}
    exec(text, space)
    code = getattr(space["test"], "__code__", None)
    assert isinstance(code, CodeType)
    return code


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("test_a_planted_mistake_is_noticed", "def test(): ...", ["mutation"]),
        ("test_x", "def test(): assert_noticed(m, 'a', 'b', rule)", ["mutation"]),
        ("test_x", "def test():\n    def inner(): return planted(m, 'a', 'b')\n    inner()", ["mutation"]),
        ("test_x_and_a_planted_mistake", "def test(): ...", []),
        ("test_a_mistake_of_the_caller", "def test(): raise ValueError('planted')", []),
    ],
)
def test_a_mutation_is_known_by_name_or_by_its_calls(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(CLEAN)
    assert kinds(file, name, code_of(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CLEAN, []),
        ("from simulation.raft_world import RaftWorld", ["simulation"]),
        ("def test_x():\n    from mutants import catalog", ["simulation"]),
        ("from trioka.protocol import record_walk", []),
        ("import simulation_of_mine", []),
        ("import subprocess", ["process"]),
        ("from multiprocessing.pool import Pool", ["process"]),
        ("from chaos.nodes import Nodes", ["process"]),
        ("from . import subprocess", []),
    ],
)
def test_simulations_and_processes_are_known_by_imports(tmp_path: Path, text: str, found: list[str]) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(text)
    assert kinds(file, "test_x", None) == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("tests/simulation/test_raft_world.py", ["simulation"]),
        ("tests/coordinator/test_classic_walk.py", ["simulation"]),
        ("tests/storage/test_log.py", []),
        ("tests/cluster/replication/test_leader_state.py", []),
        ("tests/test_packaging.py", ["process"]),
        ("compat-tests/test_cli.py", ["process"]),
    ],
)
def test_our_own_files_have_the_markers_that_they_should(path: str, found: list[str]) -> None:
    assert kinds(ROOT / path, "test_x", None) == found
