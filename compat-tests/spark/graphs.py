"""Graphs under test: a specification and definition files in a test's folder, and a catalog of its own."""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark.pipelines import PipelineHarness
from trioka.pipeline import GraphPipeline

HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F
from trioka.pipeline import *
"""


@dataclass(slots=True, kw_only=True)
class GraphHarness:
    """One graph's folder, beside those of the topics' harness."""

    topics: PipelineHarness

    @property
    def folder(self) -> Path:
        return self.topics.folder

    @property
    def catalog(self) -> str:
        return "graph_" + self.folder.name.replace("-", "_")

    def write(self, definitions: str, *, sql: str = "", top: str = "") -> GraphPipeline:
        """A graph of these definitions, in which `BROKERS` stands for the broker's address."""
        brokers = f"BROKERS = {self.topics.bootstrap!r}\n"
        (self.folder / "definitions.py").write_text(HEAD + brokers + textwrap.dedent(definitions))
        files = ["definitions.py"]
        if sql:
            (self.folder / "definitions.sql").write_text(textwrap.dedent(sql))
            files.append("definitions.sql")
        (self.folder / "pipeline.toml").write_text(
            f'name = "shop"\nevery = "1 second"\ndefinitions = {files}\n{top}\n'
            f'[catalog]\nname = "{self.catalog}"\ndatabase = "shop"\nwarehouse = "warehouse"\n'
        )
        return GraphPipeline.read(self.folder)

    def run(self, definitions: str, *, sql: str = "", top: str = "") -> GraphPipeline:
        """Run a graph over everything that is there."""
        pipeline = self.write(definitions, sql=sql, top=top)
        pipeline.run(once=True, say=self.topics.said.append)
        return pipeline

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, by its files."""
        return self.topics.iceberg(table)

    def said(self, part: str) -> list[str]:
        return [line for line in self.topics.said if part in line]
