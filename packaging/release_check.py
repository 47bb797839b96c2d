"""Builds wheel and source archive, and checks what users would install: `make release-check`.

For each Python from 3.11 to 3.13 that is found, wheel and archive are installed into new environments with the pinned
runtime requirements. There the tutorial's first steps are taken: a broker, a record in, the same record out. Then a
project that pins kafka-python below 3 runs its tests with the fixtures of the wheel (`old_client_project.py`). The
metadata is checked by twine, the runtime requirements are audited for known vulnerabilities by pip-audit, and
cyclonedx-py writes a bill of materials. pip-audit needs its database on the network; `--offline` leaves it out.

Everything is in `dist/`; the exit code is 1 if a check failed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
RUNTIME: Final = ROOT / "requirements" / "run.txt"
TOOLS: Final = ROOT / "requirements" / "release.txt"
FIXTURES: Final = ROOT / "requirements" / "fixtures.txt"
PROJECT: Final = ROOT / "packaging" / "old_client_project.py"
PYTHONS: Final = ("3.11", "3.12", "3.13")
TIMEOUT_S: Final = 600
STEPS: Final = "echo hello | trioka produce orders && trioka consume orders -e"


class CheckFailed(Exception):
    """The message has the command and its output."""


def run(command: Sequence[object], *, stdin: str | None = None, stderr: int = subprocess.PIPE, **settings: str) -> str:
    """The standard output. `settings` are environment variables."""
    found = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, **settings},
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=TIMEOUT_S,
    )
    if found.returncode:
        said = f"{found.stdout}{found.stderr or ''}"
        raise CheckFailed(f"{' '.join(map(str, command))} ended with {found.returncode}\n{said}")
    return found.stdout


def pythons() -> Iterator[tuple[str, str]]:
    """Version and program of each supported Python on the PATH, or among those of pyenv."""
    for version in PYTHONS:
        pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
        for program in (shutil.which(f"python{version}"), *map(str, reversed(pyenv))):
            if program is not None and _works(program, version):
                yield version, program
                break
        else:
            print(f"skipped  Python {version} was not found")


def _works(program: str, version: str) -> bool:
    asked = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([program, "-c", asked], capture_output=True, text=True)
    return found.returncode == 0 and found.stdout.strip() == version


def tools(folder: Path, requirements: Path = TOOLS) -> Path:
    """The folder of the programs that check, in an environment of their own."""
    venv.create(folder, with_pip=True)
    run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", requirements])
    return folder / "bin"


def build(bin: Path) -> list[Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    run([bin / "python", "-m", "build", "--no-isolation", "--outdir", DIST])
    return sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])


def installs(program: str, built: Path, folder: Path) -> None:
    run([program, "-m", "venv", folder])
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "-r", RUNTIME])  # with hatchling, which builds the archive
    run([*pip, "--no-deps", "--no-build-isolation", built])
    run([folder / "bin/python", "-m", "pip", "check"])
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    out = run([folder / "bin/trioka", "run", "--", "sh", "-c", STEPS], PATH=path, PYTHONPATH="")
    if out != "hello\n":
        raise CheckFailed(f"produce and consume printed {out!r}")
    if built.suffix == ".whl":
        run([*pip, "--require-hashes", "-r", FIXTURES])
        run([folder / "bin/python", "-m", "pip", "check"])
        test = shutil.copy(PROJECT, folder / "test_project.py")  # outside of this working tree, as a user's project
        run([folder / "bin/python", "-m", "pytest", "-q", "--rootdir", folder, "-c", os.devnull, test], PYTHONPATH="")


def checks(
    bin: Path, built: Sequence[Path], folder: Path, *, is_offline: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "metadata (twine)", lambda: run([bin / "twine", "check", "--strict", *built])
    if not is_offline:
        audit = [bin / "pip-audit", "--require-hashes", "--disable-pip", "-r", RUNTIME]
        yield "known vulnerabilities (pip-audit)", lambda: run(audit)
    sbom = [bin / "cyclonedx-py", "requirements", RUNTIME, "--output-file", DIST / "sbom.cdx.json"]
    yield "bill of materials (cyclonedx-py)", lambda: run(sbom)
    for version, program in pythons():
        for each in built:
            kind = "wheel" if each.suffix == ".whl" else "archive"
            place = folder / f"{version}-{kind}"
            yield f"{kind} on Python {version}", partial(installs, program, each, place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offline", action="store_true", help="without pip-audit")
    text = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trioka-release-") as folder:
        bin = tools(Path(folder) / "tools")
        built = build(bin)
        for each in built:
            print(f"built    {each.relative_to(ROOT)}, {each.stat().st_size // 1024} KB", flush=True)
        for name, check in checks(bin, built, Path(folder), is_offline=text.offline):
            try:
                check()
            except (CheckFailed, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED   {name}: {error}", flush=True)
            else:
                print(f"passed   {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
