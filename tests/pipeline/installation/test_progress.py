"""The line that a person sees while jars are fetched."""

import io

from trioka.pipeline.installation.progress import ERASE_LINE, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_log_there_is_one_line_for_each_file_and_not_one_for_each_piece() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        for done in range(1, 6):
            progress.download("a.jar", done * 1_000_000, 5_000_000)
        progress.download("b.jar", 1_000_000, 2_000_000)
    first, second = stream.getvalue().splitlines()
    assert first.startswith("fetching a.jar: 1.0 of 5.0 MB")
    assert second.startswith("fetching b.jar: 6.0 of 7.0 MB")


def test_on_a_terminal_the_line_is_written_over_itself_and_vanishes() -> None:
    stream = Terminal()
    with Progress(stream) as progress:
        progress.download("a.jar", 1_000_000, 5_000_000)
    text = stream.getvalue()
    assert text.startswith(f"{ERASE_LINE}fetching a.jar: 1.0 of 5.0 MB")
    assert text.endswith(ERASE_LINE)
    assert "\n" not in text


def test_a_size_that_the_repository_does_not_tell_is_not_guessed() -> None:
    stream = io.StringIO()
    Progress(stream).download("a.jar", 1_000_000, 0)
    assert stream.getvalue().startswith("fetching a.jar: 1.0 of 1.0 MB")


def test_nothing_is_written_when_nothing_is_fetched() -> None:
    stream = Terminal()
    with Progress(stream):
        pass
    assert stream.getvalue() == ""
