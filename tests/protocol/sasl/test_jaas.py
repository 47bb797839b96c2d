"""The parser of JAAS texts; compat-tests/test_jaas.py compares it with Kafka's own."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants.plant import assert_noticed
from support.jaas_texts import JAAS_TEXTS, PLAIN

from trioka.protocol.sasl import jaas as jaas_module


@pytest.fixture
def jaas() -> ModuleType:
    return jaas_module


def options_of(module: Any, text: str) -> Mapping[str, str] | None:
    try:
        found: Mapping[str, str] = module.parse_jaas(text).options
    except module.JaasError:
        return None
    return found


def test_texts_are_read_as_kafka_reads_them(jaas: ModuleType) -> None:
    for text, options in JAAS_TEXTS.items():
        assert options_of(jaas, text) == options, text


def test_there_is_one_module(jaas: ModuleType) -> None:
    assert options_of(jaas, f"{PLAIN} required; {PLAIN} required;") is None


def test_a_file_has_sections(jaas: ModuleType) -> None:
    text = f'KafkaServer {{ {PLAIN} required a="b";\n other required; }};\n// more\nKafkaClient {{ }};'
    sections = jaas.parse_jaas_file(text)
    assert [module.options for module in sections["KafkaServer"]] == [{"a": "b"}, {}]
    assert sections["KafkaClient"] == ()
    for wrong in ("KafkaServer", "KafkaServer {", f"KafkaServer {{ {PLAIN} required; }}", "a {}; a {};", "{}", "1 {};"):
        with pytest.raises(jaas.JaasError):
            jaas.parse_jaas_file(wrong)


def test_no_error_tells_a_value() -> None:
    for text in ('M required user_a="s3cret"', "M required a=b 's3cret'=5;", 'M required a="s3cret" 7;'):
        with pytest.raises(jaas_module.JaasError) as refused:
            jaas_module.parse_jaas(text)
        assert "s3cret" not in str(refused.value) or text.startswith("M required a=b")
    assert "s3cret" not in repr(jaas_module.parse_jaas('M required user_a="s3cret";'))


@given(st.text(alphabet="aM=\"';\\/*\n 17.-_${}é", max_size=60))
@settings(max_examples=500, deadline=None)
def test_no_text_breaks_the_parser(text: str) -> None:
    options_of(jaas_module, text)
    with suppress(jaas_module.JaasError):
        jaas_module.parse_jaas_file(text)


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ('text[at] not in (quote, "\\r", "\\n")', "text[at] != quote", test_texts_are_read_as_kafka_reads_them),
    ('most = 3 if text[at] <= "3" else 2', "most = 3", test_texts_are_read_as_kafka_reads_them),
    ('char in "_$-."', 'char in "_$-.#"', test_texts_are_read_as_kafka_reads_them),
    (
        '_DIGITS: Final = frozenset("0123456789.-")',
        '_DIGITS: Final = frozenset("")',
        test_texts_are_read_as_kafka_reads_them,
    ),
    ("        if len(modules) > 1:", "        if False:", test_there_is_one_module),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(jaas_module, right, wrong, rule)
