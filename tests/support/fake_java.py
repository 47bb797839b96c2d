"""Javas that are small scripts and answer as a Java does, and a machine that cannot install one."""

from pathlib import Path

import pytest


def plant_java(home: Path, version: str, modules: str = "java.base@17") -> Path:
    """A `java` that prints its version and its home, lists modules, and repeats its arguments otherwise."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f"""#!/bin/sh
case "$*" in
    *-version) printf '    java.home = %s\\nopenjdk version "%s" 2025-04-15\\n' '{home}' '{version}' >&2 ;;
    *list-modules) echo {modules} ;;
    *) for argument do echo "$argument"; done ;;
esac
"""
    )
    program.chmod(0o755)
    return program


def install_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """An empty cache folder, and installers that must not use the network."""
    monkeypatch.setenv("TRIOKA_CACHE", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(cache / "uv"))
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
