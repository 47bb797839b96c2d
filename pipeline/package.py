"""Packs a graph for a cluster: its specification, its definitions and the modules beside them, as one zip file.

    trioka pipeline package shop/ -o shop.zip
    trioka spark submit --py-files shop.zip …

Workers import modules from it (`--py-files`, `addPyFile`); a run with a master that is not local sends it by itself.
The same files give the same bytes, whenever they are packed.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from .errors import InvalidPipeline
from .graph.spec import GraphSpec

SUFFIXES = (".py", ".sql", ".toml", ".yml", ".yaml")
LEFT_OUT = ("tests", "checkpoints", "warehouse", "__pycache__", "venv")
MAX_FILES = 10_000
MAX_BYTES = 64 << 20
FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say


def packed_files(spec: GraphSpec) -> list[Path]:
    """The files of a package, relative to the folder of the specification."""
    found = sorted({*_beside(spec.folder), *(file.relative_to(spec.folder) for file in spec.files)})
    size = sum((spec.folder / file).stat().st_size for file in found)
    if len(found) > MAX_FILES or size > MAX_BYTES:
        raise InvalidPipeline(
            f"{spec.folder} has {len(found)} files with {size} bytes to pack; at most {MAX_FILES} files and "
            f"{MAX_BYTES} bytes are. Move the pipeline into a folder of its own."
        )
    return found


def write_package(spec: GraphSpec, target: Path) -> int:
    """Write the package; returns the number of its files."""
    files = packed_files(spec)
    try:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as package:
            for file in files:
                entry = zipfile.ZipInfo(file.as_posix(), FIRST_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                package.writestr(entry, (spec.folder / file).read_bytes())
    except OSError as error:
        raise InvalidPipeline(f"{error.filename or target} cannot be packed: {error.strerror}.") from None
    return len(files)


def _beside(folder: Path) -> Iterator[Path]:
    """Python, SQL and specifications in a folder and below, without hidden ones and those that runs write."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in LEFT_OUT or path.is_symlink():
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            yield from (Path(path.name) / below for below in _beside(path))
        elif path.is_file() and path.suffix in SUFFIXES:
            yield Path(path.name)
