"""Who takes part in a benchmark, and where their data lies meanwhile."""

import argparse
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from load_generator import program
from nodes import KafkaNode, Node, TriokaNode, allow_many_files, end_in_order
from ratios import OURS, THEIRS

Makers = dict[str, Callable[[], Node]]


@contextmanager
def contestants(options: argparse.Namespace) -> Iterator[tuple[Path, Makers]]:
    """A folder that is gone when the block ends, and how each broker is started in it."""
    allow_many_files()
    end_in_order()
    program()  # built before anything is started
    with tempfile.TemporaryDirectory(prefix="trioka-bench-", dir=options.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        makers: Makers = {
            OURS: lambda: TriokaNode(folder, shlex.split(options.trioka)),
            THEIRS: lambda: KafkaNode(folder),
        }
        if options.only:
            makers.pop(THEIRS if options.only == "trioka" else OURS)
        yield folder, makers
