"""What a start found after a stop that was not clean, told to whoever reads the log."""

import logging
from collections.abc import Sequence

from trioka.storage.directory import LogDirectory

log = logging.getLogger("trioka.broker")


def say_recovered(directories: Sequence[LogDirectory]) -> None:
    """Damage is worth a warning, a cut of what was never acknowledged as durable is not."""
    for directory in directories:
        for name, each in directory.logs.items():
            report = each.report
            if report is None:
                continue
            scanned, cut = report.scanned_bytes, report.cut_bytes
            if scanned or cut:
                log.info("%s was recovered: %d bytes looked at, %d cut", name, scanned, cut)
            if report.missing_offsets:
                log.warning(
                    "%s ends at %d, but the checkpoint of recovery points says that %d more offsets were durable: "
                    "if it was not wrong, they are lost here; compare with the other replicas",
                    name,
                    each.log_end_offset,
                    report.missing_offsets,
                )
            for damage in (*report.damaged_files, *report.damages):
                log.warning("%s was recovered, and is not as it was: %s", name, damage)
