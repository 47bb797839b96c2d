"""What Spark is told before it starts. No JVM runs here; the compat tests have one."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from trioka.pipeline.runner.session import Prepared, decide, iceberg_settings, is_local, sink_options, source_options

JARS = [Path("/cache/a.jar"), Path("/cache/b.jar")]


def decided(master: str = "local[*]", files: Sequence[Path] = (), **settings: str) -> Prepared:
    given = {f"spark.{key.replace('_', '.')}": value for key, value in settings.items()}
    return decide(master=master, java_home=Path("/jvm"), files=files, settings=given)


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", True), ("local[*]", True), ("local[2]", True), ("spark://a:7077", False), ("localhost", False)],
)
def test_what_runs_on_this_machine_is_told_by_the_master(master: str, expected: bool) -> None:
    assert is_local(master) is expected


def test_a_local_spark_stays_on_the_loopback_and_takes_this_python() -> None:
    prepared = decided()
    assert prepared.settings["spark.driver.host"] == "127.0.0.1"
    assert prepared.environment == {
        "JAVA_HOME": "/jvm",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
    }


def test_another_master_is_told_nothing_about_this_machine_but_where_the_driver_is() -> None:
    prepared = decided("spark://far:7077")
    assert not [key for key in prepared.settings if key.startswith("spark.driver.")]
    assert prepared.environment == {"JAVA_HOME": "/jvm", "PYSPARK_DRIVER_PYTHON": sys.executable}


def test_our_jars_come_before_those_of_the_user() -> None:
    assert decided(files=JARS, jars="mine.jar").settings["spark.jars"] == "/cache/a.jar,/cache/b.jar,mine.jar"
    assert decided(files=JARS).settings["spark.jars"] == "/cache/a.jar,/cache/b.jar"


def test_without_jars_of_ours_those_of_the_user_stay_as_they_are() -> None:
    assert "spark.jars" not in decided().settings
    assert decided(jars="mine.jar").settings["spark.jars"] == "mine.jar"


def test_the_users_settings_win() -> None:
    assert decided(driver_host="10.0.0.1").settings["spark.driver.host"] == "10.0.0.1"


def test_iceberg_keeps_its_catalog_in_the_warehouse(tmp_path: Path) -> None:
    settings = iceberg_settings(tmp_path / "tables", "lake")
    assert settings["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{tmp_path}/tables/catalog.db"
    assert settings["spark.sql.catalog.lake.warehouse"] == f"{tmp_path}/tables"


def test_options_of_a_source_are_fast_and_the_users_win() -> None:
    options = source_options("a:1", subscribe="orders", **{"kafka.max.poll.records": "7"})
    assert options["kafka.bootstrap.servers"] == "a:1"
    assert options["subscribe"] == "orders"
    assert options["kafka.max.poll.records"] == "7"
    assert options["kafka.fetch.max.bytes"] == str(64 << 20)
    assert sink_options("a:1", topic="t") == {"kafka.bootstrap.servers": "a:1", "topic": "t"}
