"""The tests of this folder with every other line of PySpark that has a Kafka connector, each in its own environment.

    python compat-tests/spark/versions.py            4.2.0, then 4.0.4
    python compat-tests/spark/versions.py 4.2.0      one of them; further arguments go to pytest

An environment holds that PySpark alone, pinned with its hashes beside this file; everything else is lent by the
environment that runs this program. It stays in the cache folder, four hundred megabytes each.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from trioka.pipeline.installation.cache import folder, locked
from trioka.pipeline.installation.java import installer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSIONS = ("4.2.0", "4.0.4")


def environment(version: str) -> Path:
    """The Python of an environment with that PySpark, made if this is the first time."""
    pins = HERE / f"pyspark-{version}.txt"
    digest = hashlib.sha256(pins.read_bytes() + sys.executable.encode()).hexdigest()[:12]
    home = folder("pyspark") / f"{version}-{digest}"
    with locked(home.name):
        if not home.exists():
            print(f"making an environment with PySpark {version}", file=sys.stderr, flush=True)
            _make(home, pins)
    return home / "bin" / "python"


def _make(home: Path, pins: Path) -> None:
    beside = Path(tempfile.mkdtemp(dir=home.parent, prefix=".making-"))
    try:
        venv.create(beside, symlinks=True, with_pip=False)
        (libraries,) = (beside / "lib").glob("python3*/site-packages")
        subprocess.run([*installer(), "--target", libraries, "--require-hashes", "-r", pins], check=True)
        # Behind the environment's own libraries, so that its PySpark is the one that is found.
        (libraries / "lent.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        beside.rename(home)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def run(version: str, arguments: Sequence[str]) -> int:
    python = environment(version)
    result = {**os.environ, "TRIOKA_PYSPARK": version}
    command: list[str | Path] = [python, "-m", "pytest", "-q", *arguments, HERE / "test_spark.py"]
    return subprocess.run(command, cwd=ROOT, env=result, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    chosen = [argument for argument in arguments if argument in VERSIONS]
    rest = [argument for argument in arguments if argument not in VERSIONS]
    failed = [version for version in chosen or VERSIONS if run(version, rest) != 0]
    print(f"failed with PySpark {', '.join(failed)}" if failed else "passed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
