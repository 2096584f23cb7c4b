"""The S3 store against a real server, and against one that fails."""

from __future__ import annotations

import hashlib
import itertools
import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from sandloom.errors import DigestMismatch, ObjectStoreUnavailable, SettingsInvalid
from sandloom.objects import ObjectMissing, ObjectStore, checked, open_object_store
from sandloom.objects.s3 import PART_BYTES, Patience, S3Store
from sandloom.settings import Settings
from tests.services.faulty import Fault, FaultyFront, faulty_front
from tests.services.rclone import S3Server

_buckets = itertools.count(1)
TWICE = Patience(attempts=2)


@pytest.fixture
def bucket() -> str:
    return f"objects-{next(_buckets)}"


@pytest.fixture
def store(s3: S3Server, bucket: str) -> ObjectStore:
    opened = open_object_store(Settings.load(s3.environment(bucket)))
    assert opened is not None
    return opened


@pytest.fixture
def front(s3: S3Server) -> Iterator[FaultyFront]:
    with faulty_front(s3.port) as front:
        yield front


@pytest.fixture
def behind(s3: S3Server, bucket: str, front: FaultyFront) -> S3Store:
    return S3Store.of(Settings.load(s3.environment(bucket, front.endpoint)), TWICE)


def read(store: ObjectStore, key: str) -> bytes:
    with store.get(key) as chunks:
        return b"".join(chunks)


def test_what_is_put_is_got_listed_and_deleted(store: ObjectStore):
    assert store.head("a/one") is None
    assert list(store.list("a/")) == []
    assert store.put("a/one", [b"12", b"", b"345"]) == 5
    assert store.put("a/two", []) == 0
    store.put("b/three", [b"x"])
    assert read(store, "a/one") == b"12345"
    assert read(store, "a/two") == b""
    assert [(info.key, info.size_bytes) for info in store.list("a/")] == [("a/one", 5), ("a/two", 0)]
    found = store.head("a/one")
    assert found is not None
    assert (found.key, found.size_bytes) == ("a/one", 5)
    assert found.modified_seconds > 1_600_000_000
    store.put("a/one", [b"other"])
    assert read(store, "a/one") == b"other"
    store.delete("a/one")
    store.delete("a/one")
    assert [info.key for info in store.list("")] == ["a/two", "b/three"]
    with pytest.raises(ObjectMissing), store.get("a/one"):
        raise AssertionError("entered")


def test_objects_lie_below_the_prefix(s3: S3Server, store: ObjectStore, bucket: str):
    store.put("k", [b"1"])
    assert (s3.files / bucket / "agent-sandbox" / "k").read_bytes() == b"1"


def test_a_large_object_passes_through_little_memory(store: ObjectStore):
    piece = hashlib.sha256(b"seed").digest() * 4096
    number = 5 * PART_BYTES // len(piece) + 3
    tracemalloc.start()
    try:
        assert store.put("large", (piece for _ in range(number))) == number * len(piece)
        digest = hashlib.sha256()
        with store.get("large") as chunks:
            for chunk in chunks:
                digest.update(chunk)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert digest.digest() == hashlib.sha256(piece * number).digest()
    assert peak_bytes < 4 * PART_BYTES < number * len(piece)


@pytest.mark.parametrize("size", [10, 2 * PART_BYTES])
def test_chunks_that_are_not_what_was_said_are_not_stored(store: ObjectStore, size: int):
    with pytest.raises(DigestMismatch):
        store.put("k", [b"x" * size], sha256="0" * 64)
    assert store.head("k") is None
    right = hashlib.sha256(b"x" * size).hexdigest()
    assert store.put("k", [b"x" * size], sha256=right) == size


def test_chunks_that_break_off_store_nothing(store: ObjectStore):
    def chunks() -> Iterator[bytes]:
        yield b"x" * (3 * PART_BYTES)
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        store.put("k", chunks())
    assert store.head("k") is None


def test_a_reader_finds_damage():
    right = hashlib.sha256(b"abc").hexdigest()
    assert b"".join(checked([b"a", b"bc"], right, 3)) == b"abc"
    for chunks, size in (([b"abd"], 3), ([b"ab"], 3), ([b"abc"], 4)):
        with pytest.raises(DigestMismatch):
            list(checked(chunks, right, size))
    endless = checked(itertools.repeat(b"a"), right, 3)
    with pytest.raises(DigestMismatch):
        list(endless)


# --- a server that fails ---


def test_wrong_keys_are_named_with_bucket_endpoint_and_code_and_without_the_secret(s3: S3Server, bucket: str):
    given = {**s3.environment(bucket), "SANDBOX_BLOBSTORE_SECRET_KEY": "not-the-secret"}
    store = open_object_store(Settings.load(given))
    assert store is not None
    with pytest.raises(ObjectStoreUnavailable) as raised:
        store.put("k", [b"1"])
    text = str(raised.value)
    assert bucket in text
    assert s3.endpoint in text
    assert "SignatureDoesNotMatch" in text
    assert raised.value.to_problem()["code"] == "OBJECT_STORE_UNAVAILABLE"
    assert raised.value.to_problem()["s3_code"] == "SignatureDoesNotMatch"
    assert "not-the-secret" not in repr(raised.value.to_problem())


def test_nobody_listens(s3: S3Server, bucket: str, front: FaultyFront, behind: S3Store):
    front.close()
    for call in (lambda: behind.head("k"), lambda: list(behind.list("")), lambda: behind.put("k", [b"1"])):
        with pytest.raises(ObjectStoreUnavailable, match="EndpointConnectionError"):
            call()


def test_one_error_is_tried_again_and_more_are_said(front: FaultyFront, behind: S3Store):
    front.fault = Fault("PUT", status=500, times=1)
    assert behind.put("k", [b"1"]) == 1
    front.fault = Fault("GET", status=500)
    front.asked.clear()
    with pytest.raises(ObjectStoreUnavailable, match="500"):
        read(behind, "k")
    assert front.asked["GET"] == TWICE.attempts
    front.fault = None
    assert read(behind, "k") == b"1"


def test_a_body_that_ends_early_is_no_whole_one(front: FaultyFront, behind: S3Store):
    behind.put("k", [b"x" * 100_000])
    front.fault = Fault("GET", cut_after=70_000)
    with pytest.raises(ObjectStoreUnavailable):
        read(behind, "k")


def test_a_server_that_holds_its_answer_is_not_waited_for(
    s3: S3Server, bucket: str, front: FaultyFront, store: ObjectStore
):
    store.put("k", [b"x" * 100_000])
    front.fault = Fault("GET", hold=threading.Event())
    hasty = Patience(read_seconds=1, attempts=1)
    with pytest.raises(ObjectStoreUnavailable, match="Timeout"):
        read(S3Store.of(Settings.load(s3.environment(bucket, front.endpoint)), hasty), "k")


def test_a_body_that_trickles_is_given_up(s3: S3Server, bucket: str, store: ObjectStore):
    store.put("k", [b"x" * 600_000])
    slow = Patience(grace_seconds=0, least_bytes_per_second=10**15)
    with pytest.raises(ObjectStoreUnavailable, match="TooSlow"):
        read(S3Store.of(Settings.load(s3.environment(bucket)), slow), "k")


def test_bytes_that_changed_on_the_way_are_found_by_the_digest(front: FaultyFront, behind: S3Store):
    behind.put("k", [b"x" * 1000])
    front.fault = Fault("GET", flip=True)
    with behind.get("k") as chunks, pytest.raises(DigestMismatch):
        list(checked(chunks, hashlib.sha256(b"x" * 1000).hexdigest()))


# --- settings ---


def test_which_store_the_settings_mean(monkeypatch: pytest.MonkeyPatch):
    assert open_object_store(Settings.load({})) is None
    given = {"SANDBOX_OBJECT_STORE_BACKEND": "disabled", "SANDBOX_BLOBSTORE_BUCKET": "kept"}
    assert open_object_store(Settings.load(given)) is None
    assert isinstance(open_object_store(Settings.load({"BLOBSTORE_BUCKET": "kept"})), S3Store)
    with pytest.raises(SettingsInvalid, match="SANDBOX_BLOBSTORE_BUCKET"):
        Settings.load({"SANDBOX_OBJECT_STORE_BACKEND": "s3"})
    with pytest.raises(SettingsInvalid, match="entry points"):
        open_object_store(Settings.load({"SANDBOX_OBJECT_STORE_BACKEND": "elsewhere"}))
