"""An S3-compatible store over boto3."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from sandloom.clock import monotonic_seconds
from sandloom.errors import DigestMismatch, ObjectStoreUnavailable, SettingsInvalid
from sandloom.objects.contract import ObjectInfo, ObjectMissing
from sandloom.objects.digests import Sha256, parts_of
from sandloom.settings.urls import masked

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

    from sandloom.settings import Settings

T = TypeVar("T")

#: Parts of one object: at most 10,000, hence 80 GB. Few of them are in memory at a time.
PART_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
_MISSING = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchBucket"})
_OWN_BUCKET = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a store may take. A body must come at ``least_bytes_per_second`` on average after ``grace_seconds``."""

    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    attempts: int = 3
    grace_seconds: float = 60.0
    least_bytes_per_second: int = 64 * 1024


class S3Store:
    """``prefix`` is put before every key. The bucket is made by the first object that finds it missing."""

    def __init__(self, client: S3Client, bucket: str, prefix: str, patience: Patience) -> None:
        self._s3 = client
        self._bucket = bucket
        self._prefix = prefix
        self._patience = patience
        self._place = f"bucket {bucket!r} at {masked(client.meta.endpoint_url)}"

    @classmethod
    def of(cls, settings: Settings, patience: Patience | None = None) -> S3Store:
        """Raises SettingsInvalid when no bucket is named, or the endpoint is no URL."""
        if not settings.blobstore_bucket:
            raise SettingsInvalid("SANDBOX_BLOBSTORE_BUCKET is required by SANDBOX_OBJECT_STORE_BACKEND=s3")
        patience = patience or Patience()
        config = Config(
            connect_timeout=patience.connect_seconds,
            read_timeout=patience.read_seconds,
            retries={"total_max_attempts": patience.attempts, "mode": "standard"},
            tcp_keepalive=True,
            # Names in paths: the endpoint of a private store seldom has a certificate or a name for each bucket.
            s3={"addressing_style": "path" if settings.blobstore_endpoint else "auto"},
            # Not every compatible store knows the newer checksums; Content-MD5 is sent instead.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            client: Any = boto3.session.Session().client(
                "s3",
                endpoint_url=settings.blobstore_endpoint,
                region_name=settings.blobstore_region,
                aws_access_key_id=settings.blobstore_access_key.get_secret_value() or None,
                aws_secret_access_key=settings.blobstore_secret_key.get_secret_value() or None,
                config=config,
            )
        except (ValueError, BotoCoreError) as error:
            raise SettingsInvalid(f"SANDBOX_BLOBSTORE_*: no S3 client can be made ({type(error).__name__})") from error
        return cls(client, settings.blobstore_bucket, settings.blobstore_base_prefix, patience)

    def put(self, key: str, chunks: Iterable[bytes], *, sha256: str | None = None) -> int:
        digest = Sha256()
        parts = parts_of(digest.over(chunks), PART_BYTES)
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            _expect(digest, sha256)
            self._with_bucket("PutObject", lambda: self._s3.put_object(**self._of(key), Body=first, **_md5(first)))
        else:
            begun = iter([first, second])
            del first, second
            self._put_parts(key, chain(begun, parts), lambda: _expect(digest, sha256))
        return digest.size_bytes

    def _put_parts(self, key: str, parts: Iterable[bytes], check: Callable[[], None]) -> None:
        made = self._with_bucket("CreateMultipartUpload", lambda: self._s3.create_multipart_upload(**self._of(key)))
        upload: Any = {**self._of(key), "UploadId": made["UploadId"]}
        done: list[Any] = []

        def send(part: bytes) -> None:
            number = len(done) + 1
            answer = self._do(
                "UploadPart", lambda: self._s3.upload_part(**upload, PartNumber=number, Body=part, **_md5(part))
            )
            done.append({"PartNumber": number, "ETag": answer["ETag"]})

        try:
            for part in parts:
                send(part)
            check()
            self._do(
                "CompleteMultipartUpload",
                lambda: self._s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": done}),
            )
        except BaseException:
            self._abort(upload)
            raise

    def _abort(self, upload: Any) -> None:
        # What was asked for failed already, and that error says more.
        with suppress(ObjectStoreUnavailable):
            self._do("AbortMultipartUpload", lambda: self._s3.abort_multipart_upload(**upload))

    @contextmanager
    def get(self, key: str) -> Iterator[Iterator[bytes]]:
        try:
            answer = self._do("GetObject", lambda: self._s3.get_object(**self._of(key)))
        except ObjectStoreUnavailable as error:
            if _is_missing(error):
                raise ObjectMissing(key) from None
            raise
        with closing(answer["Body"]) as body:
            yield self._body(body)

    def _body(self, body: Any) -> Iterator[bytes]:
        began, received = monotonic_seconds(), 0
        while True:
            try:
                chunk = body.read(CHUNK_BYTES)
            except (BotoCoreError, HTTPError, OSError) as error:
                raise self._unavailable("GetObject", type(error).__name__) from error
            if not chunk:
                return
            received += len(chunk)
            seconds = monotonic_seconds() - began - self._patience.grace_seconds
            if seconds > 0 and received < seconds * self._patience.least_bytes_per_second:
                raise self._unavailable("GetObject", "TooSlow")
            yield chunk

    def head(self, key: str) -> ObjectInfo | None:
        try:
            answer = self._do("HeadObject", lambda: self._s3.head_object(**self._of(key)))
        except ObjectStoreUnavailable as error:
            if _is_missing(error):
                return None
            raise
        return ObjectInfo(key, answer["ContentLength"], answer["LastModified"].timestamp())

    def delete(self, key: str) -> None:
        try:
            self._do("DeleteObject", lambda: self._s3.delete_object(**self._of(key)))
        except ObjectStoreUnavailable as error:
            if not _is_missing(error):
                raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        pages = iter(
            self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
        )
        while True:
            try:
                page = self._do("ListObjectsV2", lambda: next(pages, None))
            except ObjectStoreUnavailable as error:
                if _is_missing(error):
                    return
                raise
            if page is None:
                return
            for item in page.get("Contents", ()):
                key = item["Key"].removeprefix(self._prefix)
                yield ObjectInfo(key, item["Size"], item["LastModified"].timestamp())

    # --- inside ---

    def _of(self, key: str) -> Any:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _with_bucket(self, operation: str, call: Callable[[], T]) -> T:
        try:
            return self._do(operation, call)
        except ObjectStoreUnavailable as error:
            if not _is_missing(error):
                raise
        self._make_bucket()
        return self._do(operation, call)

    def _make_bucket(self) -> None:
        region = self._s3.meta.region_name
        where: Any = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            self._do("CreateBucket", lambda: self._s3.create_bucket(Bucket=self._bucket, **where))
        except ObjectStoreUnavailable as error:
            if error.extra.get("s3_code") not in _OWN_BUCKET:
                raise

    def _do(self, operation: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "")) or "no code"
            raise self._unavailable(operation, code) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise self._unavailable(operation, type(error).__name__) from error

    def _unavailable(self, operation: str, code: str) -> ObjectStoreUnavailable:
        return ObjectStoreUnavailable(f"The object store failed: {operation} on {self._place}: {code}.", s3_code=code)


def _is_missing(error: ObjectStoreUnavailable) -> bool:
    """Whether the store says that there is no such object, or no such bucket."""
    return error.extra.get("s3_code") in _MISSING


def _md5(body: bytes) -> Any:
    return {"ContentMD5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()}


def _expect(digest: Sha256, sha256: str | None) -> None:
    if sha256 is not None and digest.hexdigest != sha256:
        raise DigestMismatch
