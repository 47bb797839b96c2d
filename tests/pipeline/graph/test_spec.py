"""Specifications of graphs: all mistakes at once, and the files of spark-pipelines."""

from pathlib import Path

import pytest

from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.graph.spec import is_graph, read_spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "definitions" / "deep").mkdir(parents=True)
    for name in ("a.py", "deep/b.sql", "notes.txt"):
        (tmp_path / "definitions" / name).write_text("")
    return tmp_path


def test_definitions_are_found_in_folders_and_defaults_are_filled_in(folder: Path) -> None:
    (folder / "pipeline.toml").write_text('name = "shop"\ndefinitions = ["definitions/**"]\n')
    spec = read_spec(folder)
    assert [one.name for one in spec.files] == ["a.py", "b.sql"]
    assert (spec.catalog, spec.database, spec.every, spec.on_failure) == ("trioka", "default", "10 seconds", "stop")
    assert (spec.warehouse, spec.checkpoint) == (str(folder / "warehouse"), str(folder / "checkpoints/shop"))


def test_a_specification_of_spark_pipelines_is_read(folder: Path) -> None:
    (folder / "spark-pipeline.yml").write_text(
        "name: shop\nstorage: file:///srv/storage\ncatalog: lake\ndatabase: shop\n"
        "libraries:\n  - glob:\n      include: definitions/**\n"
        "configuration:\n  spark.sql.catalog.lake: x\n"
    )
    spec = read_spec(folder)
    assert (spec.catalog, spec.database, spec.checkpoint) == ("lake", "shop", "/srv/storage")
    assert spec.warehouse is None  # the catalog is configured by settings
    assert len(spec.files) == 2


def test_one_definition_file_is_a_graph(folder: Path) -> None:
    assert read_spec(folder / "definitions" / "a.py").name == "a"


def test_all_mistakes_are_reported_at_once_with_their_lines(folder: Path) -> None:
    file = folder / "pipeline.toml"
    file.write_text('name = "a b"\ndefinitions = ["none/**"]\nevery = "soon"\non_failure = "go on"\nwat = 1\n')
    with pytest.raises(InvalidPipeline) as raised:
        read_spec(file)
    assert [problem.removeprefix(f"{file}: ").split(": ")[:2] for problem in raised.value.problems] == [
        ["line 1", "name"],
        ["line 2", "definitions"],
        ["line 3", "every"],
        ["line 4", "on_failure"],
        ["line 5", "wat"],
    ]


@pytest.mark.parametrize("text", ["[", "a: [", "- 1"])
def test_files_that_cannot_be_parsed_are_one_sentence(folder: Path, text: str) -> None:
    for name in ("pipeline.toml", "spark-pipeline.yml"):
        (folder / name).write_text(text)
        with pytest.raises(InvalidPipeline):
            read_spec(folder / name)


def test_the_short_form_is_no_graph(folder: Path) -> None:
    short = folder / "orders.toml"
    short.write_text('name = "orders"\n[source]\ntopics = ["orders"]\n')
    assert not is_graph(short)
    assert is_graph(folder)
    assert not is_graph(folder / "missing.toml")
