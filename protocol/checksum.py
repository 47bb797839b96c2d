"""CRC-32C, the checksum of every batch: the compiled function of the crc32c package, and nothing else of it.

`import crc32c` also loads what its command line needs (argparse, importlib.metadata, email …), which is a tenth of the
time that the broker takes to start. So the extension is loaded from where the package lies, without the package; if it
does not lie where it should, in the usual way.
"""

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def _load() -> Any:
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            return module.crc32c
    return import_module("crc32c").crc32c


class Checksum(Protocol):
    def __call__(self, data: "ReadableBuffer", crc: int = 0, /) -> int: ...


crc32c: Final[Checksum] = _load()
"""Of bytes, or of a view of them, continuing the checksum of what stands before them. Large ones are summed without
the interpreter's lock."""
