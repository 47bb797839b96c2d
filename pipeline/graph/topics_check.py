"""Checks that the topics of a graph exist, before Spark asks for them: its own error comes late, and names no flow."""

import re
from collections.abc import Iterator

from ..errors import InvalidPipeline
from ..sources.broker_view import BrokerView
from ..sources.brokers import BOOTSTRAP, Brokers
from .analysis import Analysis, kafka_sources


def check_topics(analysis: Analysis) -> None:
    """`InvalidPipeline` names every missing topic; brokers to which trioka cannot log in are not asked."""
    wanted: dict[str, dict[str, str]] = {}
    patterns: dict[str, dict[str, str]] = {}
    known: dict[str, Brokers] = {}
    for subject, options in _uses(analysis):
        given = {key.lower(): value for key, value in options.items()}
        bootstrap = given.get("kafka.bootstrap.servers")
        if bootstrap is None or (brokers := Brokers.of({**options, BOOTSTRAP: bootstrap})).problem() is not None:
            continue
        known[bootstrap] = brokers
        names = [*given.get("subscribe", "").split(","), given.get("topic", "")]
        wanted.setdefault(bootstrap, {}).update({name.strip(): subject for name in names if name.strip()})
        if "subscribepattern" in given:
            patterns.setdefault(bootstrap, {})[given["subscribepattern"]] = subject
    problems = []
    for bootstrap in wanted.keys() | patterns.keys():
        with BrokerView(known[bootstrap]) as view:
            there = view.partitions()
            for name, subject in wanted.get(bootstrap, {}).items():
                if name not in there:
                    problems.append(f"{subject}: {view.missing(name, there)}")
            for pattern, subject in patterns.get(bootstrap, {}).items():
                if not any(re.search(pattern, name) for name in there):
                    problems.append(f"{subject}: no topic on {bootstrap} matches '{pattern}'.")
    if problems:
        raise InvalidPipeline(problems)


def _uses(analysis: Analysis) -> Iterator[tuple[str, dict[str, str]]]:
    """Each flow that reads Kafka and each sink that writes to it, with its options."""
    for flow in analysis.graph.flows:
        for options in kafka_sources(analysis.frames[flow.name]):
            yield f"{flow.place}: the flow '{flow.name}'", dict(options)
    for output in analysis.graph.outputs:
        if output.kind == "sink" and output.format == "kafka":
            yield f"{output.place}: the sink '{output.name}'", dict(output.options)
