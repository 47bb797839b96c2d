"""The walk that decides whether a batch can be read: both of its versions agree with the careful decoder, on any bytes,
and neither looks outside of the records.
"""

import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed

from trioka.protocol import record_walk
from trioka.protocol.errors import InvalidRecord
from trioka.protocol.record import NO_TIMESTAMP, BatchContext, Record, encode, spans
from trioka.protocol.record_walk import NO_RECORD_HAS_A_TIMESTAMP, Walked

SOURCE = Path(record_walk.__file__).with_name("_record_walk.c")
COMPILER = shlex.split(sysconfig.get_config_var("CC") or "cc")
PLAIN = "0c 00 00 00 01 01 00"
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL_BYTES = st.none() | st.binary(max_size=70)


def compiled(folder: Path, source: str) -> Path:
    """The extension of this source."""
    file, library = folder / "_record_walk.c", folder / "_record_walk.abi3.so"
    file.write_text(source)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(
        [*COMPILER, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", include, file, "-o", library],
        check=True,
        timeout=120,
    )
    return library


def loaded(library: Path) -> ModuleType:
    loader = ExtensionFileLoader("_record_walk", str(library))
    spec = spec_from_loader("_record_walk", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(COMPILER[0]) is None:
        pytest.skip("there is no C compiler")
    return compiled(tmp_path_factory.mktemp("walk"), SOURCE.read_text())


@pytest.fixture(scope="module", params=["python", "compiled"])
def walking(request: pytest.FixtureRequest) -> ModuleType:
    """Each of the two, with its function under the same name."""
    if request.param == "compiled":
        return loaded(request.getfixturevalue("library"))
    module = ModuleType("walking")
    module.walk = record_walk.walk_in_python  # type: ignore[attr-defined]
    return module


def as_decoded(data: bytes, count: int, base_timestamp: int) -> Walked | None:
    """What the careful decoder makes of it. Offsets that increase, from 0 to count - 1, leave no gap."""
    try:
        found = list(spans(data, BatchContext(0, count - 1, base_timestamp, None, count)))
    except InvalidRecord:
        return None
    times = [span.timestamp for span in found]
    return (
        min((time for time in times if time != NO_TIMESTAMP), default=NO_RECORD_HAS_A_TIMESTAMP),
        max([NO_TIMESTAMP, *times]),
        sum(span.key is None for span in found),
    )


def walked(module: ModuleType, data: bytes, count: int = 1, base_timestamp: int = 0) -> Walked | None:
    """Of records that stand in the middle of something else, which must not matter."""
    surrounded = b"\x0c\0\0" + data + bytes.fromhex(PLAIN)
    found: Walked | None = module.walk(memoryview(surrounded), 3, 3 + len(data), count, base_timestamp)
    assert found == module.walk(bytearray(data), 0, len(data), count, base_timestamp)
    return found


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """Sound records, how many they are, and their base timestamp."""
    base_timestamp = draw(st.sampled_from([0, -1, 1_700_000_000_000]) | INT64)
    times = INT64 | st.integers(base_timestamp - 100, base_timestamp + 100) | st.just(NO_TIMESTAMP)
    headers = st.lists(st.tuples(st.text(max_size=3), SMALL_BYTES), max_size=2).map(tuple)
    made = [
        Record(
            index, min(max(draw(times), -(1 << 63)), (1 << 63) - 1), draw(SMALL_BYTES), draw(SMALL_BYTES), draw(headers)
        )
        for index in range(draw(st.integers(0, 5)))
    ]
    data = b"".join(encode(each, base_offset=0, base_timestamp=base_timestamp) for each in made)
    return data, len(made), base_timestamp


@given(batches())
def test_sound_records_are_walked_to_their_end(walking: ModuleType, batch: tuple[bytes, int, int]) -> None:
    found = walked(walking, *batch)
    assert found is not None
    assert found == as_decoded(*batch)


@given(batches(), st.integers(-3, 3), st.data())
def test_damaged_records_are_read_or_refused_as_the_decoder_does(
    walking: ModuleType, batch: tuple[bytes, int, int], more: int, data: st.DataObject
) -> None:
    """Flipped bits, bytes taken away or put in, another count."""
    content, count, base_timestamp = batch
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(len(changed) - 1, 0)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "set"])):
            case "flip" if changed:
                changed[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set" if changed:
                changed[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "cut":
                del changed[at : at + data.draw(st.integers(1, 3))]
            case _:
                changed[at:at] = data.draw(st.binary(min_size=1, max_size=3))
    assert walked(walking, bytes(changed), count + more, base_timestamp) == as_decoded(
        bytes(changed), count + more, base_timestamp
    )


@given(st.binary(max_size=60), st.integers(-2, 9), INT64)
@example(bytes.fromhex("14 00 00 00 fe ff ff ff 0f 01 00"), 1, 0)
def test_any_bytes_are_read_or_refused_as_the_decoder_does(
    walking: ModuleType, data: bytes, count: int, base_timestamp: int
) -> None:
    assert walked(walking, data, count, base_timestamp) == as_decoded(data, count, base_timestamp)


@pytest.mark.slow
def test_every_byte_of_a_batch_changed_to_every_value_is_judged_as_the_decoder_does(walking: ModuleType) -> None:
    sound = [
        Record(0, 1_000, b"key", b"value" * 30, (("name", b"x"), ("ü", None))),
        Record(1, 990, None, b"", ()),
        Record(2, 1_000_000, b"k" * 100, None, (("", b""),)),
    ]
    data = b"".join(encode(each, base_offset=0, base_timestamp=1_000) for each in sound)
    assert walked(walking, data, 3, 1_000) == (990, 1_000_000, 1)
    for position in range(len(data)):
        for value in range(256):
            changed = bytearray(data)
            changed[position] = value
            assert walked(walking, bytes(changed), 3, 1_000) == as_decoded(bytes(changed), 3, 1_000)


def test_many_records_are_walked_over(walking: ModuleType) -> None:
    """Offsets of one, two and three bytes."""
    data = b"".join(encode(Record(n, n, b"k", b"v" * 100), base_offset=0, base_timestamp=0) for n in range(10_000))
    assert walked(walking, data, 10_000) == (0, 9_999, 0)


POISON = {
    "fewer records than announced": (PLAIN, 2),
    "more records than announced": (PLAIN + "0c 00 00 02 01 01 00", 1),
    "two records with one offset": (PLAIN + PLAIN, 2),
    "a gap between offsets": (PLAIN + "0c 00 00 04 01 01 00", 2),
    "a first offset that is not 0": ("0c 00 00 02 01 01 00", 1),
    "bytes behind the records": (PLAIN + "00", 1),
    "a length below the content": ("0a 00 00 00 01 01 00", 1),
    "a length beyond the batch": ("0e 00 00 00 01 01 00", 1),
    "a length into the next record": ("0e 00 00 00 01 01 00 0c 00 00 02 01 01 00", 2),
    "a byte behind the headers": ("0e 00 00 00 01 01 00 00", 1),
    "a negative length": ("01 00 00 00 01 01 00", 1),
    "a negative length where 6 would be right": ("0d 00 00 00 01 01 00", 1),
    "a header value beyond the batch": ("18 00 00 00 01 01 02 00 08 61", 1),
    "no length": ("00", 1),
    "a length that does not end": ("ff ff ff ff ff", 1),
    "a key beyond the record": ("0c 00 00 00 20 01 00", 1),
    "a key of 2³¹-1 bytes": ("14 00 00 00 fe ff ff ff 0f 01 00", 1),
    "a value beyond the record": ("0c 00 00 00 01 20 00", 1),
    "a negative number of headers": ("0c 00 00 00 01 01 01", 1),
    "2³¹-1 headers": ("14 00 00 00 01 01 fe ff ff ff 0f", 1),
    "a header without a key": ("10 00 00 00 01 01 02 01 01", 1),
    "a header key beyond the record": ("10 00 00 00 01 01 02 40 01", 1),
    "a header value beyond the record": ("10 00 00 00 01 01 02 00 40", 1),
    "a varint of six bytes": ("16 00 00 80 80 80 80 80 00 01 01 00", 1),
    "a varint of 35 bits": ("14 00 00 80 80 80 80 70 01 01 00", 1),
    "a varlong of eleven bytes": ("20 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00", 1),
    "a varlong of 70 bits": ("1e 00 80 80 80 80 80 80 80 80 80 7e 00 01 01 00", 1),
    "a count below nought": ("", -1),
}


def refuses(name: str) -> Rule:
    def rule(module: ModuleType) -> None:
        wire, count = POISON[name]
        data = bytes.fromhex(wire)
        assert as_decoded(data, count, 0) is None
        assert walked(module, data, count) is None

    return rule


@pytest.mark.parametrize("name", POISON)
def test_poison_is_refused(walking: ModuleType, name: str) -> None:
    refuses(name)(walking)


def test_a_timestamp_wraps_as_javas_long_does(walking: ModuleType) -> None:
    data = bytes.fromhex("1e 00 ff ff ff ff ff ff ff ff ff 01 00 01 01 00")
    assert walked(walking, data, base_timestamp=-5) == ((1 << 63) - 5, (1 << 63) - 5, 1)


def finds_the_oldest_and_the_newest(module: ModuleType) -> None:
    made = [
        Record(0, 5, b"", b""),
        Record(1, NO_TIMESTAMP, None, None),
        Record(2, 3, None, b""),
        Record(3, 9, b"", b""),
    ]
    data = b"".join(encode(each, base_offset=0, base_timestamp=5) for each in made)
    assert walked(module, data, 4, 5) == (3, 9, 2)
    timeless = encode(made[1], base_offset=1, base_timestamp=5)
    assert walked(module, timeless, 1, 5) == (NO_RECORD_HAS_A_TIMESTAMP, NO_TIMESTAMP, 1)


def test_the_oldest_the_newest_and_the_keys_that_are_missing_are_reported(walking: ModuleType) -> None:
    finds_the_oldest_and_the_newest(walking)


def stays_within_the_buffer(module: ModuleType) -> None:
    for start, end in ((-1, 3), (3, 2), (0, 8)):
        with pytest.raises(ValueError, match="within the buffer"):
            module.walk(bytes(7), start, end, 1, 0)


def test_a_range_outside_of_the_buffer_is_a_mistake_of_the_caller(walking: ModuleType) -> None:
    stays_within_the_buffer(walking)


@pytest.mark.parametrize(
    "wrong",
    [(), (b"", 0, 0, 0), (b"", 0, 0, 0, 0, 0), ("text", 0, 0, 0, 0), (b"", "0", 0, 0, 0), (b"", 0, 0, 1 << 64, 0)],
)
def test_the_compiled_walk_refuses_arguments_that_it_cannot_use(library: Path, wrong: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        loaded(library).walk(*wrong)


# --- nothing is read behind the records: they end where memory ends

AT_THE_EDGE = """
import ctypes, mmap, sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader

loader = ExtensionFileLoader("_record_walk", sys.argv[1])
module = module_from_spec(spec_from_loader("_record_walk", loader))
loader.exec_module(module)
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
for line in sys.stdin:
    count, data = line.split(",")
    data = bytes.fromhex(data)
    start = page - len(data)
    memory[start:page] = data
    print(module.walk(memory, start, page, int(count), 0))
"""


def hostile_cases() -> list[tuple[int, bytes]]:
    """Every beginning of sound records, of poison, and of both with some bytes set to what makes a reader go on."""
    random = Random(1)
    made = [Record(n, n * 1_000_000, b"key", b"value" * n * 20, (("name", b"x"), ("n", None))) for n in range(3)]
    sound = b"".join(encode(each, base_offset=0, base_timestamp=0) for each in made)
    cases = [(3, sound[:end]) for end in range(len(sound) + 1)]
    for wire, count in POISON.values():
        data = bytes.fromhex(wire)
        cases += [(count, data[:end]) for end in range(len(data) + 1)]
    for _ in range(3000):
        count, data = random.choice(cases)
        changed = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            if changed:
                changed[random.randrange(len(changed))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
        cases.append((count, bytes(changed)))
    return cases


def never_reads_behind_the_records(library: Path) -> None:
    cases = hostile_cases()
    requested = "".join(f"{count},{data.hex()}\n" for count, data in cases)
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_EDGE, str(library)], input=requested, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"it died of {done.returncode}: {done.stderr}"
    assert done.stdout.splitlines() == [str(as_decoded(data, count, 0)) for count, data in cases]


def test_the_compiled_walk_never_reads_behind_the_records(library: Path) -> None:
    never_reads_behind_the_records(library)


# --- each of these rules notices its mistake

MISTAKES: list[tuple[str, str, Rule]] = [
    ("if not 0 <= start <= end <= len(view):", "if False:", stays_within_the_buffer),
    ("except (IndexError, InvalidRecord):", "except InvalidRecord:", refuses("a header key beyond the record")),
    ("except (IndexError, InvalidRecord):", "except IndexError:", refuses("a varint of six bytes")),
    ("if low & 1:", "if False:", refuses("a negative length where 6 would be right")),
    ("timestamp = int64(timestamp)", "pass", test_a_timestamp_wraps_as_javas_long_does),
    ("if timestamp > newest:", "if False:", finds_the_oldest_and_the_newest),
    ("and timestamp != NO_TIMESTAMP:", ":", finds_the_oldest_and_the_newest),
    ("if delta != index:", "if delta > index:", refuses("two records with one offset")),
    ("if delta != index:", "if delta < index:", refuses("a gap between offsets")),
    ("without_key += 1", "pass", finds_the_oldest_and_the_newest),
    ("if position != end:", "if False:", refuses("a length into the next record")),
    ("position == size and", "True and", refuses("bytes behind the records")),
    ("position == size and", "position >= size and", refuses("a header value beyond the batch")),
    ("position == size and count >= 0", "position == size", refuses("a count below nought")),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    def in_python(module: ModuleType) -> None:
        requested = ModuleType("asked")
        requested.walk = module.walk_in_python  # type: ignore[attr-defined]
        rule(requested)

    assert_noticed(record_walk, right, wrong, in_python)


COMPILED_MISTAKES = [
    ("if (cursor->at == cursor->end)", "if (0)"),
    ("if (room < 7 && (byte & 0x7f) >> room != 0)", "if (0 && room)"),
    ("if (*length > cursor->end - cursor->at)", "if (0)"),
    ("|| count < 0)", ")"),
    ("|| length < 0 ||", "||"),
    ("length < 1 ||", ""),
    ("|| length > payload->end - payload->at)", ")"),
    ("|| delta != offset_delta)", "|| (delta != offset_delta && 0))"),
    ("if (record.at != record.end)", "if (0)"),
    ("payload.at == payload.end", "payload.at <= payload.end"),
]


@pytest.mark.parametrize(("right", "wrong"), COMPILED_MISTAKES)
@pytest.mark.usefixtures("library")
def test_a_mistake_planted_in_the_compiled_walk_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    source = SOURCE.read_text()
    assert source.count(right) == 1
    with pytest.raises(AssertionError):
        never_reads_behind_the_records(compiled(tmp_path, source.replace(right, wrong)))
