"""The style guide, executed: our own house first, then a planted violation and a near miss for every rule.

`make check` runs this file by itself, so it must stay quick and needs nothing but the working tree.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from style import repository, tidy
from style.tidy import Rule, Source

ROOT = Path(__file__).resolve().parent.parent

SOURCES = list(repository.sources(ROOT))


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def complain(violations: Iterable[str]) -> None:
    found = list(violations)
    assert not found, "\n" + "\n".join(found)


# Our own house.


@pytest.mark.parametrize("rule", tidy.RULES, ids=lambda rule: rule.__name__)
def test_our_tree_keeps_the_rule(rule: Rule) -> None:
    complain(violation for source in SOURCES for violation in rule(source))


def test_the_walk_sees_the_tree() -> None:
    seen = {source.path for source in SOURCES}
    assert {"pyproject.toml", "protocol/__init__.py", "tests/test_tidy.py", "trioka/__main__.py"} <= seen
    assert "trioka/protocol/__init__.py" not in seen  # a link's files are listed once, under the package's own name


def test_packages_links_and_wheel_map_are_the_same_list(project: dict[str, Any]) -> None:
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = repository.packages_on_disk(ROOT)
    assert packages >= tidy.PACKAGES
    complain(
        repository.packages_agree(packages, repository.links_in_package(ROOT), wheel["only-include"], wheel["sources"])
        + repository.package_files_agree(
            {source.path for source in SOURCES if source.path.startswith("trioka/")}, wheel["only-include"]
        )
    )


def test_every_package_has_its_layer(project: dict[str, Any]) -> None:
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    complain(repository.layers_hold_every_package(repository.packages_on_disk(ROOT), layers))


def test_requirements_and_pyproject_agree(project: dict[str, Any]) -> None:
    dependencies = project["project"]["dependencies"]
    spark = project["project"]["optional-dependencies"]["spark"]
    lock = text_of("requirements/dev.txt")
    requested = [*dependencies, *spark, *repository.names_in(text_of("requirements/dev.in"))]
    complain(
        repository.runtime_agrees(dependencies, text_of("requirements/runtime.in"))
        + repository.runtime_agrees(spark, text_of("requirements/spark.in"))
        + repository.pins_agree(requested, lock)
        + repository.pins_agree(project["build-system"]["requires"], lock)
    )


@pytest.mark.parametrize(
    "path",
    [
        "requirements/dev.txt",
        "requirements/run.txt",
        "requirements/release.txt",
        "pipeline/installation/java.txt",
        *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("compat-tests/spark/pyspark-*.txt")),
    ],
)
def test_requirements_are_pinned_hashed_and_name_no_address(path: str) -> None:
    complain(repository.locked_and_anonymous(path, text_of(path)))


def test_no_permission_to_import_lazily_outlives_its_use() -> None:
    by_path = {source.path: source for source in SOURCES}
    stale = [
        f"{path} no longer imports '{library}' inside a function; take it off the list."
        for path, library in tidy.LAZY_IMPORTS
        if path in by_path and library not in {name for _, name in tidy.lazy_imports(by_path[path])}
    ]
    complain(stale)


# Planted violations and near misses. Each row: the rule, a path, the wrong text, the right text. `wrong` must be
# reported at the line that ends in `#!`, or at line 1 if there is none; `right` must not be reported at all.

LONG_BODY = "".join(f"    x{number} = {number}\n" for number in range(60))
REASON = "# tidy: longer because this is one table of codes\n"

PLANTED: list[tuple[Rule, str, str, str]] = [
    (tidy.it_parses, "storage/log.py", "x = 1\ndef f(:  #!\n", "def f(): ...\n"),
    (tidy.a_function_fits_a_screen, "storage/log.py", f"\ndef f():  #!\n{LONG_BODY}", f"def f():\n{LONG_BODY[:-11]}"),
    (
        tidy.a_function_fits_a_screen,
        "storage/log.py",
        f"async def f():  #!\n{LONG_BODY}",
        f"{REASON}def f():\n{LONG_BODY}",
    ),
    (tidy.a_function_fits_a_screen, "tests/test_x.py", f"# tidy: longer\ndef f():  #!\n{LONG_BODY}", LONG_BODY),
    (
        tidy.the_own_package_is_imported_relatively,
        "storage/log.py",
        "import trioka.storage.disk",
        "from .disk import Disk",
    ),
    (
        tidy.the_own_package_is_imported_relatively,
        "storage/log.py",
        "from trioka.storage import disk",
        "import trioka.protocol",
    ),
    (
        tidy.the_own_package_is_imported_relatively,
        "storage/log.py",
        "from trioka import storage",
        "from trioka import __version__",
    ),
    (
        tidy.the_own_package_is_imported_relatively,
        "storage/log.py",
        "\nfrom ..protocol import batch  #!",
        "from . import disk",
    ),
    (
        tidy.the_own_package_is_imported_relatively,
        "storage/tier/s3.py",
        "from ...broker import x",
        "from ..disk import Disk",
    ),
    (tidy.the_own_package_is_imported_relatively, "tests/x.py", "import storage.log", "import trioka.storage.log"),
    (
        tidy.the_own_package_is_imported_relatively,
        "broker/x.py",
        "from protocol import batch",
        "from trioka.protocol import batch",
    ),
    (tidy.an_import_is_at_the_top, "broker/x.py", "def f():\n    import json  #!", "import json\ndef f(): ..."),
    (
        tidy.an_import_is_at_the_top,
        "broker/x.py",
        "def f():\n    from .y import z  #!",
        "if 1:\n    from .y import z",
    ),
    (
        tidy.an_import_is_at_the_top,
        "protocol/compression.py",
        "class A:\n  async def f(self):\n    import trio  #!",
        "def f():\n    import zstandard",
    ),
    (
        tidy.except_star_is_not_used,
        "cli/x.py",
        "try: ...  #!\nexcept* OSError: ...",
        "try: ...\nexcept ExceptionGroup: ...",
    ),
    (tidy.only_the_network_touches_sockets, "broker/x.py", "import socket", "import struct"),
    (tidy.only_the_network_touches_sockets, "broker/x.py", "from ssl import SSLContext", "from .ssl import SSLContext"),
    (tidy.only_the_network_touches_sockets, "broker/x.py", "import urllib.request", "import urllib.parse"),
    (
        tidy.only_the_network_touches_sockets,
        "broker/x.py",
        "import trio\ntrio.open_tcp_stream(1, 2)  #!",
        "import trio\ntrio.run(1)",
    ),
    (tidy.only_the_network_touches_sockets, "broker/x.py", "from trio import socket", "def socket(): ...\nsocket()"),
    (tidy.only_the_disk_opens_files, "storage/log.py", "\nopen('x')  #!", "self.disk.open('x')"),
    (tidy.only_the_disk_opens_files, "broker/x.py", "from os import rename as r", "import os\nos.getpid()"),
    (tidy.only_the_disk_opens_files, "broker/x.py", "import os\nf = os.open  #!", "import os\nos.path.join('a', 'b')"),
    (tidy.only_the_disk_opens_files, "broker/x.py", "import os\nos.path.exists(x)  #!", "import os\nx: os.PathLike"),
    (tidy.only_the_disk_opens_files, "broker/x.py", "from pathlib import Path", "from pathlib import PurePosixPath"),
    (tidy.only_the_disk_opens_files, "broker/x.py", "import pathlib\npathlib.Path.home()  #!", "path.read_text()"),
    (tidy.only_the_disk_opens_files, "storage/index.py", "from mmap import mmap", "from .disk import Buffer"),
    (tidy.only_the_disk_opens_files, "testing/node.py", "import tempfile", "from . import scratch"),
    (tidy.only_the_disk_opens_files, "storage/sync.py", "import os\nos.fdatasync(3)  #!", "file.sync()"),
    (
        tidy.pure_packages_read_no_clock,
        "storage/log.py",
        "import time\nx = time.time()  #!",
        "import time\ntime.gmtime(now)",
    ),
    (tidy.pure_packages_read_no_clock, "cluster/x.py", "from time import monotonic as now", "def f(time): time.time()"),
    (
        tidy.pure_packages_read_no_clock,
        "protocol/x.py",
        "from datetime import datetime\ndatetime.now()  #!",
        "from datetime import datetime\ndatetime.fromtimestamp(now)",
    ),
    (
        tidy.pure_packages_use_no_unseeded_random,
        "cluster/x.py",
        "import random\nrandom.random()  #!",
        "def f(random): random.random()",
    ),
    (
        tidy.pure_packages_use_no_unseeded_random,
        "cluster/x.py",
        "from random import shuffle",
        "from random import Random",
    ),
    (
        tidy.pure_packages_use_no_unseeded_random,
        "cluster/x.py",
        "from random import Random\nRandom()  #!",
        "from random import Random\nRandom(7)",
    ),
    (
        tidy.pure_packages_use_no_unseeded_random,
        "protocol/x.py",
        "import uuid\nuuid.uuid4()  #!",
        "import uuid\nuuid.UUID(int=1)",
    ),
    (tidy.pure_packages_use_no_unseeded_random, "storage/x.py", "import os\nos.urandom(4)  #!", "random.urandom(4)"),
    (tidy.pure_packages_use_no_unseeded_random, "coordinator/x.py", "import secrets", "import struct"),
    (
        tidy.only_the_entry_point_reads_argv_and_signals,
        "broker/x.py",
        "import sys\nsys.argv.copy()  #!",
        "import sys\nsys.maxsize",
    ),
    (tidy.only_the_entry_point_reads_argv_and_signals, "broker/x.py", "import signal", "from .signal import stop"),
    (tidy.only_the_entry_point_reads_argv_and_signals, "broker/x.py", "from argparse import Namespace", "args = argv"),
    (tidy.only_the_network_touches_sockets, "cli/topics/command.py", "import socket", "from .wire import Connection"),
    (
        tidy.only_the_entry_point_reads_argv_and_signals,
        "cli/topics/command.py",
        "import signal",
        "import time\ntime.time()",
    ),
    (tidy.a_package_does_not_print, "cli/topics/command.py", "print(1)", "open('x')"),
    (tidy.an_import_is_at_the_top, "cli/topics/command.py", "def f():\n    import rich  #!", "import click"),
    (tidy.pure_packages_do_not_import_trio, "protocol/x.py", "import trio", "import trioka.protocol"),
    (tidy.pure_packages_do_not_import_trio, "storage/log.py", "from trio.lowlevel import checkpoint", "trio = 3"),
    (tidy.a_package_does_not_print, "storage/log.py", "print(1)", "self.print(1)"),
    (
        tidy.a_package_does_not_print,
        "storage/log.py",
        "import sys\nsys.stderr.write('')  #!",
        "import sys\nsys.getsizeof(1)",
    ),
    (
        tidy.data_classes_come_from_lazy_dataclass,
        "storage/log.py",
        "import dataclasses\n\n\n@dataclasses.dataclass(slots=True)  #!\nclass StoredRecord: ...",
        "from dataclasses import field, replace",
    ),
    (tidy.a_module_has_a_docstring, "storage/log.py", "import os\n'''no docstring'''", "'''The log.'''"),
    (tidy.a_module_has_a_docstring, "storage/log.py", "'''  '''", "# why\n'''The log.'''"),
    (tidy.nothing_is_left_unfinished, "docs/x.md", "\n# TO" + "DO: later  #!", "TO" + "DOS and ma" + "XX" + "Xima"),
    (tidy.nothing_is_left_unfinished, "storage/x.py", "x = 1  # FIX" + "ME", "# fix me if you can"),
    (
        tidy.nothing_leaks,
        "README.md",
        "\nsee /wo" + "rk/main  #!",
        "see https://example.org/" + "work/, ./" + "work/ and network/wire",
    ),
    (tidy.nothing_leaks, "x.toml", "find = '/ro" + "ot/x'", "the root/leaf order, a root / leaf"),
    (tidy.nothing_leaks, "x.md", "cd /ho" + "me/ann", "cd ~/home/x"),
    (tidy.nothing_leaks, "x.md", "cd /t" + "mp/scratch", "log.dirs=/t" + "mp/kafka-logs"),
    (tidy.nothing_leaks, "x.md", "https://nex" + "us.example.org/simple", "the nexus of it all"),
    (tidy.nothing_leaks, "x.md", "http://pypi.build.inter" + "nal/simple", "an internal topic; http://localhost:9092"),
]


@pytest.mark.parametrize(("rule", "path", "wrong", "right"), PLANTED, ids=[row[0].__name__ for row in PLANTED])
def test_a_planted_violation_is_caught_and_a_near_miss_is_not(rule: Rule, path: str, wrong: str, right: str) -> None:
    marked = [number for number, line in enumerate(wrong.splitlines(), 1) if line.endswith("#!")] or [1]
    found = list(rule(Source(path, wrong)))
    assert [violation for violation in found if violation.startswith(f"{path}:{marked[0]}: ")], found
    complain(rule(Source(path, right)))


def test_every_rule_has_its_planted_violation() -> None:
    tested_below = {
        tidy.a_file_has_at_most_600_lines,
        tidy.a_file_is_named_after_a_noun,
        tidy.a_file_is_small_enough_to_read,
    }
    assert {rule for rule, *_ in PLANTED} | tested_below == set(tidy.RULES)


def test_a_file_of_601_lines_is_caught_and_one_of_600_is_not() -> None:
    def violations(text: str) -> list[str]:
        return list(tidy.a_file_has_at_most_600_lines(Source("storage/log.py", text)))

    assert violations("x = 1\n" * 601)
    assert not violations("x = 1\n" * 600)
    assert not violations(REASON + "x = 1\n" * 700)
    assert violations("# tidy: longer because\n" + "x = 1\n" * 700)


@pytest.mark.parametrize(
    "path", ["storage/utils.py", "broker/group_manager.py", "broker/common/x.py", "tests/helpers.py"]
)
def test_a_catch_all_module_name_is_caught(path: str) -> None:
    assert list(tidy.a_file_is_named_after_a_noun(Source(path, "")))


@pytest.mark.parametrize(
    "path", ["storage/database.py", "storage/base_offset.py", "docs/common.md", "compat-tests/x.py"]
)
def test_a_noun_that_contains_a_banned_word_is_not(path: str) -> None:
    complain(tidy.a_file_is_named_after_a_noun(Source(path, "")))


def test_a_file_of_more_than_200_kilobytes_is_caught() -> None:
    assert list(tidy.a_file_is_small_enough_to_read(Source("tests/golden/x.hex", "é" * 100_001)))
    complain(tidy.a_file_is_small_enough_to_read(Source("tests/golden/x.hex", "é" * 100_000)))
    complain(tidy.a_file_is_small_enough_to_read(Source("requirements/dev.txt", "é" * 200_000)))


@pytest.mark.parametrize(
    ("rule", "home", "text"),
    [
        (tidy.only_the_network_touches_sockets, "broker/network/server.py", "import socket"),
        (tidy.only_the_network_touches_sockets, "broker/peers/link.py", "import socket"),
        (tidy.only_the_network_touches_sockets, "broker/network/channel.py", "import socket"),
        (tidy.only_the_network_touches_sockets, "storage/disk.py", "import os\nos.sendfile(1, 2, 3, 4)"),
        (tidy.only_the_disk_opens_files, "storage/disk.py", "import mmap\nopen('x')"),
        (tidy.only_the_disk_opens_files, "testing/temp_dirs.py", "import tempfile"),
        (tidy.pure_packages_do_not_import_trio, "storage/sync.py", "import trio"),
        (tidy.pure_packages_do_not_import_trio, "broker/broker.py", "import trio"),
        (tidy.only_the_entry_point_reads_argv_and_signals, "trioka/__main__.py", "import sys\nsys.argv"),
        (
            tidy.data_classes_come_from_lazy_dataclass,
            "protocol/lazy_dataclass.py",
            "from dataclasses import make_dataclass",
        ),
        (tidy.data_classes_come_from_lazy_dataclass, "bench/log.py", "from dataclasses import dataclass"),
        (tidy.a_package_does_not_print, "trioka/__main__.py", "print(1)"),
        (tidy.a_package_does_not_print, "cli/terminal/output.py", "print(1)"),
        (tidy.only_the_network_touches_sockets, "cli/client/connection.py", "import socket"),
        (tidy.only_the_entry_point_reads_argv_and_signals, "cli/node/server.py", "import signal"),
        (tidy.pure_packages_read_no_clock, "broker/broker.py", "import time\ntime.time()"),
    ],
)
def test_what_is_banned_elsewhere_is_allowed_somewhere(rule: Rule, home: str, text: str) -> None:
    complain(rule(Source(home, text)))


# Planted mistakes in the house as a whole.

ONE_PACKAGE: dict[str, Any] = {
    "packages": {"broker"},
    "links": {"broker": "../broker"},
    "only_include": ["trioka/__init__.py", "broker"],
    "wheel_map": {"broker": "trioka/broker"},
}


@pytest.mark.parametrize(
    "mistake",
    [
        {"packages": {"broker", "cellar"}},
        {"packages": set()},
        {"links": {}},
        {"links": {"broker": "/somewhere/broker"}},
        {"only_include": ["trioka/__init__.py"]},
        {"wheel_map": {"broker": "trioka/brokers"}},
        {"wheel_map": {"broker": "trioka/broker", "cellar": "trioka/cellar"}},
    ],
)
def test_a_package_that_is_not_on_every_list_is_caught(mistake: dict[str, Any]) -> None:
    complain(repository.packages_agree(**ONE_PACKAGE))
    assert repository.packages_agree(**{**ONE_PACKAGE, **mistake})


def test_a_package_file_that_the_wheel_forgets_is_caught() -> None:
    complain(repository.package_files_agree({"trioka/py.typed"}, ["trioka/py.typed", "broker"]))
    assert repository.package_files_agree({"trioka/py.typed", "trioka/new.py"}, ["trioka/py.typed", "broker"])


def test_a_package_without_a_layer_is_caught() -> None:
    complain(repository.layers_hold_every_package({"a", "b", "c"}, ["trioka.a", "trioka.b | trioka.c"]))
    assert repository.layers_hold_every_package({"a", "cellar"}, ["trioka.a"])


def test_requirements_that_disagree_are_caught() -> None:
    complain(repository.runtime_agrees(["trio>=0.30,<1", "Python_Snappy"], "python-snappy\ntrio  # why\n"))
    assert repository.runtime_agrees(["trio", "lz4"], "trio\n")
    assert repository.runtime_agrees(["trio"], "trio\nlz4\n")


def test_a_pin_outside_of_what_was_asked_is_caught() -> None:
    complain(repository.pins_agree(["trio>=0.30,<1"], "trio==0.35.0 \\\n"))
    assert repository.pins_agree(["trio>=0.30,<1"], "trio==1.2.0 \\\n")
    assert repository.pins_agree(["lz4"], "trio==0.35.0 \\\n")


HASH = f"    --hash=sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    "line", ["--index-url https://example.org/simple", "trio", "trio @ https://example.org/trio.whl", "-e .", HASH[:-1]]
)
def test_a_requirement_with_an_address_or_without_a_pin_is_caught(line: str) -> None:
    good = f"trio==0.35.0 \\\n{HASH} \\\n{HASH}\ncffi==2.1.1 ; os_name == 'nt' \\\n{HASH}\n"
    complain(repository.locked_and_anonymous("dev.txt", good))
    assert repository.locked_and_anonymous("dev.txt", good + line)


def test_a_tree_without_git_is_walked(tmp_path: Path) -> None:
    for path in ("broker/x.py", ".venv/lib/y.py", ".mypy_cache/z.json"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("")
    assert repository.listing(tmp_path) == ["broker/x.py"]
