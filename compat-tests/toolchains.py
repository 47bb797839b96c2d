"""The toolchains of clients in other languages: Go, Node, Rust and Java, and kcat. Found on the machine; never
installed on it.

The clients themselves come from their registries, pinned with their hashes (go.sum, package-lock.json, Cargo.lock, a
SHA-256 per jar), once: programs are built into the cache folder, under a name that changes with their sources and pins.
Which registry is the user's business: it is the one that `go`, `npm` and `cargo` are set up to ask.

A toolchain that is missing raises `Unavailable`; `unavailable()` makes that a skipped test, or a failed one in CI.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import jars
import pytest
from java import java
from oracle import LOG_WARNINGS, PROGRAMS, QUICK, compiled

from trioka.pipeline.installation.cache import Unavailable, folder, locked
from trioka.pipeline.installation.repository import Pin, checked

CLIENTS = Path(__file__).parent / "clients"
BUILD_TIMEOUT_SECONDS = 1200
LOG_TAIL_CHARS = 400
OLDEST_GO = (1, 21)  # from here on, go fetches by itself the newer one that a module asks for
OLDEST_NODE = (18, 0)
OLDEST_CARGO = (1, 85)
SHELL_JARS = "shell_jars.txt"
# Kafka's broker speaks with clients from 2.1 on; this one is what Spark 3 and many a company still use.
OLD_JAVA_CLIENT = Pin(
    group="org.apache.kafka",
    artifact="kafka-clients",
    version="2.8.2",
    sha256="0351de6b808f551e4c6cf230a83984d653e14776cc0f4621e7a3eab377e2f621",
)

Command = list[str | Path]


def unavailable(missing: Unavailable) -> NoReturn:
    """Skips the test with a reason, or fails it in CI, where skip reasons go unread."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI needs every client as a judge. {missing}")
    pytest.skip(f"NOT JUDGED: {missing}")


@functools.cache
def go_program(name: str) -> Command:
    """A program of clients/go, built from its pinned modules."""
    go = _tool("go", "version", OLDEST_GO)
    home = CLIENTS / "go"
    files = [*sorted(home.rglob("*.go")), home / "go.mod", home / "go.sum"]

    def build(target: Path) -> None:
        _run([go, "build", "-mod=readonly", "-buildvcs=false", "-o", target / name, f"./{name}"], home)

    return [_built(f"{name}-{_digest(files)}", build) / name]


@functools.cache
def kafkajs() -> tuple[Command, dict[str, str]]:
    """KafkaJS from its pinned packages: a command, and the environment that it needs."""
    return _node_program("kafkajs")


@functools.cache
def node_registry() -> tuple[Command, dict[str, str]]:
    """The two clients of schema registries, likewise."""
    return _node_program("node-registry")


def _node_program(name: str) -> tuple[Command, dict[str, str]]:
    node, npm = _tool("node", "--version", OLDEST_NODE), _tool("npm", "--version", (7, 0))
    home = CLIENTS / name
    pins = [home / "package.json", home / "package-lock.json"]

    def install(target: Path) -> None:
        for pin in pins:
            shutil.copy(pin, target)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], target)

    modules = _built(f"{name}-{_digest(pins)}", install) / "node_modules"
    return [node, home / "main.js"], {**os.environ, "NODE_PATH": str(modules)}


@functools.cache
def rust_program(name: str) -> Command:
    """The program of clients/rust, built from its pinned crates."""
    cargo = _tool("cargo", "--version", OLDEST_CARGO)
    home = CLIENTS / "rust"
    pins = home / "Cargo.lock.in"  # without the address of the registry, which the machine's settings may replace
    files = [*sorted(home.glob("src/*.rs")), home / "Cargo.toml", pins]

    def build(target: Path) -> None:
        source, lock = target / "source", target / "source" / "Cargo.lock"
        shutil.copytree(home, source)
        _run([cargo, "generate-lockfile", "--quiet"], source)
        (registry,) = set(re.findall(r"(?m)^source = .*$", lock.read_text()))
        lock.write_text(pins.read_text().replace("\nchecksum = ", f"\n{registry}\nchecksum = "))
        _run([cargo, "build", "--locked", "--release", "--quiet"], source)
        (source / "target" / "release" / name).rename(target / name)
        shutil.rmtree(source)

    return [_built(f"rust-{name}-{_digest(files)}", build) / name]


@functools.cache
def azurite() -> Command:
    """Azurite's blob server from its pinned packages."""
    node, npm = _tool("node", "--version", OLDEST_NODE), _tool("npm", "--version", (7, 0))
    pins = [CLIENTS / "azurite" / "package.json", CLIENTS / "azurite" / "package-lock.json"]

    def install(target: Path) -> None:
        for pin in pins:
            shutil.copy(pin, target)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], target)

    modules = _built(f"azurite-{_digest(pins)}", install) / "node_modules"
    return [node, modules / "azurite" / "dist" / "src" / "blob" / "main.js"]


@functools.cache
def java_client(name: str = "Client", *, old: bool = False) -> Command:
    """Kafka's own client, the newest one or the old one, with the same program around it."""
    program = compiled(PROGRAMS / f"{name}.java")
    if old:
        others = [jars.jar(artifact) for artifact, pin in jars.pins().items() if pin.group != "org.apache.kafka"]
        class_path = os.pathsep.join(map(str, [program, checked(OLD_JAVA_CLIENT), *others]))
    else:
        class_path = f"{program}{os.pathsep}{jars.class_path()}"
    return [java(), *QUICK, *LOG_WARNINGS, "-cp", class_path, name]


@functools.cache
def kafka_tools(*, with_shell: bool = False) -> Command:
    """The program that runs Kafka's command-line tools one after the other; its metadata shell is a jar of its own."""
    class_path = f"{compiled(PROGRAMS / 'Tools.java')}{os.pathsep}{jars.class_path()}"
    if with_shell:
        shell = compiled(PROGRAMS / "Shell.java", SHELL_JARS)
        class_path = os.pathsep.join([class_path, str(shell), jars.class_path_with(SHELL_JARS)])
    return [java(), *QUICK, *LOG_WARNINGS, "-cp", class_path, "Tools"]


@functools.cache
def kcat() -> Path:
    """kcat as it is installed; Debian and Ubuntu have a package of this name, Homebrew too."""
    if found := shutil.which("kcat") or shutil.which("kafkacat"):
        return Path(found)
    raise Unavailable("kcat is not on the PATH (Debian, Ubuntu: apt install kcat).")


def _tool(name: str, ask: str, oldest: tuple[int, int]) -> Path:
    """A program on the PATH that reports a sufficient version."""
    wanted = ".".join(map(str, oldest))
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"{name} is not on the PATH; version {wanted} or newer is wanted.")
    try:
        message = subprocess.run([path, ask], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{name} is on the PATH and does not run ({error}).") from error
    found = re.search(r"(\d+)\.(\d+)", message)
    if found is None or (int(found[1]), int(found[2])) < oldest:
        raise Unavailable(f"{name} is too old, or no {name}: it says {message.strip()!r}; {wanted} or newer is wanted.")
    return Path(path)


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _built(name: str, build: Callable[[Path], None]) -> Path:
    """The folder of that name, built if this is the first time; a half built one never bears the name."""
    target = folder("clients") / name
    with locked(name):
        if not target.exists():
            beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=".building-"))
            try:
                build(beside)
                beside.rename(target)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return target


def _run(command: Command, where: Path) -> None:
    try:
        subprocess.run(
            list(map(str, command)),
            cwd=where,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip()[-LOG_TAIL_CHARS:]
        raise Unavailable(f"{Path(command[0]).name} could not build a client: {message}") from error
