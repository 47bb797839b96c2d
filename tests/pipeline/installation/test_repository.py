"""Jars out of a repository: nothing unchecked is ever used, and the second run needs no network."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trioka.pipeline.installation.cache import Unavailable, folder
from trioka.pipeline.installation.repository import Pin, checked
from trioka.pipeline.installation.repository import repository as repository_address

CONTENT = b"not a jar, but pinned like one"
PIN = Pin(group="org.example", artifact="thing", version="1.0", sha256=hashlib.sha256(CONTENT).hexdigest())


class Repository(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served as a Maven repository, and an empty cache."""
    served = tmp_path / "served"
    served.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Repository, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("TRIOKA_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("TRIOKA_CACHE", str(tmp_path / "cache"))
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def publish(repository: Path, content: bytes) -> Path:
    path = repository / PIN.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_jar_is_fetched_once_and_then_found_without_the_repository(repository: Path) -> None:
    published = publish(repository, CONTENT)
    assert checked(PIN).read_bytes() == CONTENT
    published.unlink()
    assert checked(PIN).read_bytes() == CONTENT


def test_a_jar_that_differs_from_its_pin_is_refused_and_not_kept(repository: Path) -> None:
    publish(repository, CONTENT + b"!")
    with pytest.raises(Unavailable, match=r"thing-1\.0\.jar is not the pinned one"):
        checked(PIN)
    assert list(folder("jars").iterdir()) == []


def test_a_damaged_file_of_the_cache_is_fetched_again(repository: Path) -> None:
    publish(repository, CONTENT)
    checked(PIN).write_bytes(CONTENT[:-1])
    assert checked(PIN).read_bytes() == CONTENT


def test_a_jar_that_is_nowhere_is_one_clear_sentence(repository: Path) -> None:
    with pytest.raises(Unavailable, match=r"^thing-1\.0\.jar cannot be downloaded .*\.$"):
        checked(PIN)


@pytest.mark.parametrize(
    ("mirror_of", "is_taken"),
    [("central", True), ("*", True), ("external:*", True), ("*,!central", False), ("internal", False)],
)
def test_a_mirror_of_central_in_mavens_settings_is_the_repository(
    mirror_of: str, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIOKA_MAVEN_REPOSITORY", raising=False)
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()
    mirror = f"<mirror><mirrorOf>{mirror_of}</mirrorOf><url>https://mirror.example/maven/</url></mirror>"
    settings.write_text(
        f'<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>{mirror}</mirrors></settings>'
    )
    assert (repository_address(home=tmp_path) == "https://mirror.example/maven") is is_taken
