"""The server's assignors. What they promise is checked over random groups that change, from seeds; what Apache Kafka's
own assignors make of the same groups, compat-tests/test_assignors.py."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.group_specs import changed, having, members, random_members, random_topics
from support.known_topics import KnownTopics

from trioka.coordinator.assignors import Assignment, Assignor, GroupSpec, MemberSpec, holdings, racks, range, uniform
from trioka.coordinator.assignors.range import RangeAssignor
from trioka.coordinator.assignors.uniform import UniformAssignor

SEEDS = 50
STEPS = 5


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def sizes(given: dict[str, Assignment]) -> list[int]:
    return sorted(map(size, given.values()))


def near(spec: GroupSpec, topics: KnownTopics, given: dict[str, Assignment]) -> int:
    """How many partitions can be read on their member's rack."""
    return sum(
        spec.members[member_id].rack in topic.racks[partition]
        for member_id, assignment in given.items()
        for topic_id, partitions in assignment.items()
        if (topic := topics.by_id(topic_id)) is not None
        for partition in partitions
    )


def histories(
    seed: int, assignor: Assignor, *, is_homogeneous: bool, with_racks: bool = False
) -> Iterator[tuple[GroupSpec, KnownTopics, dict[str, Assignment]]]:
    """A random group that changes a few times, and what it is given each time."""
    random = Random(seed)
    topics = random_topics(random, with_racks=with_racks)
    spec = random_members(random, topics, is_homogeneous=is_homogeneous, with_racks=with_racks)
    for _ in (None,) * STEPS:
        given = assignor.assign(spec, topics)
        yield spec, topics, given
        if random.random() < 0.3:
            topics.add("t0", len(topics.by_name("t0").racks) + 1)  # type: ignore[union-attr]
        spec = changed(random, spec, given, topics)


def assert_whole(spec: GroupSpec, topics: KnownTopics, given: dict[str, Assignment]) -> None:
    """Every partition of a subscribed topic has one owner, which subscribes to it."""
    assert given.keys() == spec.members.keys()
    owners = Counter(
        (topic_id, partition)
        for assignment in given.values()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    )
    wanted = {topic_id for member in spec.members.values() for topic_id in member.topics}
    known = [topic for topic_id in wanted if (topic := topics.by_id(topic_id)) is not None]
    assert owners == Counter((topic.id, number) for topic in known for number, _ in enumerate(topic.racks))
    for member_id, assignment in given.items():
        assert assignment.keys() <= spec.members[member_id].topics
        assert all(assignment.values()), "no topic without a partition"


def kept(spec: GroupSpec, given: dict[str, Assignment]) -> int:
    return sum(
        len(partitions & given[member_id].get(topic_id, frozenset()))
        for member_id, member in spec.members.items()
        for topic_id, partitions in member.assignment.items()
    )


def keepable(spec: GroupSpec, given: dict[str, Assignment]) -> int:
    """How many partitions could stay at most in a balanced assignment of this size, if all subscribe to the same."""
    share, extras = divmod(sum(sizes(given)), len(spec.members))
    held = [
        sum(len(partitions) for topic_id, partitions in member.assignment.items() if topic_id in member.topics)
        for member in spec.members.values()
    ]
    return sum(min(share, count) for count in held) + min(extras, sum(count > share for count in held))


def rule_same_subscriptions_get_equal_shares_and_nothing_moves_that_need_not(uniform: ModuleType) -> None:
    for seed in _seeds():
        for spec, topics, given in histories(seed, uniform.UniformAssignor(), is_homogeneous=True):
            assert_whole(spec, topics, given)
            if given:
                assert max(sizes(given)) - min(sizes(given)) <= 1
                assert kept(spec, given) == keepable(spec, given)


def rule_different_subscriptions_are_balanced_as_far_as_one_move_can(uniform: ModuleType) -> None:
    for seed in _seeds():
        for spec, topics, given in histories(seed, uniform.UniformAssignor(), is_homogeneous=False):
            assert_whole(spec, topics, given)
            for member_id, assignment in given.items():
                for topic_id in assignment:
                    others = [id for id, member in spec.members.items() if topic_id in member.topics]
                    assert size(assignment) - min(size(given[id]) for id in others) <= 1, (seed, member_id)


def rule_a_balanced_group_stays_as_it_is(uniform: ModuleType) -> None:
    for seed in _seeds():
        for homogeneous in (True, False):
            for with_racks in (True, False):
                assignor = uniform.UniformAssignor()
                for spec, topics, given in histories(seed, assignor, is_homogeneous=homogeneous, with_racks=with_racks):
                    assert assignor.assign(having(spec, given), topics) == given, seed


def rule_ranges_are_adjacent_and_the_same_in_all_topics_that_are_alike(range: ModuleType) -> None:
    for seed in _seeds():
        for homogeneous in (True, False):
            for spec, topics, given in histories(seed, range.RangeAssignor(), is_homogeneous=homogeneous):
                assert_whole(spec, topics, given)
                assert_ranges(spec, topics, given)


def assert_ranges(spec: GroupSpec, topics: KnownTopics, given: dict[str, Assignment]) -> None:
    seen: dict[tuple[frozenset[str], int], dict[str, frozenset[int]]] = {}
    for topic_id in {topic_id for member in spec.members.values() for topic_id in member.topics}:
        topic = topics.by_id(topic_id)
        assert topic is not None
        subscribers = frozenset(id for id, member in spec.members.items() if topic_id in member.topics)
        shares = {id: given[id].get(topic_id, frozenset()) for id in subscribers}
        for numbers in shares.values():
            assert not numbers or max(numbers) - min(numbers) + 1 == len(numbers)
        assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1
        assert seen.setdefault((subscribers, topic.partitions), shares) == shares


def rule_racks_bring_partitions_near_and_leave_the_balance(racks: ModuleType) -> None:
    gained = 0
    for seed in _seeds():
        for homogeneous in (True, False):
            assignor = UniformAssignor()
            for spec, topics, given in histories(seed, assignor, is_homogeneous=homogeneous, with_racks=True):
                blind = assignor.assign(without_racks(spec), topics)
                held: holdings.MemberPartitions = {
                    id: [(topic_id, number) for topic_id, numbers in has.items() for number in sorted(numbers)]
                    for id, has in blind.items()
                }
                racks.improve_rack_locality(held, spec.members, topics, is_homogeneous=homogeneous)
                seeing = holdings.as_assignments(held)
                assert_whole(spec, topics, seeing)
                assert sizes(seeing) == sizes(given) == sizes(blind)
                assert near(spec, topics, seeing) >= near(spec, topics, blind)
                gained += near(spec, topics, seeing) - near(spec, topics, blind)
    assert gained > 200


def without_racks(spec: GroupSpec) -> GroupSpec:
    return GroupSpec(
        members={
            id: MemberSpec(topics=member.topics, assignment=member.assignment, instance_id=member.instance_id)
            for id, member in spec.members.items()
        }
    )


def _seeds() -> Iterator[int]:
    yield from (seed for seed, _ in enumerate((None,) * SEEDS))


RULES: list[tuple[ModuleType, Rule]] = [
    (uniform, rule_same_subscriptions_get_equal_shares_and_nothing_moves_that_need_not),
    (uniform, rule_different_subscriptions_are_balanced_as_far_as_one_move_can),
    (uniform, rule_a_balanced_group_stays_as_it_is),
    (range, rule_ranges_are_adjacent_and_the_same_in_all_topics_that_are_alike),
    (racks, rule_racks_bring_partitions_near_and_leave_the_balance),
]


@pytest.mark.parametrize(("module", "rule"), RULES, ids=[rule.__name__ for _, rule in RULES])
def test_rule_over_random_groups(module: ModuleType, rule: Rule) -> None:
    rule(module)


MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (uniform, "quota = share + (extras > 0)", "quota = share + 1", RULES[0][1]),
    (uniform, "(len(slots) == quota or len(held) - before <= extras)", "True", RULES[0][1]),
    (uniform, "free += slots[quota:]", "pass", RULES[0][1]),
    (uniform, "if most - least <= 1:", "if most - least <= 2:", RULES[1][1]),
    (uniform, "ROUNDS: Final = 16", "ROUNDS: Final = 1", RULES[1][1]),
    (uniform, "if most - least <= 1:", "if most - least < 0:", RULES[2][1]),
    (uniform, "topics, is_homogeneous=is_homogeneous", "topics, is_homogeneous=True", RULES[2][1]),
    (range, "place < extras", "place >= len(member_ids) - extras and count % 7", RULES[3][1]),
    (range, "place < extras", "1", RULES[3][1]),
    (racks, 'b"" if is_homogeneous else topic_id', 'b""', RULES[4][1]),
    (racks, "if self._sizes[place.member_id] == self._least:", "if False:", RULES[4][1]),
    (racks, "exchange.improve(far)", "pass", RULES[4][1]),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)


def test_a_group_without_members_is_assigned_nothing() -> None:
    for assignor in (UniformAssignor(), RangeAssignor()):
        assert assignor.assign(GroupSpec(members={}), KnownTopics(t=3)) == {}


def test_members_that_subscribe_to_nothing_are_given_nothing() -> None:
    topics = KnownTopics(t=3)
    for assignor in (UniformAssignor(), RangeAssignor()):
        given = assignor.assign(GroupSpec(members=members(2, topics)), topics)
        assert given == {"m0": {}, "m1": {}}


def test_a_topic_that_is_gone_has_no_partitions() -> None:
    topics = KnownTopics(t=3, gone=3)
    spec = GroupSpec(members=members(2, topics, "t", "gone"))
    for assignor in (UniformAssignor(), RangeAssignor()):
        before = assignor.assign(spec, topics)
        smaller = KnownTopics(t=3)
        assert_whole(spec, smaller, assignor.assign(having(spec, before), smaller))


def test_a_partition_that_two_have_stays_with_the_first() -> None:
    topics = KnownTopics(t=2)
    spec = GroupSpec(members=members(2, topics, "t"))
    topic = topics.by_name("t")
    assert topic is not None
    both: Assignment = {topic.id: frozenset([0])}
    given = UniformAssignor().assign(having(spec, {"m0": both, "m1": both}), topics)
    assert given == {"m0": {topic.id: {0}}, "m1": {topic.id: {1}}}


def test_static_members_come_first_in_a_range_and_stay_there_under_another_id() -> None:
    topics = KnownTopics(t=3)
    topic = topics.by_name("t")
    assert topic is not None
    subscribed = frozenset([topic.id])
    ids = ({"a": None, "x": "i1", "y": "i0"}, {"a": None, "1": "i1", "2": "i0"})
    shares = []
    for group in ids:
        spec = GroupSpec(
            members={id: MemberSpec(topics=subscribed, instance_id=instance) for id, instance in group.items()}
        )
        given = RangeAssignor().assign(spec, topics)
        shares.append({instance: set(given[id][topic.id]) for id, instance in group.items()})
    assert shares == [{"i0": {0}, "i1": {1}, None: {2}}] * 2


def test_members_of_a_range_stand_in_the_order_of_javas_strings() -> None:
    topics = KnownTopics(t=2)
    # By code points the second would be first; Java compares halves of the pair that it writes U+1F600 with.
    first, second = "\U0001f600", "\uff41"
    spec = GroupSpec(members=dict(zip((second, first), members(2, topics, "t").values(), strict=True)))
    given = RangeAssignor().assign(spec, topics)
    assert [set(*given[id].values()) for id in (first, second)] == [{0}, {1}]


@pytest.mark.parametrize("assignor", [UniformAssignor(), RangeAssignor()], ids=["uniform", "range"])
def test_every_partition_is_read_on_its_rack_where_that_can_be(assignor: Assignor) -> None:
    topics = KnownTopics()
    topics.add("t", 6, ["a", "b", "c"] * 2)
    topics.add("u", 6, ["a", "b", "c"] * 2)
    spec = GroupSpec(members=members(3, topics, "t", "u", racks=("c", "a", "b")))
    given = assignor.assign(spec, topics)
    assert_whole(spec, topics, given)
    assert sizes(given) == [4, 4, 4]
    assert near(spec, topics, given) == 12
    for assignment in given.values():
        assert len(set(assignment.values())) == 1, "the same numbers of both topics"


def test_a_new_member_gets_near_partitions_with_the_fewest_moves() -> None:
    topics = KnownTopics()
    topics.add("t", 4, ["a", "b", "a", "b"])
    both = members(2, topics, "t", racks=("a", "b"))
    alone = GroupSpec(members={"m0": both["m0"]})
    before = UniformAssignor().assign(alone, topics)
    spec = having(GroupSpec(members=both), before)
    given = UniformAssignor().assign(spec, topics)
    assert near(spec, topics, given) == 4
    assert kept(spec, given) == 2


def test_one_more_partition_goes_to_whom_it_is_near() -> None:
    topics = KnownTopics()
    topics.add("t", 3, ["a", "b", "b"])
    spec = GroupSpec(members=members(2, topics, "t", racks=("a", "b")))
    given = UniformAssignor().assign(spec, topics)
    assert near(spec, topics, given) == 3


def test_ranges_of_different_racks_are_left_alone_unless_all_topics_gain() -> None:
    topics = KnownTopics()
    topics.add("t", 2, ["a", "b"])
    topics.add("u", 2, ["b", "a"])
    spec = GroupSpec(members=members(2, topics, "t", "u", racks=("a", "b")))
    assert RangeAssignor().assign(spec, topics) == RangeAssignor().assign(without_racks(spec), topics)
