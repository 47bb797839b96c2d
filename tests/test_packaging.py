"""What others install is what stands here: the wheel, the archive, the editable install, and the tools that watch them.

Nothing here asks the network. The wheel is built with the hatchling of this environment and goes into a clean one with
`--no-index`; the libraries it needs at run time are lent by a path file that names our site-packages. Python does not
read the path files of a folder that came in through a path file, so our own editable install stays out of sight, and
the tests say so again by asking where `trioka` came from.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from style import repository

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(repository.packages_on_disk(ROOT))
sys.path.append(str(ROOT))
hatch_build: Any = import_module("hatch_build")
LIBRARIES = sysconfig.get_path("purelib")

# Import everything there is under `trioka`, and tell where it came from.
IMPORT_ALL = """
import importlib, json, pkgutil, trioka
names = [name for _, name, _ in pkgutil.walk_packages(trioka.__path__, "trioka.") if name != "trioka.__main__"]
print(json.dumps({name: importlib.import_module(name).__file__ for name in ["trioka", "trioka.__main__", *names]}))
"""


def run(*command: str | Path, cwd: Path, ok: bool = True) -> str:
    """The output of the command; its failure fails the test, unless it is expected."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.returncode == 0) == ok, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


COMPILED = "trioka.protocol._record_walk"  # where there is a compiler; nothing depends on it


def modules_in_tree() -> set[str]:
    """The modules that a complete installation has, by their full names, but for what is compiled."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    parts = [file.relative_to(ROOT).with_suffix("").parts for file in files if "__pycache__" not in file.parts]
    named = {".".join(("trioka", *(part for part in path if part != "__init__"))) for path in parts}
    return named | {"trioka", "trioka.__main__"}


def copy_of_the_tree(place: Path) -> Path:
    """What is in the repository, links as links, without the virtual environment and the caches."""
    for path in repository.listing(ROOT):
        if (ROOT / path).exists():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, place / path, follow_symlinks=False)
    return place


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel built from the tree (`direct/`), the archive, and the wheel built from it (`archive/`).

    Built from a copy, so that a file which changes meanwhile cannot make the two wheels differ.
    """
    place = tmp_path_factory.mktemp("built")
    tree = copy_of_the_tree(place / "tree")
    build = (sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", tree)
    run(*build, "--wheel", "--outdir", place / "direct", cwd=place)
    run(*build, "--outdir", place / "archive", cwd=place)  # neither --sdist nor --wheel: the wheel is made of the sdist
    return place


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a clean environment that holds the wheel, and nothing else of ours."""
    place = tmp_path_factory.mktemp("installed")
    has_pip = find_spec("ensurepip") is not None  # some distributions leave it out; then it was uv that made ours
    venv.create(place / "env", with_pip=has_pip, symlinks=True)
    python = place / "env" / "bin" / "python"
    install: Sequence[str | Path] = (
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if has_pip
        else ["uv", "pip", "install", "--quiet", "--python", python]
    )
    run(*install, "--no-deps", "--no-index", wheel_in(built / "archive"), cwd=place)
    (libraries,) = (place / "env" / "lib").glob("python3*/site-packages")
    (libraries / "lent.pth").write_text(f"{LIBRARIES}\n")
    return place / "env" / "bin"


def test_the_wheel_holds_the_packages_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel_in(built / "direct")) as wheel:
        names = wheel.namelist()
        links = [entry.filename for entry in wheel.infolist() if (entry.external_attr >> 16) & 0o170000 == 0o120000]
    inside = {name for name in names if not name.startswith("trioka-")}
    assert not links
    assert "trioka/py.typed" in inside
    assert {name.split("/")[0] for name in inside} == {"trioka"}
    assert {name.split("/")[1] for name in inside if name.count("/") > 1} == set(PACKAGES)
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in inside if name.endswith(".py")
    }
    assert modules == modules_in_tree()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_page_for_an_index_has_no_link_that_needs_the_files_beside_it(built: Path) -> None:
    with zipfile.ZipFile(wheel_in(built / "archive")) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    page = metadata.get_payload()
    assert isinstance(page, str) and page.startswith("# trioka\n")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert not hatch_build.RELATIVE_LINK.findall(page)


def test_a_link_of_the_page_for_an_index_is_absolute_or_plain_text() -> None:
    page = "[a](docs/A.md#b) ![p](docs/p.svg) [c](#c) [d](https://example.org/d)"
    kept = "[c](#c) [d](https://example.org/d)"
    assert hatch_build.page_for_an_index(page, None) == f"a  {kept}"
    absolute = "[a](https://example.org/t/blob/HEAD/docs/A.md#b) ![p](https://example.org/t/raw/HEAD/docs/p.svg)"
    assert hatch_build.page_for_an_index(page, "https://example.org/t") == f"{absolute} {kept}"


def test_the_archive_makes_the_same_wheel(built: Path) -> None:
    def content(wheel: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(wheel) as file:
            return {name: file.read(name) for name in file.namelist()}

    assert content(wheel_in(built / "direct")) == content(wheel_in(built / "archive"))


def test_the_wheel_holds_the_compiled_walk_where_there_is_a_compiler(built: Path, installed: Path) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    assert "-cp311-abi3-" in wheel_in(built / "direct").name
    requested = "from trioka.protocol.record_walk import IS_COMPILED; print(IS_COMPILED)"
    assert run(installed / "python", "-I", "-c", requested, cwd=installed) == "True\n"


@pytest.mark.parametrize(("name", "value"), [("TRIOKA_PURE", "1"), ("CC", "no-such-compiler"), ("CC", "false")])
def test_without_a_compiler_the_wheel_is_a_pure_one_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Even where an earlier build left its library in the tree."""
    tree = copy_of_the_tree(tmp_path / "tree")
    (tree / "protocol" / "_record_walk.abi3.so").write_bytes(b"of another machine")
    monkeypatch.setenv(name, value)
    build = (sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", tree, "--wheel")
    assert "records are checked in Python" in run(*build, "--outdir", tmp_path, cwd=tmp_path)
    wheel = wheel_in(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as file:
        assert not [name for name in file.namelist() if name.endswith(".so")]
        file.extractall(tmp_path / "unpacked")
    requested = f"""
import sys
sys.path.insert(0, {str(tmp_path / "unpacked")!r})
from trioka.protocol.record_walk import IS_COMPILED, walk
print(IS_COMPILED, walk(bytes.fromhex("0c000000010100"), 0, 7, 1, 5))
"""
    assert run(sys.executable, "-I", "-c", requested, cwd=tmp_path) == "False (5, 5, 1)\n"


def test_the_archive_holds_no_links_that_an_unpacker_could_break(built: Path) -> None:
    (archive,) = (built / "archive").glob("*.tar.gz")
    with tarfile.open(archive) as file:
        assert not [entry.name for entry in file if entry.issym() or entry.islnk()]


def test_every_module_of_every_package_imports_from_the_installed_wheel(installed: Path) -> None:
    # -I: neither the folder we stand in nor PYTHONPATH helps. Warnings are errors here as everywhere, but for two that
    # kafka-python gives when it is imported.
    old_ways = [f"-Wignore:{name} is deprecated:DeprecationWarning" for name in ("read_text", "open_text")]
    warnings = ("-Werror", *old_ways)
    text = run(installed / "python", "-I", *warnings, "-c", IMPORT_ALL, cwd=installed)
    found: dict[str, str] = json.loads(text.splitlines()[-1])
    assert set(found) - {COMPILED} == modules_in_tree()
    strangers = [file for file in found.values() if not Path(file).is_relative_to(installed.parent)]
    assert not strangers


def test_the_installed_command_says_its_version_and_its_help_and_serves(installed: Path) -> None:
    version = run(installed / "python", "-I", "-c", "import trioka; print(trioka.__version__)", cwd=installed).strip()
    assert run(installed / "trioka", "--version", cwd=installed).startswith(f"trioka {version}, Python 3.")
    assert run(installed / "trioka", "--help", cwd=installed).startswith("Usage: trioka")
    assert "has no command 'nonsense'" in run(installed / "trioka", "nonsense", cwd=installed, ok=False)
    with subprocess.Popen([installed / "trioka", "dev", "--port", "0"], stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(f"trioka {version} · ready in ")
        broker.terminate()
    assert broker.returncode == 0


def test_the_editable_install_is_the_working_tree(tmp_path: Path) -> None:
    text = run(sys.executable, "-I", "-c", IMPORT_ALL, cwd=tmp_path)
    found: dict[str, str] = json.loads(text.splitlines()[-1])
    assert {package for package in PACKAGES if f"trioka.{package}" not in found} == set()
    for name, file in found.items():
        assert Path(file).is_relative_to(ROOT), f"{name} comes from {file}"
        assert Path(os.path.realpath(file)).is_relative_to(ROOT)
    assert os.path.realpath(found["trioka.storage"]) == str(ROOT / "storage" / "__init__.py")


def tool(name: str) -> str:
    """A command of the environment that runs this test, whether or not it is on the PATH."""
    return str(Path(sys.executable).parent / name)


@pytest.mark.parametrize(
    "command",
    [
        "ruff check",
        "ruff format --check",
        "mypy --strict",
        "mypy --strict tests",
        "mypy --strict compat-tests",
        "lint-imports",
    ],
)
def test_our_tree_passes_the_tools(command: str) -> None:
    name, *arguments = command.split()
    run(tool(name), *arguments, cwd=ROOT)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_the_tree(tmp_path_factory.mktemp("scratch"))


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("protocol/planted.py", "import trioka.storage", "Layers of trioka"),
        ("storage/planted.py", "from trioka.broker import __doc__ as broker", "Layers of trioka"),
        ("cluster/planted.py", "import trioka.coordinator", "Layers of trioka"),
        ("coordinator/planted.py", "import trioka.storage", "The coordinator does not import storage"),
        ("protocol/planted.py", "import trio", "State machines do not import trio"),
        ("pipeline/planted.py", "import trioka.storage", "The pipeline uses only the Kafka protocol"),
        ("cli/planted.py", "import trioka.broker", "The command line uses only the Kafka protocol"),
    ],
)
def test_import_linter_catches_a_planted_import(scratch: Path, path: str, line: str, contract: str) -> None:
    linter = (tool("lint-imports"), "--no-cache")
    assert "0 broken" in run(*linter, cwd=scratch)
    planted = scratch / path
    planted.write_text(f'"""A planted mistake."""\n\n{line}\n')
    try:
        text = run(*linter, cwd=scratch, ok=False)
    finally:
        planted.unlink()
    assert f"{contract} BROKEN" in text


@pytest.fixture
def small_package(tmp_path: Path) -> Path:
    """Our pyproject over a package of one package with one function, for tools that take long over the whole tree."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("trioka", "protocol", "tests", "compat-tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "trioka" / "protocol").symlink_to("../protocol")
    for folder in ("trioka", "protocol"):
        (tmp_path / folder / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "protocol" / "planted.py").write_text(
        '"""A noun."""\n\n\ndef double(x: int) -> int:\n    return 2 * x\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("mypy --strict", "def double(x):\n    return 2 * x\n"),
        ("mypy --strict", "def double(x: int) -> bytes:\n    return 2 * x\n"),
        ("ruff check", "def double(x: int) -> int:\n    unused = 3\n    return 2 * x\n"),
        ("ruff format --check", "def double( x: int ) -> int:\n    return 2 * x\n"),
    ],
)
def test_mypy_and_ruff_see_into_a_package_and_catch_a_planted_mistake(
    small_package: Path, command: str, mistake: str
) -> None:
    name, *arguments = command.split()
    run(tool(name), *arguments, cwd=small_package)
    # The mistakes differ in length from the right text: within one second mypy's cache tells files apart by size alone.
    (small_package / "protocol" / "planted.py").write_text(f'"""A noun."""\n\n\n{mistake}')
    assert "planted.py" in run(tool(name), *arguments, cwd=small_package, ok=False)
