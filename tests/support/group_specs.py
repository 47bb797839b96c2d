"""Groups for assignors: in a few words, and at random."""

from random import Random

from support.known_topics import KnownTopics

from trioka.coordinator.assignors import Assignment, GroupSpec, MemberSpec

RACKS = ("a", "b", "c")


def members(
    count: int, topics: KnownTopics, *names: str, racks: tuple[str | None, ...] = (None,)
) -> dict[str, MemberSpec]:
    """`m0`, `m1` … with the same subscription, on the racks in turn."""
    subscribed = frozenset(topic.id for name in names if (topic := topics.by_name(name)) is not None)
    return {f"m{n}": MemberSpec(topics=subscribed, rack=racks[n % len(racks)]) for n in range(count)}


def having(spec: GroupSpec, given: dict[str, Assignment]) -> GroupSpec:
    """The same group with this assignment."""
    return GroupSpec(
        members={
            member_id: MemberSpec(
                topics=member.topics,
                assignment=given.get(member_id, {}),
                instance_id=member.instance_id,
                rack=member.rack,
            )
            for member_id, member in spec.members.items()
        }
    )


def random_topics(random: Random, *, with_racks: bool) -> KnownTopics:
    topics = KnownTopics()
    for number in range(random.randint(1, 6)):
        count = random.choice((1, 2, 3, 6, 6, 7, 20))
        racks = [random.sample(RACKS, random.randint(0, 2)) for _ in range(count)] if with_racks else ()
        topics.add(f"t{number}", count, racks)
    return topics


def random_members(random: Random, topics: KnownTopics, *, is_homogeneous: bool, with_racks: bool) -> GroupSpec:
    """Up to a dozen members, some of them static; each subscribes to something."""
    known = [topic.id for name in topics.names() if (topic := topics.by_name(name)) is not None]
    shared = random.sample(known, random.randint(1, len(known)))
    numbers = random.sample(range(100), random.randint(1, 12))
    return GroupSpec(
        members={
            f"m{number}": MemberSpec(
                topics=frozenset(shared if is_homogeneous else random.sample(known, random.randint(1, len(known)))),
                instance_id=f"i{99 - number}" if random.random() < 0.3 else None,
                rack=random.choice((None, *RACKS)) if with_racks else None,
            )
            for number in numbers
        }
    )


def changed(random: Random, spec: GroupSpec, given: dict[str, Assignment], topics: KnownTopics) -> GroupSpec:
    """The group after changes: some members leave, join or subscribe to other topics; the rest keep their
    assignment."""
    homogeneous = spec.is_homogeneous
    with_racks = any(member.rack for member in spec.members.values())
    others = random_members(random, topics, is_homogeneous=homogeneous, with_racks=with_racks).members
    stayed = {id: member for id, member in having(spec, given).members.items() if random.random() < 0.8}
    wanted = next(iter(others.values())).topics if homogeneous and random.random() < 0.3 else None
    merged = {**stayed, **{id: member for id, member in others.items() if id not in stayed and random.random() < 0.4}}
    if homogeneous:
        wanted = wanted or next(iter((*stayed.values(), *others.values()))).topics
    return GroupSpec(
        members={
            id: MemberSpec(
                topics=wanted or (others[id].topics if id in others and random.random() < 0.5 else member.topics),
                assignment=member.assignment,
                instance_id=member.instance_id,
                rack=member.rack,
            )
            for id, member in merged.items()
        }
    )
