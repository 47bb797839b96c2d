"""A standalone cluster of Spark on this machine: a master and two workers, each in a JVM of its own."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from oracle import die_with_parent

from trioka.pipeline.installation.java import spark_java

WORKERS = 2
PATIENCE_S = 120.0
POLL_S = 0.1
HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -Xshare:auto"


class Cluster:
    """`master` is its address. `executors` are the processes that run tasks now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        master = self._launch("master", "master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
        self.master = self._said(master, r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            name = f"worker-{number}"
            log = self._launch(
                name,
                "worker.Worker",
                "--host",
                HOST,
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                self.master,
            )
            self._said(log, r"(Successfully registered with master)")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _launch(self, name: str, kind: str, *arguments: str) -> Path:
        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(spark_java(None).home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(self._folder / name),
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        }
        with log.open("w") as target:
            self._processes.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", f"{DEPLOY}.{kind}", *arguments],
                    stdout=target,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    preexec_fn=die_with_parent(),
                )
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline and self._processes[-1].poll() is None, log.read_text()
            time.sleep(POLL_S)
        return found[1]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
