"""Commits: what a table holds, and what of a range is in it already."""

from trioka.pipeline.sources.offsets import Commit, farthest, overlaps


def commit(start: int, end: int, run: str = "r", batch: int = 0) -> Commit:
    return Commit(pipeline="p", run=run, batch=batch, start={"t": {0: start}}, end={"t": {0: end}})


def test_a_commit_comes_back_from_its_text() -> None:
    assert Commit.from_json(commit(3, 7).to_json()) == commit(3, 7)


def test_the_same_batch_of_the_same_run_has_the_same_name() -> None:
    assert commit(3, 7).name == commit(3, 7).name
    assert len({commit(3, 7).name, commit(3, 7, batch=1).name, commit(3, 7, run="s").name}) == 3


def test_ranges_that_touch_do_not_overlap() -> None:
    there = [commit(10, 20), commit(20, 30, batch=1)]
    assert overlaps(commit(0, 10), there) == []
    assert overlaps(commit(30, 40), there) == []
    assert overlaps(commit(5, 25), there) == ["t-0 from 10 to 20", "t-0 from 20 to 25"]


def test_the_farthest_offsets_are_those_of_each_partition() -> None:
    assert farthest([{"t": {0: 5, 1: 1}}, {"t": {0: 3, 1: 2}, "u": {0: 0}}]) == {"t": {0: 5, 1: 2}, "u": {0: 0}}
