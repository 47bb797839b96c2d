"""Which jars go with which PySpark: every one that is named is pinned, and what there is not is one sentence."""

from itertools import product

import pytest
from packaging.version import Version

from trioka.pipeline.installation import jars
from trioka.pipeline.installation.cache import Unavailable
from trioka.pipeline.installation.jars import RELEASES, TESTED_PYSPARK, pins_for, release_of
from trioka.pipeline.installation.repository import read_pins


def test_every_release_finds_its_jars_among_the_pins_and_no_pin_is_left_over() -> None:
    used = set()
    for release, iceberg, avro in product(RELEASES.values(), (False, True), (False, True)):
        if (release.iceberg or not iceberg) and (release.avro or not avro):
            used |= set(pins_for(release, iceberg=iceberg, avro=avro))
    assert used == set(read_pins(jars.PINS))
    assert all(len(pin.sha256) == 64 for pin in used)


def test_the_connector_is_that_of_the_pyspark_and_the_iceberg_runtime_that_of_its_line() -> None:
    for release in RELEASES.values():
        connector, *_ = pins_for(release)
        assert connector.version == release.pyspark
        if release.iceberg:
            assert f"-{release.line}_2.13" in pins_for(release, iceberg=True)[-2].artifact


def test_the_installed_pyspark_is_one_that_has_a_connector() -> None:
    assert jars.installed_pyspark() in RELEASES


def test_the_tested_pyspark_is_the_newest_of_those_that_have_everything() -> None:
    complete = [Version(release.pyspark) for release in RELEASES.values() if release.iceberg and release.avro]
    assert max(complete) == Version(TESTED_PYSPARK)


def test_a_pyspark_without_a_connector_is_told_which_ones_have_one() -> None:
    with pytest.raises(Unavailable, match=r"no Kafka connector for PySpark 4\.3\.0; .* brings 4\.1\.3, .* 4\.2\.0\.$"):
        release_of("4.3.0")


@pytest.mark.parametrize(("wanted", "named"), [({"iceberg": True}, "Iceberg runtime"), ({"avro": True}, "spark-avro")])
def test_what_a_pyspark_has_not_got_is_said(wanted: dict[str, bool], named: str) -> None:
    with pytest.raises(Unavailable, match=rf"There is no {named} for PySpark 4\.2\.0"):
        pins_for(release_of("4.2.0"), **wanted)


def test_a_wrong_word_about_the_jars_is_not_taken_for_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOKA_SPARK_JARS", "off")
    with pytest.raises(Unavailable, match="it can only be 'provided'"):
        jars.are_provided()
