"""bench/request.py still measures its steps, which are called as the broker calls them and break when it changes."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_every_step_of_a_request_can_be_measured() -> None:
    command = [sys.executable, str(BENCH / "request.py"), "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for title in ("Produce v9, one record", "Produce v9, 16 KB", "1,000 partitions", "Fetch v12"):
        assert title in done.stdout
