"""Logs what recovery found after an unclean shutdown."""

import logging
from collections.abc import Sequence

from trioka.storage.directory import LogDirectory

log = logging.getLogger("trioka.broker")


def log_recovery(directories: Sequence[LogDirectory]) -> None:
    """Damage is a warning; a truncation of records that were never durable is not."""
    for directory in directories:
        for name, each in directory.logs.items():
            report = each.report
            if report is None:
                continue
            scanned, cut = report.scanned_bytes, report.cut_bytes
            if scanned or cut:
                log.info("%s was recovered: %d bytes scanned, %d truncated", name, scanned, cut)
            if report.missing_offsets:
                log.warning(
                    "%s ends at %d; by the checkpoint of recovery points %d more offsets were durable: unless the "
                    "checkpoint is wrong, this replica has lost them; compare it with the other replicas",
                    name,
                    each.log_end_offset,
                    report.missing_offsets,
                )
            for damage in (*report.damaged_files, *report.damages):
                log.warning("%s was recovered with damage: %s", name, damage)
