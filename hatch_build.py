"""Compiles `protocol/_record_walk.c` when the package is built or installed, where there is a C compiler.

Nothing depends on it: without a compiler, or with `TRIOKA_PURE=1`, the wheel is a pure one for every machine, and the
same walk is taken in Python (protocol/record_walk.py). With one, the wheel is for this platform and for every Python
from 3.11 on, since the extension uses the stable ABI only. An editable install leaves the library in the working tree,
beside its source.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("protocol", "_record_walk.c")
LIBRARY = SOURCE.with_name("_record_walk.abi3.so")
FLAGS = ("-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
COMPILER_TIMEOUT_S = 120


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
