"""trioka.log.dirs.memory: which directories a node may keep in memory."""

import pytest

from trioka.broker.config.layers import Config, ConfigError, log_config
from trioka.broker.config.listeners import Node
from trioka.broker.config.server import load


def node(**settings: str) -> Node:
    texts = {key.replace("_", "."): text for key, text in settings.items()}
    return load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            **texts,
        }
    ).node


def test_memory_directories_are_some_of_log_dirs() -> None:
    assert node(log_dirs="/var/t").memory_log_dirs == ()
    described = node(log_dirs="/var/t,/dev/shm/t/,/dev/shm/u", trioka_log_dirs_memory="/dev/shm/t,/dev/shm/u/")
    assert described.memory_log_dirs == ("/dev/shm/t", "/dev/shm/u")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"log_dirs": "/var/t", "trioka_log_dirs_memory": "/dev/shm/t"},
            "trioka.log.dirs.memory has /dev/shm/t, which must also be in log.dirs.",
        ),
        (
            {"log_dirs": "/dev/shm/t", "trioka_log_dirs_memory": "/dev/shm/t"},
            "trioka.log.dirs.memory has all of log.dirs; at least one must be on a disk.",
        ),
        (
            {"log_dirs": "/dev/shm/t,/var/t", "trioka_log_dirs_memory": "/dev/shm/t"},
            "the directory of the metadata log, which must be on a disk",
        ),
        (
            {
                "log_dirs": "/var/t,/dev/shm/t",
                "metadata_log_dir": "/dev/shm/t/",
                "trioka_log_dirs_memory": "/dev/shm/t",
            },
            "the directory of the metadata log, which must be on a disk",
        ),
    ],
)
def test_a_node_that_would_depend_on_memory_is_refused_with_a_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        node(**settings)
    assert sentence in str(refusal.value)


def test_records_in_memory_are_not_flushed() -> None:
    flushed = {"flush.messages": "1", "flush.ms": "1"}
    on_disk = log_config(Config().topic(flushed))
    in_memory = log_config(Config().topic({**flushed, "trioka.log.dir.class": "memory"}))
    assert (on_disk.flush_messages, on_disk.flush_ms) == (1, 1)
    assert min(in_memory.flush_messages, in_memory.flush_ms) > 1 << 60
