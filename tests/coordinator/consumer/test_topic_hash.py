"""The hash of a group's topics is the one that Apache Kafka writes. The numbers are from its own records."""

from support.known_topics import KnownTopics

from trioka.coordinator.consumer.topic_hash import metadata_hash

FOO = bytes.fromhex("987a2e10eede4ae8a8ba36fc2b6c912c")
BAR = bytes.fromhex("088e1c5cf83d4737bdbb0d7f42f1c468")


def known(partitions: int = 6, rack: str = "r-1") -> KnownTopics:
    topics = KnownTopics()
    topics.add("foo", partitions, [[rack]] * partitions, FOO)
    topics.add("bar", 3, [[rack]] * 3, BAR)
    return topics


def test_a_topic_has_the_hash_that_apache_kafka_gives_it() -> None:
    assert metadata_hash(["foo"], known()) == 319428978798820381
    assert metadata_hash(["bar"], known()) == -5866144877519618031


def test_no_topics_have_no_hash() -> None:
    assert metadata_hash([], known()) == 0
    assert metadata_hash(["unheard-of"], known()) == 0


def test_everything_that_an_assignment_depends_on_makes_a_difference() -> None:
    names = ["foo", "bar"]
    first = metadata_hash(names, known())
    assert metadata_hash(reversed(names), known()) == first
    assert metadata_hash([*names, "unheard-of"], known()) == first
    assert len({first, metadata_hash(names, known(7)), metadata_hash(names, known(rack="r-2"))}) == 3
    assert metadata_hash(["foo"], known()) != first
