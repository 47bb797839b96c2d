"""What tests of pipelines share: for each file of tests one broker, and for all one JVM with one session."""

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from trioka_process import TriokaProcess

from spark.pipelines import PipelineHarness, SharedJvm


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriokaProcess]:
    with TriokaProcess(tmp_path_factory.mktemp("trioka")) as process:
        yield process


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    shared = SharedJvm(tmp_path_factory.mktemp("warehouse"))
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def spark(apache_kafka: None, jvm: SharedJvm) -> SparkSession:
    return jvm.session()


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topic(numbers: Iterator[int]) -> str:
    return f"records-{next(numbers)}"


@pytest.fixture
def workshop(spark: SparkSession, broker: TriokaProcess, tmp_path: Path) -> PipelineHarness:
    return PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap)
