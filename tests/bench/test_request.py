"""bench/request.py and group_requests.py still measure their steps, which are called as the broker calls them and break
when it changes."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
TITLES = {
    "request.py": ("Produce v9, one record", "Produce v9, 16 KB", "1,000 partitions", "Fetch v12"),
    "group_requests.py": ("a Heartbeat", "a ConsumerGroupHeartbeat", "an OffsetCommit of 1,000", "a SyncGroup"),
}


@pytest.mark.parametrize("program", TITLES)
def test_every_step_of_a_request_can_be_measured(program: str) -> None:
    command = [sys.executable, str(BENCH / program), "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for title in TITLES[program]:
        assert title in done.stdout
