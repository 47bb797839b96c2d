"""The comparison of rows that a case expects with those that are there."""

from trioka.pipeline.cases import differences


def test_rows_are_compared_in_the_expected_columns_in_any_order() -> None:
    actual = [{"id": 2, "other": "x"}, {"id": 1, "name": "a"}]
    assert differences("t", [{"id": 1, "name": "a"}, {"id": 2, "name": None}], actual) == []


def test_missing_and_unexpected_rows_are_told_apart_and_repeated_ones_are_counted() -> None:
    assert differences("t", [{"id": 1}, {"id": 3}], [{"id": 1}, {"id": 1}]) == [
        't: missing: {"id": 3}',
        't: not expected: {"id": 1}',
    ]
    assert differences("t", [{"id": 1}], None) == ["t: there is no such table"]
    many = differences("t", [], [{"id": number} for number in range(9)])
    assert len(many) == 6 and many[-1] == "t: not expected: and 4 more"
