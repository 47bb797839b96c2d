"""Downloads jars from a Maven repository, without Maven: each pinned by its SHA-256 and downloaded once.

A file of the cache folder is used only after its SHA-256 was compared with the pin; a file that does not match is
downloaded again. So the second run needs no network, and a damaged or foreign file never reaches a class path.

The user's machine defines the repository, this project does not: the environment variable TRIOKA_MAVEN_REPOSITORY,
otherwise a mirror of Central in Maven's settings, otherwise the default of `jgo`.
"""

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trioka.protocol.lazy_dataclass import frozen

from .cache import Unavailable, Unreachable, folder, locked

DOWNLOADS_AT_ONCE = 4
DOWNLOAD_TRIES = 3
TIMEOUT_SECONDS = 60
CHUNK_BYTES = 1 << 18
# The largest pinned jar has fifty megabytes. A server that sends much more is not a repository.
JAR_SIZE_LIMIT_BYTES = 128 << 20

# Called for each received chunk: the file's name, its bytes so far, and its size (0: unknown).
ProgressReport = Callable[[str, int, int], None]


@frozen
class Pin:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """The path of this jar below the address of any repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def read_pins(listed: Path) -> list[Pin]:
    """A list of pins: one `group:artifact:version sha256` per line; a line that begins with # is a comment."""
    found = []
    for line in listed.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, artifact, version = coordinates.split(":")
            found.append(Pin(group=group, artifact=artifact, version=version, sha256=sha256))
    return found


def checked(pin: Pin, result: ProgressReport | None = None) -> Path:
    """The path of a jar whose bytes match its pin now; downloads it if they did not."""
    path = folder("jars") / pin.file_name
    if not _matches(path, pin):
        with locked(pin.file_name):
            if not _matches(path, pin):  # another process may have downloaded it while this one waited
                _fetch(pin, path, result)
    return path


def all_checked(pins: Iterable[Pin], result: ProgressReport | None = None) -> list[Path]:
    """Check several jars, a few at a time, and return their paths in order."""
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        return list(pool.map(lambda pin: checked(pin, result), pins))


def repository(home: Path | None = None) -> str:
    """The address of the repository, without a slash at its end."""
    if chosen := os.environ.get("TRIOKA_MAVEN_REPOSITORY"):
        return chosen.rstrip("/")
    if mirror := _mirror_of_central((home or Path.home()) / ".m2" / "settings.xml"):
        return mirror.rstrip("/")
    try:
        from jgo.constants import MAVEN_CENTRAL_URL
    except ImportError:
        raise Unavailable(
            "No repository of jars is known: set TRIOKA_MAVEN_REPOSITORY, or pip install 'trioka[spark]'."
        ) from None
    return str(MAVEN_CENTRAL_URL).rstrip("/")


def _mirror_of_central(settings: Path) -> str | None:
    """The first mirror in Maven's settings that covers Central: by its name, or by a star without an exception."""
    if not settings.is_file():
        return None
    try:
        root = ElementTree.parse(settings).getroot()
    except ElementTree.ParseError as error:
        raise Unavailable(f"Maven's settings, {settings}, are not readable: {error}.") from error
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        patterns = [pattern.strip() for pattern in mirror.findtext("{*}mirrorOf", "").split(",")]
        stands_for_central = not {"central", "*", "external:*"}.isdisjoint(patterns) and "!central" not in patterns
        url = mirror.findtext("{*}url", "").strip()
        if stands_for_central and url and mirror.findtext("{*}blocked") != "true":
            return url
    return None


def _matches(path: Path, pin: Pin) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == pin.sha256
    except FileNotFoundError:
        return False


def _fetch(pin: Pin, path: Path, result: ProgressReport | None) -> None:
    """Download to a temporary file and rename it, so that an incomplete jar never has the final name."""
    content = _download(f"{repository()}/{pin.path}", pin, result)
    if hashlib.sha256(content).hexdigest() != pin.sha256:
        raise Unavailable(f"The repository's {pin.file_name} is not the pinned one: its SHA-256 differs.")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{pin.artifact}-", delete=False) as file:
            try:
                file.write(content)
                file.flush()
            except OSError:
                Path(file.name).unlink()
                raise
        Path(file.name).rename(path)
    except OSError as error:
        raise Unavailable(f"{pin.file_name} cannot be kept in {path.parent}: {error.strerror}.") from error


def _download(url: str, pin: Pin, result: ProgressReport | None) -> bytes:
    for attempt in range(1, DOWNLOAD_TRIES + 1):
        try:
            return _content(url, pin, result)
        except (OSError, ValueError) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == DOWNLOAD_TRIES:
                raise Unreachable(
                    f"{pin.file_name} cannot be downloaded ({error}); connect once, "
                    "or name a repository in TRIOKA_MAVEN_REPOSITORY."
                ) from error
    raise AssertionError("the last try returns or raises")


def _content(url: str, pin: Pin, result: ProgressReport | None) -> bytes:
    content = bytearray()
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
        whole = int(answer.headers.get("Content-Length") or 0)
        while len(content) < JAR_SIZE_LIMIT_BYTES and (piece := answer.read(CHUNK_BYTES)):
            content += piece
            if result is not None:
                result(pin.file_name, len(content), whole)
    return bytes(content)
