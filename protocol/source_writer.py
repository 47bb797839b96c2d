"""Python source that is written by Python: lines with their depth, names for constants, and the way to a function."""

import linecache
from typing import Any

from .errors import ProtocolError


def refuse(problem: str = "", *numbers: int) -> None:
    raise ProtocolError(problem.format(*numbers))


class Source:
    """A function in the making. Only a careful one reports why it refuses its input; see `codec.py`."""

    def __init__(self, is_careful: bool, **scope: Any) -> None:
        self._is_diagnostic = is_careful
        self.scope: dict[str, Any] = {"refuse": refuse, "ProtocolError": ProtocolError, **scope}
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

    def refusal(self, problem: str, *numbers: str) -> str:
        """A call that ends the function. Quick functions have no message, which saves a sixth of the compilation."""
        return f"refuse({', '.join([repr(problem), *numbers])})" if self._is_diagnostic else "refuse()"

    def function(self, signature: str, filename: str) -> Any:
        """Compiles the lines as the body of `def <signature>:` and keeps them where tracebacks and debuggers look."""
        text = f"def {signature}:\n" + "\n".join(self._lines) + "\n"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        return self.scope[signature.partition("(")[0]]
