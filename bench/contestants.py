"""The brokers of a benchmark, and their data folders."""

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
    """A folder that is removed at the end of the block, and a function that starts each broker in it."""
    allow_many_files()
    end_in_order()
    program()  # build it before anything starts
    with tempfile.TemporaryDirectory(prefix="trioka-bench-", dir=options.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        makers: Makers = {
            OURS: lambda: TriokaNode(folder, shlex.split(options.trioka)),
            THEIRS: lambda: KafkaNode(folder),
        }
        if options.only:
            makers.pop(THEIRS if options.only == "trioka" else OURS)
        yield folder, makers
