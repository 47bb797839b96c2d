"""The server's assignors beside Apache Kafka's own, for the same groups: the same partitions for the same members.

Kafka's uniform assignor goes through topics in the order of a Java hash set. With ids that are small numbers that is
the order of the ids, which is ours. Its range assignor and the order of members depend on nothing of the kind.
"""

import json
from random import Random

import pytest
from oracle import run_program
from support.group_specs import changed, random_members, random_topics
from support.known_topics import KnownTopics

from trioka.coordinator.assignors import Assignment, Assignor, GroupSpec, MemberSpec
from trioka.coordinator.assignors.range import RangeAssignor
from trioka.coordinator.assignors.uniform import UniformAssignor

pytestmark = pytest.mark.usefixtures("apache_kafka")

GROUPS = 200
STEPS = 6
Given = dict[str, Assignment]


@pytest.mark.parametrize("assignor", [UniformAssignor(), RangeAssignor()], ids=["uniform", "range"])
def test_apache_kafkas_assignor_gives_the_same(assignor: Assignor) -> None:
    requested: list[str] = []
    expected: list[Given] = []
    for seed in range(GROUPS):
        random = Random(seed)
        topics = random_topics(random, with_racks=False)
        spec = random_members(random, topics, is_homogeneous=seed % 2 == 0, with_racks=False)
        for _ in range(STEPS):
            given = assignor.assign(spec, topics)
            requested.append(json.dumps(question(assignor.name, spec, topics)))
            expected.append(given)
            spec = changed(random, spec, given, topics)
    answers = run_program("Assignors", stdin="\n".join(requested)).splitlines()
    assert len(answers) == len(expected)
    for question_asked, answer, given in zip(requested, answers, expected, strict=True):
        theirs = {member: as_sets(has) for member, has in json.loads(answer).items()}
        assert {member: theirs.get(member, {}) for member in given} == given, question_asked


def test_a_large_group_is_given_the_same() -> None:
    topics = KnownTopics(**{f"t{number}": 500 for number in range(20)})
    ids = [number.to_bytes(16, "big") for number in range(1, 21)]
    members = {f"m{number}": MemberSpec(topics=frozenset(ids)) for number in range(1000)}
    spec = GroupSpec(members=members)
    answer = run_program("Assignors", stdin=json.dumps(question("uniform", spec, topics)))
    given = UniformAssignor().assign(spec, topics)
    assert {member: as_sets(has) for member, has in json.loads(answer).items()} == given


def question(assignor: str, spec: GroupSpec, topics: KnownTopics) -> dict[str, object]:
    known = [topic for name in topics.names() if (topic := topics.by_name(name)) is not None]
    return {
        "assignor": assignor,
        "topics": {number(topic.id): topic.partitions for topic in known},
        "members": [
            {
                "id": member_id,
                "instance": member.instance_id,
                "topics": [int(number(topic_id)) for topic_id in sorted(member.topics)],
                "has": {number(topic_id): sorted(partitions) for topic_id, partitions in member.assignment.items()},
            }
            for member_id, member in spec.members.items()
        ],
    }


def number(topic_id: bytes) -> str:
    return str(int.from_bytes(topic_id, "big"))


def as_sets(has: dict[str, list[int]]) -> Assignment:
    return {int(topic).to_bytes(16, "big"): frozenset(partitions) for topic, partitions in has.items()}
