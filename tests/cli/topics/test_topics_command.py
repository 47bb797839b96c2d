"""`trioka topics` and `trioka config` against a broker."""

from pathlib import Path

import pytest
from support.command_line import at, command

from trioka.cli.terminal.failure import Exit

__all__ = ["at"]


def test_a_topic_is_created_listed_described_and_deleted(at: str) -> None:
    created = command("topics", "create", "life", "--partitions", "3", "-c", "retention.ms=60000", at=at)
    assert (created.code, created.out) == (Exit.OK, "")
    assert ["life", "3", "1"] in command("topics", "list", at=at).lines
    (result,) = command("topics", "describe", "life", "-o", "json", at=at).rows
    assert result["configs"] == {"retention.ms": "60000"}
    assert [(each["partition"], each["leader"], each["start"], each["end"]) for each in result["partitions"]] == [
        (index, 1, 0, 0) for index in range(3)
    ]
    assert command("topics", "delete", "life", "-y", at=at).code == Exit.OK
    assert "life" not in command("topics", "list", "-o", "name", at=at).out.split()


def test_a_topic_that_exists_is_an_error_by_default(at: str) -> None:
    assert command("topics", "create", "twice", at=at).code == Exit.OK
    again = command("topics", "create", "twice", at=at)
    assert again.code == Exit.EXISTS and "TRK-1036 TOPIC_ALREADY_EXISTS" in again.stderr
    assert command("topics", "create", "twice", "--if-not-exists", at=at).code == Exit.OK


def test_of_several_topics_some_may_fail(at: str) -> None:
    command("topics", "create", "there", at=at)
    ended = command("topics", "create", "there", "here", at=at)
    assert ended.code == Exit.PARTLY
    assert "created topic 'here'" in ended.stderr and "topic 'there' was not created" in ended.stderr


def test_a_missing_topic_has_a_suggestion(at: str) -> None:
    command("topics", "create", "invoices", at=at)
    ended = command("topics", "describe", "invoice", at=at)
    assert ended.code == Exit.NOT_FOUND and not ended.out
    assert "topic 'invoice' does not exist on" in ended.stderr
    assert "did you mean: invoices?   create it: trioka topics create invoice" in ended.stderr


def test_an_unknown_config_key_has_a_suggestion(at: str) -> None:
    for line in (["create", "odd", "-c", "retention.mss=1"], ["alter", "even", "-c", "retention.mss=1"]):
        command("topics", "create", "even", "--if-not-exists", at=at)
        ended = command("topics", *line, at=at)
        assert ended.code == Exit.FAILED and "TRK-1040 INVALID_CONFIG" in ended.stderr
        assert "did you mean: retention.ms" in ended.stderr


def test_the_name_may_follow_a_flag(at: str) -> None:
    for flag in ("--topic", "--name"):
        command("topics", "create", flag, f"by{flag}", at=at)
        assert command("topics", "describe", flag, f"by{flag}", "-o", "name", at=at).out == f"by{flag}\n"


def test_partitions_and_configuration_are_altered(at: str) -> None:
    command("topics", "create", "growing", "-c", "retention.ms=1000", at=at)
    ended = command("topics", "alter", "growing", "--partitions", "4", "-c", "cleanup.policy=compact", at=at)
    assert ended.code == Exit.OK
    assert command("topics", "alter", "growing", "--delete-config", "retention.ms", at=at).code == Exit.OK
    (result,) = command("topics", "describe", "growing", "-o", "json", at=at).rows
    assert result["configs"] == {"cleanup.policy": "compact"} and len(result["partitions"]) == 4
    shrunk = command("topics", "alter", "growing", "--partitions", "2", at=at)
    assert shrunk.code == Exit.FAILED and "TRK-1037 INVALID_PARTITIONS" in shrunk.stderr


def test_nothing_is_deleted_or_trimmed_without_consent(at: str) -> None:
    command("topics", "create", "precious", at=at)
    command("produce", "precious", at=at, stdin=b"one\ntwo\nthree\n")
    for line in (["delete", "precious"], ["trim", "precious", "--all"]):
        ended = command("topics", *line, at=at)
        assert ended.code == Exit.OK and "precious" in ended.out
        assert "This is the plan; nothing was changed" in ended.stderr
    (result,) = command("topics", "describe", "precious", "-o", "json", at=at).rows
    assert [(each["start"], each["end"]) for each in result["partitions"]] == [(0, 3)]


def test_a_topic_is_trimmed_up_to_an_offset_and_never_beyond_its_end(at: str) -> None:
    command("topics", "create", "trimmed", at=at)
    command("produce", "trimmed", at=at, stdin=b"one\ntwo\nthree\n")
    assert command("topics", "trim", "trimmed", "--to-offset", "2", "-y", at=at).code == Exit.OK
    assert command("consume", "trimmed", "-e", at=at).out == "three\n"
    assert command("topics", "trim", "trimmed", "--to-offset", "99", "--execute", at=at).code == Exit.OK
    assert command("topics", "describe", "trimmed", "-o", "csv", at=at).code == Exit.OK
    assert command("consume", "trimmed", "-e", at=at).out == ""


def test_a_dry_run_creates_nothing(at: str) -> None:
    assert command("topics", "create", "imagined", "--dry-run", at=at).code == Exit.OK
    assert command("topics", "describe", "imagined", at=at).code == Exit.NOT_FOUND


# -- config ------------------------------------------------------------------------------------------------------------


def test_configuration_is_set_got_shown_and_unset(at: str) -> None:
    command("topics", "create", "tuned", at=at)
    on = ("--topic", "tuned")
    assert command("config", "get", "retention.ms", *on, at=at).out == "604800000\n"
    assert command("config", "set", "retention.ms=7", *on, at=at).code == Exit.OK
    assert command("config", "show", *on, at=at).lines == [["retention.ms", "7", "topic"]]
    assert command("config", "unset", "retention.ms", *on, at=at).code == Exit.OK
    assert command("config", "show", *on, at=at).lines == []


def test_a_broker_is_configured_and_the_one_that_was_reached_is_meant_if_none_is_named(at: str) -> None:
    assert command("config", "get", "node.id", at=at).out == "1\n"
    assert command("config", "set", "message.max.bytes=2000000", "--broker", "default", at=at).code == Exit.OK
    assert command("config", "get", "message.max.bytes", "--broker", "1", at=at).out == "2000000\n"
    assert command("config", "unset", "message.max.bytes", "--broker", "default", at=at).code == Exit.OK


def test_a_key_that_does_not_exist_has_a_suggestion(at: str) -> None:
    command("topics", "create", "plain", at=at)
    ended = command("config", "get", "retention.mz", "--topic", "plain", at=at)
    assert ended.code == Exit.NOT_FOUND and "did you mean: retention.ms" in ended.stderr
    assert command("config", "get", "retention.ms", "--topic", "plian", at=at).code == Exit.NOT_FOUND


def test_a_file_is_judged_before_a_broker_uses_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=4\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.voters=4@localhost:9093\nnum.partitons=3\n"
    )
    judged = command("config", "lint", str(file))
    assert judged.code == Exit.OK and "did you mean num.partitions" in judged.out
    file.write_text("node.id=first\n")
    assert command("config", "lint", str(file)).code == Exit.FAILED
    assert command("config", "lint", str(tmp_path / "absent")).code == Exit.NOT_FOUND


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "csv", "name"])
def test_every_form_is_there(at: str, form: str) -> None:
    command("topics", "create", "formed", "--if-not-exists", at=at)
    assert "formed" in command("topics", "list", "-o", form, at=at).out
