"""The rules about the repository as a whole, and the one function that reads it.

Each rule takes what it compares (names, link targets, tables of pyproject.toml, the text of a requirements file) and
returns what is wrong, as sentences. The tests of the rules hand in small wrong houses; `test_tidy.py` hands in ours.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from style.tidy import Source

# Folders that hold Python with an `__init__.py` and are still not part of the package.
NOT_PACKAGES: Mapping[str, str] = {
    "trioka": "it is the package itself, not a package in it",
    "tests": "tests stay in the repository",
    "bench": "benchmarks stay in the repository",
    "compat-tests": "tests stay in the repository",
}

# Written by protoc; tests/gateway/test_proto.py compares it with what protoc would write.
GENERATED = "gateway/v1/"

# Left alone by the walk that stands in where there is no git.
NOT_OURS = frozenset({".git", ".venv", "__pycache__", "build", "dist"})


def listing(root: Path) -> list[str]:
    """Every file that is or could be committed. Git knows what it ignores; an unpacked archive is simply walked."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        requested = subprocess.run(command, capture_output=True, text=True)
        if requested.returncode == 0:
            return sorted(set(requested.stdout.split("\0")) - {""})
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_OURS and not name.endswith(("_cache", ".hypothesis"))]
        found += [(Path(folder) / name).relative_to(root).as_posix() for name in files]
    return sorted(found)


def sources(root: Path) -> Iterator[Source]:
    """The files, without generated ones and links: what a link points to is listed under its own name."""
    for path in listing(root):
        file = root / path
        if file.is_file() and not file.is_symlink() and not path.startswith(GENERATED):
            yield Source(path, file.read_bytes().decode("utf-8", "surrogateescape"))


def packages_on_disk(root: Path) -> set[str]:
    return {file.parent.name for file in root.glob("*/__init__.py")} - set(NOT_PACKAGES)


def links_in_package(root: Path) -> dict[str, str]:
    return {entry.name: os.readlink(entry) for entry in (root / "trioka").iterdir() if entry.is_symlink()}


def packages_agree(
    packages: set[str], links: Mapping[str, str], only_include: Iterable[str], wheel_map: Mapping[str, str]
) -> list[str]:
    """A package stands at the root, is linked into the package, goes into the wheel, and is mapped there."""
    wrong = []
    included = {path for path in only_include if not path.startswith("trioka/")}
    for package in sorted(packages | set(links) | included | set(wheel_map)):
        if package not in packages:
            wrong.append(f"there is no package '{package}' at the root, with an __init__.py.")
        if links.get(package) != f"../{package}":
            wrong.append(f"trioka/{package} should be a link to ../{package}, and is {links.get(package)}.")
        if package not in included:
            wrong.append(f"only-include of the wheel does not name '{package}'.")
        if wheel_map.get(package) != f"trioka/{package}":
            wrong.append(f"the wheel map has {wheel_map.get(package)} for '{package}', not 'trioka/{package}'.")
    return wrong


def package_files_agree(files: set[str], only_include: Iterable[str]) -> list[str]:
    """What stands in trioka/ itself goes into the wheel file by file, so a forgotten one would be missing there."""
    included = {path for path in only_include if path.startswith("trioka/")}
    return [
        f"{path} should stand both in the tree and in only-include of the wheel." for path in sorted(files ^ included)
    ]


def layers_hold_every_package(packages: set[str], layers: Iterable[str]) -> list[str]:
    layered = {name.strip().removeprefix("trioka.") for layer in layers for name in re.split(r"[|:]", layer)}
    return [f"the layers of import-linter do not place '{package}'." for package in sorted(packages - layered)]


def names_in(requirements: str) -> set[str]:
    """The distributions that a requirements file asks for itself, without those of files it refers to."""
    lines = (line.split("#")[0].strip() for line in requirements.splitlines())
    return {str(canonicalize_name(Requirement(line).name)) for line in lines if line and not line.startswith("-")}


def runtime_agrees(dependencies: Iterable[str], runtime_in: str) -> list[str]:
    declared = {str(canonicalize_name(Requirement(text).name)) for text in dependencies}
    return [
        f"'{name}' should stand both in pyproject.toml and in the requirements that go with it."
        for name in sorted(declared ^ names_in(runtime_in))
    ]


def pins(lock: str) -> dict[str, Version]:
    """Name and version of each pinned distribution; the markers behind `;` say where, not which."""
    found = re.finditer(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock, re.M)
    return {str(canonicalize_name(match[1])): Version(match[2]) for match in found}


def pins_agree(requested: Iterable[str], lock: str) -> list[str]:
    """What is asked for (`trio>=0.30`, `pytest`) is pinned, and pinned within what was asked."""
    pinned = pins(lock)
    wrong = []
    for requirement in map(Requirement, requested):
        version = pinned.get(str(canonicalize_name(requirement.name)))
        if version is None:
            wrong.append(f"'{requirement.name}' is not pinned: run make lock.")
        elif version not in requirement.specifier:
            wrong.append(f"'{requirement.name}' is pinned to {version}, outside of {requirement.specifier}.")
    return wrong


def locked_and_anonymous(path: str, lock: str) -> list[str]:
    """Each line is a pin, a hash or a comment: no address, no option, nothing that names where it was made."""
    wrong = []
    for number, line in enumerate(lock.splitlines(), 1):
        if not re.fullmatch(r"(#.*|\S+==\S+( ; .+?)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?|)", line):
            wrong.append(f"{path}:{number}: neither a pin nor a hash: {line.strip()[:60]}")
        elif "://" in line:
            wrong.append(f"{path}:{number}: a requirements file holds no address.")
    return wrong
