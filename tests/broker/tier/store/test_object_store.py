"""The object store's operations, against a local directory, moto's S3 and servers with faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.object_stores import SECRET_KEY, faulty_s3, local_options, moto_s3, s3_options
from support.serving import on_trio

from trioka.broker.config.layers import Config, ConfigError
from trioka.broker.config.tier_url import tier_url_problem
from trioka.broker.config.trioka_keys import TIER_SECRET_KEY
from trioka.broker.config.validation import validate_broker
from trioka.broker.tier.store.object_store import (
    PART_BYTES,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreRefused,
    ObjectStoreTimeout,
)
from trioka.broker.tier.store.obstore_client import ObstoreClient, _off_the_loop, open_store
from trioka.broker.tier.store.probe import PROBE_PREFIX, check_conditional_create
from trioka.broker.tier.store.store_options import StoreOptions, store_options


def client(options: StoreOptions, threads: int = 8) -> ObstoreClient:
    return open_store(options, trio.CapacityLimiter(threads))


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_s3() as endpoint:
        yield endpoint


@pytest.fixture(params=["file", "moto"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> StoreOptions:
    if request.param == "file":
        return local_options(tmp_path / "bucket")
    return s3_options(request.getfixturevalue("moto"))


@on_trio
async def test_what_is_put_is_read_as_a_whole_and_by_ranges(options: StoreOptions) -> None:
    store = client(options)
    await store.put("t/0/a.log", b"0123456789")
    assert bytes(await store.get("t/0/a.log")) == b"0123456789"
    view = await store.get_range("t/0/a.log", 2, 3)
    assert isinstance(view, memoryview) and bytes(view) == b"234"
    assert bytes(await store.get_range("t/0/a.log", 8, 100)) == b"89"
    assert await store.size("t/0/a.log") == 10
    await store.delete(["t/0/a.log"])


@on_trio
async def test_the_second_create_of_a_key_changes_nothing(options: StoreOptions) -> None:
    store = client(options)
    assert await store.create("t/0/c", b"first")
    assert not await store.create("t/0/c", b"other")
    assert await store.create("t/0/c", b"first"), "the same bytes: a response that was lost"
    assert bytes(await store.get("t/0/c")) == b"first"
    await store.delete(["t/0/c"])


@on_trio
async def test_a_listing_has_names_sizes_and_times_and_ends_at_its_folder(options: StoreOptions) -> None:
    store = client(options)
    keys = ["l-x/0/1", "l-x/0/2", "l-x/1/1", "l-xy/0/1"]
    for key in reversed(keys):
        await store.put(key, b"x" * len(key))
    found = await store.list("l-x/")
    assert [each.key for each in found] == keys[:3]
    assert found[0].size == 7 and found[0].last_modified_ms > 1_500_000_000_000
    assert await store.list("l-none/") == []
    await store.delete(keys)
    assert await store.list("l-x/") == []


@on_trio
async def test_a_deletion_of_missing_keys_is_no_error(options: StoreOptions) -> None:
    store = client(options)
    await store.put("d/here", b"1")
    await store.delete(["d/missing", "d/here", "d/missing too"])
    assert await store.list("d/") == []


@on_trio
async def test_a_missing_object_is_reported_as_such(options: StoreOptions) -> None:
    store = client(options)
    for read in (store.get("no/thing"), store.get_range("no/thing", 0, 5), store.size("no/thing")):
        with pytest.raises(ObjectNotFound):
            await read


@on_trio
async def test_an_object_that_is_too_large_is_not_loaded(options: StoreOptions) -> None:
    store = client(options)
    await store.put("g/large", b"x" * 1000)
    with pytest.raises(ObjectStoreError, match="1000 bytes, more than 999"):
        await store.get("g/large", max_bytes=999)
    await store.delete(["g/large"])


@on_trio
async def test_an_upload_in_parts_appears_when_it_is_closed(options: StoreOptions) -> None:
    store = client(options)
    writer = await store.open_writer("w/large")
    part = bytes(range(256)) * (PART_BYTES // 256)
    await writer.write(memoryview(part))
    await writer.write(b"rest")
    assert await store.list("w/") == []
    await writer.close()
    assert await store.size("w/large") == PART_BYTES + 4
    assert bytes(await store.get_range("w/large", PART_BYTES - 1, 5)) == b"\xffrest"
    with pytest.raises(ObjectStoreError, match="failed before, or was abandoned"):
        await writer.write(b"more")
    await store.delete(["w/large"])


@on_trio
async def test_an_abandoned_upload_never_appears(options: StoreOptions) -> None:
    store = client(options)
    writer = await store.open_writer("w/abandoned")
    await writer.write(b"x" * PART_BYTES)
    writer.abandon()
    with pytest.raises(ObjectStoreError, match="abandoned"):
        await writer.close()
    assert await store.list("w/") == []


@on_trio
async def test_a_store_with_conditional_writes_passes_the_probe(options: StoreOptions) -> None:
    store = client(options)
    await check_conditional_create(store, "unused-name")
    assert await store.list(PROBE_PREFIX) == []


@on_trio
async def test_a_store_without_conditional_writes_is_refused() -> None:
    refused = pytest.raises(ObjectStoreRefused, match=r"does not honour conditional writes .* 9 of 9 attempts")
    with faulty_s3("unconditional") as endpoint, refused:
        await check_conditional_create(client(s3_options(endpoint)), "unused-name")


@on_trio
async def test_a_store_that_cannot_be_reached_is_refused() -> None:
    store = client(s3_options("http://127.0.0.1:1", timeout_ms=1000, retries=0))
    with pytest.raises(ObjectStoreError, match="error sending request"):
        await check_conditional_create(store, "unused-name")


@on_trio
async def test_a_create_whose_response_was_lost_succeeds() -> None:
    with faulty_s3("lost") as endpoint:
        assert await client(s3_options(endpoint)).create("manifest", b"mine")


@on_trio
async def test_a_request_that_hangs_ends_and_gives_its_thread_back() -> None:
    with faulty_s3("hangs") as endpoint:
        store = client(s3_options(endpoint, timeout_ms=200, retries=1), threads=1)
        for _ in range(2):
            with pytest.raises(ObjectStoreError):
                await store.put("x", b"1")


@on_trio
async def test_a_request_waits_for_a_thread_only_until_its_deadline() -> None:
    limiter = trio.CapacityLimiter(1)
    limiter.acquire_on_behalf_of_nowait("a request that hangs")
    store = open_store(s3_options("http://127.0.0.1:1", timeout_ms=100), limiter)
    with pytest.raises(ObjectStoreTimeout, match="get x: no answer within"):
        await store.get("x", max_bytes=1000)


@on_trio
async def test_an_error_names_the_object_and_shows_no_secret() -> None:
    with faulty_s3("denied") as endpoint:
        options = s3_options(endpoint)
        with pytest.raises(ObjectStoreError, match="s3://tier/cluster: put some/key: ") as raised:
            await client(options).put("some/key", b"1")
        assert SECRET_KEY not in str(raised.value) + repr(raised.value) + repr(options)
        assert len(str(raised.value)) < 400


@on_trio
async def test_a_request_on_the_event_loop_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="would block the event loop"):
        _off_the_loop(lambda: None)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://bucket", None),
        ("gs://bucket/a/b", None),
        ("az://container/x", None),
        ("file:///var/lib/tier", None),
        ("s3://", "must name a bucket"),
        ("file://host/path", "must name an absolute directory, as in file:///var/lib/tier"),
        ("file:///", "must name an absolute directory, as in file:///var/lib/tier"),
        ("http://host/x", "must begin with one of s3://, gs://, az://, file://"),
        ("bucket", "must begin with one of s3://, gs://, az://, file://"),
        ("s3://key:secret@bucket", "must not contain credentials"),
        ("s3://bucket?x=1", "must not have a query or a fragment"),
        ("s3://[bucket", "is not a URL"),
    ],
)
def test_a_url_is_checked(url: str, problem: str | None) -> None:
    assert tier_url_problem(url) == problem


@on_trio
async def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ObjectStoreRefused, match=r"file/inside cannot be used"):
        client(local_options(tmp_path / "file" / "inside"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"remote.log.storage.system.enable": "true"},
            "remote.log.storage.system.enable is true, which requires trioka.tier.url.",
        ),
        (
            {"trioka.tier.url": "s3://b"},
            "trioka.tier.url is set, which requires remote.log.storage.system.enable=true.",
        ),
        (
            {"remote.log.storage.system.enable": "true", "trioka.tier.url": "s3://b", "trioka.tier.access.key": "a"},
            "trioka.tier.access.key and trioka.tier.secret.key must be set together.",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        validate_broker(Config(settings))
    assert str(raised.value) == problem


def test_settings_become_options_of_the_store_and_secrets_stay_hidden() -> None:
    config = Config(
        {
            "trioka.tier.url": "s3://bucket/prefix",
            "trioka.tier.endpoint": "http://localhost:9000",
            "trioka.tier.access.key": "name",
            "trioka.tier.secret.key": SECRET_KEY,
            "trioka.tier.path.style": "false",
        }
    )
    options = store_options(config)
    assert options is not None and (options.access_key, options.secret_key) == ("name", SECRET_KEY)
    assert not options.path_style and SECRET_KEY not in repr(options) + repr(config[TIER_SECRET_KEY])
    assert store_options(Config({})) is None
