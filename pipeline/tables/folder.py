"""A folder on any file system that Spark can write to: this machine, HDFS, an object store. It uses Spark's file
systems.

Names are complete addresses. Exactly-once tables of files need a file system with atomic renames: a disk or HDFS, but
not an object store, where Iceberg is the sink to choose.
"""

from typing import Any

from pyspark.sql import SparkSession

MAX_TEXT_BYTES = 16 << 20


class Folder:
    """The file system of one address."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        context: Any = spark.sparkContext._jsc
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self.address = address
        self._configuration = context.hadoopConfiguration()
        self._system = self._path(address).getFileSystem(self._configuration)

    def setting(self, key: str) -> str | None:
        """A setting of Hadoop."""
        found = self._configuration.get(key)
        return None if found is None else str(found)

    def exists(self, *names: str) -> bool:
        return bool(self._system.exists(self._at(*names)))

    def names(self, *names: str) -> list[str]:
        """The names in a folder, in order; nothing if there is no such folder."""
        at = self._at(*names)
        if not self._system.exists(at):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(at))

    def text(self, *names: str) -> str:
        source = self._system.open(self._at(*names))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(source)).decode()
        finally:
            source.close()

    def write(self, text: str, *names: str) -> None:
        """Write a file atomically: it gets its name when it is complete."""
        beside = self._at(*names[:-1], f".{names[-1]}.tmp")
        target = self._system.create(beside, True)
        try:
            target.write(bytearray(text.encode()))
        finally:
            target.close()
        self._system.delete(self._at(*names), False)
        assert self._system.rename(beside, self._at(*names)), f"{names} could not get its name"

    def move(self, old: str, new: str) -> None:
        """Rename in one step, to a name that does not exist yet."""
        assert not self.exists(new), f"{new} is there already"
        if not self._system.rename(self._at(old), self._at(new)):
            raise OSError(f"{self.address}/{old} could not be renamed to {new}")

    def copy(self, old: str, new: str) -> None:
        """Copy a file or a folder with all that is in it; nothing if it does not exist."""
        source, target = self._at(old), self._at(new)
        if self._system.exists(source):
            self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                self._system, source, self._system, target, False, self._configuration
            )

    def make(self, *names: str) -> None:
        self._system.mkdirs(self._at(*names))

    def delete(self, *names: str) -> None:
        self._system.delete(self._at(*names), True)

    def _at(self, *names: str) -> Any:
        return self._path("/".join([self.address, *names]))
