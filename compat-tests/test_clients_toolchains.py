"""What the clients of other languages come from: pinned, checked, from nowhere in particular, and loudly missed."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import toolchains
from toolchains import CLIENTS

from trioka.pipeline.installation.cache import Unavailable

Skipped, Failed = pytest.skip.Exception, pytest.fail.Exception


@pytest.mark.parametrize(("ci", "outcome"), [("", Skipped), ("1", Failed), ("true", Failed)])
def test_a_missing_client_is_a_skipped_test_and_in_ci_a_failed_one(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="go is not on the PATH"):
        toolchains.unavailable(Unavailable("go is not on the PATH."))


@pytest.mark.parametrize("name", ["go", "node", "kcat"])
def test_a_tool_that_is_nowhere_is_one_clear_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    find: dict[str, Callable[[], object]] = {
        "go": lambda: toolchains.go_program.__wrapped__("franz"),
        "node": toolchains.kafkajs.__wrapped__,
        "kcat": toolchains.kcat.__wrapped__,
    }
    with pytest.raises(Unavailable, match=rf"^{name} is not on the PATH.*\.$"):
        find[name]()


@pytest.mark.parametrize(
    ("said", "is_enough"), [("v18.0.1", True), ("v20.2.0", True), ("v16.20.2", False), ("", False)]
)
def test_a_tool_that_is_too_old_is_not_taken(
    said: str, is_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "node"
    tool.write_text(f"#!/bin/sh\necho '{said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if is_enough:
        assert toolchains._tool("node", "--version", (18, 0)) == tool
    else:
        with pytest.raises(Unavailable, match=r"^node is too old"):
            toolchains._tool("node", "--version", (18, 0))


def test_every_package_has_its_hash_and_no_address() -> None:
    home = CLIENTS / "kafkajs"
    lock = json.loads((home / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "resolved" not in (home / "package-lock.json").read_text()
    requested = json.loads((home / "package.json").read_text())["dependencies"]
    assert requested == {name: packages[f"node_modules/{name}"]["version"] for name in requested}


def test_every_go_module_has_its_hash() -> None:
    home = CLIENTS / "go"
    requested = re.findall(r"^\t(\S+) (v\S+)", (home / "go.mod").read_text(), re.MULTILINE)
    sums = (home / "go.sum").read_text()
    assert len(requested) > 2
    for module, version in requested:
        assert f"{module} {version} h1:" in sums, module


def test_a_half_built_client_never_bears_the_name_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIOKA_CACHE", str(tmp_path))

    def half(target: Path) -> None:
        (target / "half").touch()
        raise Unavailable("The registry hung up.")

    with pytest.raises(Unavailable):
        toolchains._built("thing", half)
    assert list((tmp_path / "clients").iterdir()) == []
    assert (toolchains._built("thing", lambda target: (target / "whole").touch()) / "whole").exists()
    assert (toolchains._built("thing", half) / "whole").exists()  # built once
