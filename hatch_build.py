"""Compiles `protocol/_record_walk.c` when the package is built or installed, and makes the page for a package index.

Nothing depends on it: without a compiler, or with `TRIOKA_PURE=1`, the wheel is a pure one for every machine, and the
same walk is taken in Python (protocol/record_walk.py). With one, the wheel is for this platform and for every Python
from 3.11 on, since the extension uses the stable ABI only. An editable install leaves the library in the working tree,
beside its source.

An index shows README.md without the files beside it, so a link to one of them is made absolute.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = Path("protocol", "_record_walk.c")
LIBRARY = SOURCE.with_name("_record_walk.abi3.so")
FLAGS = ("-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
COMPILER_TIMEOUT_S = 120
# [text](target) and ![text](target), with a target that is neither a URL nor a heading of the page.
RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


class CompiledWalk(BuildHookInterface):  # type: ignore[misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        problem = "TRIOKA_PURE is set" if os.environ.get("TRIOKA_PURE") else compile_walk(root)
        if problem:
            (root / LIBRARY).unlink(missing_ok=True)
            self.app.display_warning(
                f"{SOURCE} is not compiled, records are checked in Python, which is slower: {problem}"
            )
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["artifacts"].append(LIBRARY.as_posix())  # git ignores it, and so would the wheel


def compile_walk(root: Path) -> str:
    """Why it could not be compiled; empty if it was."""
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return f"only CPython on Linux is supported, not {sys.implementation.name} on {sys.platform}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    include = sysconfig.get_path("include")
    command = [*compiler, *FLAGS, f"-I{include}", str(root / SOURCE), "-o", str(root / LIBRARY)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILER_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return f"{shlex.join(command)}: {done.stderr.strip()}" if done.returncode else ""


class IndexPage(MetadataHookInterface):  # type: ignore[misc]
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": page_for_an_index(text, repository)}


def page_for_an_index(text: str, repository: str | None) -> str:
    """The page with absolute links; without the address of a repository, a link is its text and a picture is gone."""

    def link(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return RELATIVE_LINK.sub(link, text)
