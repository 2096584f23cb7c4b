"""Publishing to Redis without a client in between: one command with the bytes that kombu's transport would push."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sandloom.broker.message import CONTENT_ENCODING, CONTENT_TYPE, DELIVERY_MODE, TaskMessage

#: What kombu accepts in a URL and redis-py does not.
_CERTIFICATE_WORDS: Final = {"CERT_REQUIRED": "required", "CERT_OPTIONAL": "optional", "CERT_NONE": "none"}


def document(queue: str, message: TaskMessage) -> dict[str, Any]:
    """A message as it lies in the list of ``queue``, which a consumer's kombu reads."""
    return {
        "body": base64.b64encode(message.body.encode()).decode("ascii"),
        "content-encoding": CONTENT_ENCODING,
        "content-type": CONTENT_TYPE,
        "headers": message.headers,
        "properties": {
            **message.properties,
            "delivery_mode": DELIVERY_MODE,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


class RedisLink:
    """One connection. Belongs to one thread at a time; it connects at once, so raises what redis-py raises."""

    def __init__(self, url: str, namespace: str, timeout_seconds: float) -> None:
        pool = redis.ConnectionPool.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        words = pool.connection_kwargs
        if "ssl_cert_reqs" in words:
            words["ssl_cert_reqs"] = _CERTIFICATE_WORDS.get(words["ssl_cert_reqs"], words["ssl_cert_reqs"])
        connection: Any = pool.make_connection()
        connection.connect()
        self._connection = connection
        self._prefix = f"{namespace}:" if namespace else ""
        self.used = False

    def publish(self, queue: str, message: TaskMessage) -> None:
        self._connection.send_command("LPUSH", self._prefix + queue, json.dumps(document(queue, message)))
        self._connection.read_response()

    def close(self) -> None:
        self._connection.disconnect()
