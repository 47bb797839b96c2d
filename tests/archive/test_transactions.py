"""Which batches of a slice are aborted, whichever segment has the marker, and what is not decided."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from test_lineage import Bucket

from trioka.archive import transactions as transactions_module
from trioka.archive.errors import DamagedSegment, MissingOffsets
from trioka.archive.lineage import Slice
from trioka.protocol.batch import BatchHeader, build, read_header
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.indexes import AbortedTransaction
