"""`trioka dev` in a process of its own, for tests of what it prints."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = re.compile(r"password (\S{24})$", re.MULTILINE)


@contextmanager
def dev(data: Path, *flags: str) -> Iterator[tuple[str, str]]:
    """The address of a `trioka dev`, and all that it printed until it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trioka", "dev", "--port", "0", "--http-port", "off", "--data", str(data), *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    message = ""
    try:
        while "  Try " not in message:
            line = process.stdout.readline()
            assert line, message
            message += line
        found = re.search(r"Kafka +(\S+)", message)
        assert found is not None
        assert not any(password in Path(f"/proc/{process.pid}/{file}").read_text()
                       for password in PASSWORD.findall(message) for file in ("cmdline", "environ"))  # fmt: skip
        yield found[1], message
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
