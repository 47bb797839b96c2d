"""Python source that is written by Python: lines with their depth, names for constants, and the way to a function."""

import linecache
from typing import Any


class Source:
    """A function in the making."""

    def __init__(self, **scope: Any) -> None:
        self.scope: dict[str, Any] = scope
        self.depth = 1
        self._lines: list[str] = []
        self._names = 0

    def __call__(self, line: str) -> None:
        self._lines.append("    " * self.depth + line)

    def name(self, stem: str) -> str:
        """A name that nothing else in this function has."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A name under which the function finds `value`. The same value, by identity, keeps one name."""
        for known, held in self.scope.items():
            if held is value and known.startswith(stem):
                return known
        name = self.name(f"{stem}_")
        self.scope[name] = value
        return name

    def function(self, signature: str, filename: str) -> Any:
        """Compiles the lines as the body of `def <signature>:` and keeps them where tracebacks and debuggers look."""
        text = f"def {signature}:\n" + "\n".join(self._lines) + "\n"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        return self.scope[signature.partition("(")[0]]
