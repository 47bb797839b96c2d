"""Short timeslices on the processor: they are asked for without changing anything else."""

import os
import subprocess
import sys

import pytest

ASKING = """
import os, sys
from trioka.broker.network.scheduling import request_short_timeslice
{before}
print(request_short_timeslice(), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
assert sys.getswitchinterval() < 0.001
"""


def request(before: str) -> tuple[str, int, int]:
    """In a process of its own: whether it was granted, and the policy and the priority afterwards."""
    command = [sys.executable, "-c", ASKING.format(before=before)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    granted, policy, nice = said.split()
    return granted, int(policy), int(nice)


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="another machine has other numbers")
def test_they_are_granted_and_all_else_is_as_before() -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert request("") == ("True", os.SCHED_OTHER, nice)
    assert request("os.nice(3)") == ("True", os.SCHED_OTHER, min(nice + 3, 19))


def test_a_group_with_another_policy_keeps_it() -> None:
    granted, policy, _ = request("os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))")
    assert (granted, policy) == ("False", os.SCHED_BATCH)


def test_a_machine_with_unknown_syscall_numbers_is_left_alone() -> None:
    abacus = "os.uname = lambda: os.uname_result(('', '', '', '', 'abacus'))"
    assert request(abacus)[0] == "False"
