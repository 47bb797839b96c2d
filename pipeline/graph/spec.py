"""The specification of a graph: its name, definition files, catalog and checkpoint.

A TOML file with the key `definitions`, a `spark-pipeline.yml` of `spark-pipelines`, or one definition file (`.py`,
`.sql`) with defaults for all else. Paths are relative to the file.

    name = "shop"
    definitions = ["definitions/**"]      # files and folders, `**` for a folder with all below it
    every = "10 seconds"
    checkpoint = "checkpoints/shop"
    on_failure = "stop"                   # or continue: flows that do not depend on the failed one go on
    on_unknown_rows = "stop"              # or append: tables may hold rows of another origin

    [catalog]
    name = "trioka"
    database = "shop"
    warehouse = "warehouse"               # or properties of Iceberg's Spark catalog

    [configuration]                       # settings of Spark
    "spark.sql.shuffle.partitions" = "4"
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from trioka.protocol.lazy_dataclass import frozen

from ..declaration.toml_reader import MAX_FILE_BYTES, PIPELINE_NAME
from ..declaration.toml_section import Problems, Section
from ..errors import InvalidPipeline

MAX_FILES = 1000
DEFAULT_CATALOG = "trioka"
DEFAULT_DATABASE = "default"
DEFAULT_EVERY = "10 seconds"
SUFFIXES = (".py", ".sql")
SPEC_NAMES = ("pipeline.toml", "spark-pipeline.yml", "spark-pipeline.yaml")
SPEC_SUFFIXES = (".yml", ".yaml")


@frozen
class GraphSpec:
    """`settings` are Spark's, the catalog's among them."""

    name: str
    folder: Path
    files: tuple[Path, ...]
    checkpoint: str
    every: str
    catalog: str
    database: str
    warehouse: str | None
    settings: Mapping[str, str]
    on_failure: Literal["stop", "continue"] = "stop"
    takes_unknown_rows: bool = False


def is_graph(path: Path) -> bool:
    """Whether a file or folder defines a graph; otherwise it is the short form, one source and one sink."""
    if path.is_dir() or path.suffix in (*SUFFIXES, *SPEC_SUFFIXES):
        return True
    try:
        return path.suffix == ".toml" and "definitions" in tomllib.loads(path.read_text())
    except (OSError, ValueError):
        return False  # the reader of the short form reports it


def read_spec(path: Path) -> GraphSpec:
    """The specification; `InvalidPipeline` lists everything that is wrong with it."""
    if path.is_dir():
        found = [path / name for name in SPEC_NAMES if (path / name).exists()]
        if not found:
            raise InvalidPipeline(f"{path} has none of {', '.join(SPEC_NAMES)}.")
        path = found[0]
    if path.suffix in SUFFIXES:
        values: Mapping[str, Any] = {"name": path.stem, "definitions": [path.name]}
        return _spec(values, path.parent.absolute(), "")
    try:
        content = path.read_bytes()
        if len(content) > MAX_FILE_BYTES:
            raise InvalidPipeline(f"{path} has {len(content)} bytes; a pipeline's file has at most {MAX_FILE_BYTES}.")
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        raise InvalidPipeline(f"{path} cannot be read: {reason}.") from None
    try:
        values = _from_yaml(path, text) if path.suffix in SPEC_SUFFIXES else tomllib.loads(text)
        return _spec(values, path.parent.absolute(), text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPipeline(f"{path} is not TOML: {error}.") from None
    except InvalidPipeline as wrong:
        raise InvalidPipeline([f"{path}: {problem}" for problem in wrong.problems]) from None


def _from_yaml(path: Path, text: str) -> Mapping[str, Any]:
    """The keys of `spark-pipelines` under the names that they have here."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidPipeline(f"it is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values, dict):
        raise InvalidPipeline("it must be a mapping with name, storage and libraries.")
    globs = [
        one["glob"]["include"]
        for one in values.pop("libraries", None) or []
        if isinstance(one, dict) and isinstance(one.get("glob"), dict) and "include" in one["glob"]
    ]
    catalog = {"name": values.pop("catalog", None), "database": values.pop("database", values.pop("schema", None))}
    storage = values.pop("storage", None)
    if isinstance(storage, str):
        values["checkpoint"] = storage.removeprefix("file://")
    return {**values, "definitions": globs, "catalog": {key: one for key, one in catalog.items() if one is not None}}


def _spec(values: Mapping[str, Any], folder: Path, text: str) -> GraphSpec:
    problems = Problems(text)
    top = Section(values, "", problems)
    name = top.needed_text("name", '"shop"')
    if name != "?" and not PIPELINE_NAME.fullmatch(name):
        top.add("name", f"'{name}' must be letters, digits, '.', '_' and '-', at most 200.")
    catalog = top.section("catalog")
    catalog_name = catalog.text("name") or DEFAULT_CATALOG
    settings = top.table_of_texts("configuration")
    properties = catalog.table_of_texts("properties")
    is_configured = bool(properties) or f"spark.sql.catalog.{catalog_name}" in settings
    warehouse = catalog.text("warehouse") or (None if is_configured else "warehouse")
    made = GraphSpec(
        name=name,
        folder=folder,
        files=_files(top, folder),
        checkpoint=_path(top.text("checkpoint") or f"checkpoints/{name}", folder),
        every=top.interval("every", DEFAULT_EVERY) or DEFAULT_EVERY,
        catalog=catalog_name,
        database=catalog.text("database") or DEFAULT_DATABASE,
        warehouse=None if warehouse is None else _path(warehouse, folder),
        settings={
            **{f"spark.sql.catalog.{catalog_name}.{key}": value for key, value in properties.items()},
            **settings,
        },
        on_failure="continue" if top.choice("on_failure", ("stop", "continue"), "stop") == "continue" else "stop",
        takes_unknown_rows=top.choice("on_unknown_rows", ("stop", "append"), "stop") == "append",
    )
    catalog.unread()
    top.unread()
    if problems.found:
        raise InvalidPipeline(problems.found)
    return made


def _files(top: Section, folder: Path) -> tuple[Path, ...]:
    found: dict[Path, None] = {}
    for pattern in top.texts("definitions"):
        there = [one for one in _matching(folder, pattern) if one.suffix in SUFFIXES]
        if not there:
            top.add("definitions", f"no file with the suffix .py or .sql is at '{pattern}'.")
        found |= dict.fromkeys(there)
    if not top.values.get("definitions"):
        top.add("definitions", "is missing; for example definitions = ['definitions/**'].")
    if len(found) > MAX_FILES:
        top.add("definitions", f"{len(found)} files match, and at most {MAX_FILES} are read.")
    return tuple(sorted(found))


def _matching(folder: Path, pattern: str) -> list[Path]:
    if (folder / pattern).is_file():
        return [folder / pattern]
    pattern = f"{pattern}/**" if (folder / pattern).is_dir() else pattern
    try:
        # `**` alone matches folders only in older versions of Python.
        matched = list(folder.glob(f"{pattern}/*" if pattern.endswith("**") else pattern))
    except (ValueError, NotImplementedError):  # an absolute pattern, or an empty one
        return []
    return [one for one in matched if one.is_file()]


def _path(text: str, folder: Path) -> str:
    return text if ":/" in text else str((folder / text).absolute())
