"""Client of the workers' byte channel: bodies of any size in constant memory, straight to the owner.

``GET|PUT {data_endpoint}/internal/v1/raw`` and ``…/archive`` with a signed envelope (task ``raw.read``, ``raw.write``,
``archive.read`` or ``archive.write``; arguments ``sandbox_id, generation, worker_id, worker_epoch`` and ``path`` or
``path_base64``, for ``raw.write`` also ``mode, max_bytes``) as base64 of its JSON in the header
``X-Sandloom-Envelope``. Errors come back as problem+json.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from sandloom.broker.envelope import SigningKey, seal
from sandloom.contracts.files import path_fields
from sandloom.errors import SandloomError, Unavailable, WorkerLost
from sandloom.sandboxes.records import Route

ENVELOPE_HEADER = "X-Sandloom-Envelope"
#: How long a call may take from its signing to its arrival; the transfer itself may take longer.
ARRIVAL_SECONDS = 60.0


@dataclass(slots=True)
class RawFile:
    """An open download: ``length`` bytes from ``start`` of ``size``. Iterate ``chunks`` once, then ``close``."""

    size: int
    start: int
    length: int
    partial: bool
    chunks: Iterator[bytes]
    _response: httpx.Response = field(repr=False)

    def close(self) -> None:
        self._response.close()


@dataclass(slots=True)
class Archive:
    """An open tar archive. Iterate ``chunks`` once, then ``close``; one that is cut off raises Unavailable."""

    chunks: Iterator[bytes]
    _response: httpx.Response = field(repr=False)

    def close(self) -> None:
        self._response.close()


class ByteChannel:
    """One pool of connections to all workers; thread-safe."""

    def __init__(self, key: SigningKey, *, read_timeout_seconds: float = 60.0) -> None:
        self._key = key
        timeout = httpx.Timeout(read_timeout_seconds, connect=5.0)
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=32, keepalive_expiry=10.0)
        self._client = httpx.Client(timeout=timeout, limits=limits, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def read(self, route: Route, path: str, range_header: str | None = None) -> RawFile:
        """Open a file. Raises the worker's error, WorkerLost when it does not answer."""
        headers = {"Range": range_header} if range_header else {}
        response = self._get(route, "raw", path_fields(path), headers)
        length = int(response.headers["Content-Length"])
        start, size = 0, length
        if response.status_code == 206:
            span, total = response.headers["Content-Range"].removeprefix("bytes ").split("/")
            start, size = int(span.split("-")[0]), int(total)
        partial = response.status_code == 206
        return RawFile(size, start, length, partial, _chunks(response, length), response)

    def write(
        self, route: Route, path: str, chunks: Iterable[bytes], length_bytes: int | None, mode: int | None,
        max_bytes: int, op_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Replace a file by what ``chunks`` give; nothing is replaced unless all of it arrived."""
        arguments = {**path_fields(path), "mode": mode, "max_bytes": max_bytes}
        return self._put(route, "raw", arguments, chunks, length_bytes, op_id)

    def read_archive(self, route: Route, path: str) -> Archive:
        """Open the tar archive of a directory or file. Raises as ``read``."""
        response = self._get(route, "archive", path_fields(path), {})
        return Archive(_chunks(response, None), response)

    def write_archive(self, route: Route, path: str, chunks: Iterable[bytes]) -> dict[str, Any]:
        """Extract a tar archive into a directory."""
        return self._put(route, "archive", path_fields(path), chunks, None, None)

    def _get(self, route: Route, what: str, arguments: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        signed = self._headers(route, f"{what}.read", arguments)
        request = self._client.build_request("GET", _url(route, what), headers={**headers, **signed})
        response = self._send(request, stream=True)
        if response.status_code not in (200, 206):
            raise _error(response)
        return response

    def _put(
        self, route: Route, what: str, arguments: dict[str, Any], chunks: Iterable[bytes], length_bytes: int | None,
        op_id: str | None,
    ) -> dict[str, Any]:  # fmt: skip
        headers = self._headers(route, f"{what}.write", arguments, op_id)
        headers["Content-Type"] = "application/octet-stream"
        if length_bytes is not None:
            headers["Content-Length"] = str(length_bytes)
        request = self._client.build_request("PUT", _url(route, what), headers=headers, content=chunks)
        response = self._send(request, stream=False)
        if response.status_code != 200:
            raise _error(response)
        answer = response.json()
        assert isinstance(answer, dict)
        return answer

    def _headers(self, route: Route, task: str, arguments: dict[str, Any], op_id: str | None = None) -> dict[str, str]:
        envelope = seal(
            self._key,
            tenant_id=route.key.tenant_id,
            task=task,
            args={
                "sandbox_id": route.key.sandbox_id,
                "generation": route.generation,
                "worker_id": route.worker_id,
                "worker_epoch": route.worker_epoch,
                **arguments,
            },
            deadline_seconds_from_now=ARRIVAL_SECONDS,
            op_id=op_id,
        )
        return {ENVELOPE_HEADER: base64.b64encode(json.dumps(envelope).encode()).decode()}

    def _send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        try:
            return self._client.send(request, stream=stream)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise WorkerLost("The worker's byte channel does not answer.", retry_after_seconds=5) from error
        except httpx.HTTPError as error:
            raise Unavailable("The transfer to the worker broke; repeat the call.") from error


def _url(route: Route, what: str) -> str:
    return f"{route.data_endpoint}/internal/v1/{what}"


def _chunks(response: httpx.Response, length: int | None) -> Iterator[bytes]:
    """As they come, since putting them together costs more than all else here. Raises Unavailable when fewer bytes come
    than were promised, so that a cut transfer never looks whole."""
    sent = 0
    try:
        for chunk in response.iter_raw():
            sent += len(chunk)
            yield chunk
    except httpx.HTTPError as error:
        raise Unavailable("The transfer from the worker broke; repeat the call.") from error
    finally:
        response.close()
    if length is not None and sent != length:
        raise Unavailable("The file became shorter while it was sent; repeat the call.")


def _error(response: httpx.Response) -> SandloomError:
    try:
        problem = json.loads(response.read())
    except (ValueError, httpx.HTTPError):
        problem = None
    finally:
        response.close()
    if isinstance(problem, dict) and "code" in problem:
        return SandloomError.from_problem(problem)
    return Unavailable("The worker's byte channel gave an answer that is not understood.")
