"""A packed graph: what is in it, and that the same files give the same bytes."""

import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from trioka.pipeline.pipeline_commands import pipeline


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name in (
        "pipeline.toml",
        "definitions/orders.py",
        "definitions/totals.sql",
        "prices/__init__.py",
        "prices/euro.py",
        "tests/case/in/orders.jsonl",
        "checkpoints/shop/lock",
        "warehouse/data.py",
        ".git/hook.py",
        "notes.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "pipeline.toml").write_text('name = "shop"\ndefinitions = ["definitions/**"]\n')
    return folder


def test_a_package_has_the_definitions_and_the_modules_beside_them_and_nothing_that_runs_write(
    shop: Path, tmp_path: Path
) -> None:
    packages = [tmp_path / "first.zip", tmp_path / "second.zip"]
    for package in packages:
        found = CliRunner().invoke(pipeline, ["package", str(shop), "-o", str(package)])
        assert found.exit_code == 0, found.output
    assert zipfile.ZipFile(packages[0]).namelist() == [
        "definitions/orders.py",
        "definitions/totals.sql",
        "pipeline.toml",
        "prices/__init__.py",
        "prices/euro.py",
    ]
    assert packages[0].read_bytes() == packages[1].read_bytes()


def test_the_short_form_and_a_target_that_cannot_be_written_are_refused(shop: Path, tmp_path: Path) -> None:
    short = tmp_path / "orders.toml"
    short.write_text('name = "orders"\n')
    for file, target, sentence in (
        (short, tmp_path / "a.zip", "has no Python to pack"),
        (shop, tmp_path / "missing" / "a.zip", "cannot be packed: No such file or directory"),
    ):
        found = CliRunner().invoke(pipeline, ["package", str(file), "-o", str(target)])
        assert found.exit_code == 2
        assert sentence in found.output
