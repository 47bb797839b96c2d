"""What every test shares: how Hypothesis looks for counterexamples.

There is no deadline, because a test that fails when the machine is busy says something about the machine. At a desk the
examples are new in each run, and a counterexample that was found is tried first in the next. On the build machine,
where CI is set, they are always the same, so that a green commit stays green.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("desk", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("build", settings.get_profile("desk"), derandomize=True, database=None)
settings.load_profile("build" if os.environ.get("CI") else "desk")
