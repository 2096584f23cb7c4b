"""Run inside a sandbox: dials addresses and tells who answers one that shows no password.

A program of its own, for whatever python3 a sandbox finds: standard library only, one JSON list of targets as its
argument, one JSON list of ``[answer, said]`` as its output. ``answer``: ``open`` (answered without authentication),
``guarded`` (answered, and wants some), ``closed`` (nobody, or nothing said).
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import threading
from typing import TYPE_CHECKING, Any

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 1.5
#: Metadata services are on the link, or not there.
LINK_SECONDS = 0.4

if TYPE_CHECKING:
    Target = dict[str, Any]
    Answer = tuple[str, str]


class Line:
    """A connection to one target; unknown certificates are taken, since nothing secret is sent."""

    def __init__(self, target: Target, tls: bool = False) -> None:
        near = target["protocol"] == "metadata"
        path = target.get("socket")
        if path:
            self.socket: socket.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(CONNECT_SECONDS)
            self.socket.connect(path)
        else:
            address = (target["host"], target["port"])
            self.socket = socket.create_connection(address, LINK_SECONDS if near else CONNECT_SECONDS)
        self.socket.settimeout(ANSWER_SECONDS)
        if tls:
            self.encrypt()

    def encrypt(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        """So many bytes; fewer at the end of the connection."""
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                break
            data += chunk
        return data

    def some(self) -> bytes:
        return self.socket.recv(4096)


def redis(target: Target) -> Answer:
    line = Line(target, target["tls"])
    line.send(b"PING\r\n")
    said = line.some()
    return verdict(said.startswith(b"+PONG"), said)


def http(target: Target) -> Answer:
    line = Line(target, target["tls"])
    request = "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n".format(target["path"], target["host"])
    line.send(request.encode())
    said = line.some().split(b"\r\n")[0]
    words = said.split()
    spoke = len(words) > 1 and words[0].startswith(b"HTTP/")
    return verdict(spoke and (target["protocol"] == "metadata" or words[1][:1] == b"2"), said)


def postgresql(target: Target) -> Answer:
    """A server may trust those who encrypt and no others, or the other way round."""
    answers = [postgresql_once(target, encrypt) for encrypt in (False, True)]
    return next((answer for answer in answers if answer[0] == "open"), answers[0])


def postgresql_once(target: Target, encrypt: bool) -> Answer:
    line = Line(target)
    if encrypt:
        line.send(struct.pack("!ii", 8, 80877103))
        if line.read(1) != b"S":
            return "closed", "no encryption"
        line.encrypt()
    names = ("user", target["user"], "database", target["database"])
    body = struct.pack("!i", 196608) + b"".join(name.encode() + b"\0" for name in names) + b"\0"
    line.send(struct.pack("!i", len(body) + 4) + body)
    kind, rest = line.read(1), line.read(8)
    return verdict(kind == b"R" and rest[4:] == b"\0\0\0\0", kind + rest)


def mysql(target: Target) -> Answer:
    line = Line(target)
    greeting = packet(line)
    if greeting[:1] != b"\x0a":
        return verdict(False, greeting)
    # PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH
    body = struct.pack("<IIB23x", 0x200 | 0x8000 | 0x80000, 1 << 24, 33)
    body += target["user"].encode() + b"\0" + b"\0" + b"mysql_native_password\0"
    line.send(struct.pack("<I", len(body) | 1 << 24) + body)
    said = packet(line)
    if said[:1] == b"\xfe":
        line.send(struct.pack("<I", 3 << 24))
        said = packet(line)
    return verdict(said[:1] == b"\0", said)


def packet(line: Line) -> bytes:
    head = line.read(4)
    return line.read(head[0] | head[1] << 8 | head[2] << 16) if len(head) == 4 else b""


def amqp(target: Target) -> Answer:
    """The account that RabbitMQ comes with counts as none."""
    line = Line(target, target["tls"])
    line.send(b"AMQP\0\0\x09\x01")
    said = frame(line)
    if said[:4] != struct.pack("!HH", 10, 10):
        return verdict(False, said)
    response = b"\0guest\0guest"
    body = struct.pack("!HHI", 10, 11, 0) + b"\x05PLAIN" + struct.pack("!I", len(response)) + response + b"\x05en_US"
    line.send(struct.pack("!BHI", 1, 0, len(body)) + body + b"\xce")
    said = frame(line)
    return verdict(said[:4] == struct.pack("!HH", 10, 30), said)


def frame(line: Line) -> bytes:
    head = line.read(7)
    if len(head) < 7:
        return head
    return line.read(struct.unpack("!BHI", head)[2] + 1)[:-1]


def verdict(is_open: bool, said: bytes) -> Answer:
    text = said[:80].decode("ascii", "replace").strip()
    return ("open" if is_open else "guarded" if said else "closed"), text


PROTOCOLS = {
    "redis": redis, "http": http, "metadata": http, "postgresql": postgresql, "mysql": mysql, "amqp": amqp,
}  # fmt: skip


def dial(targets: list[Target]) -> list[Answer]:
    """All at once; whoever says nothing in time has not answered."""
    answers: list[Answer] = [("closed", "") for _ in targets]

    def one(at: int) -> None:
        try:
            answers[at] = PROTOCOLS[targets[at]["protocol"]](targets[at])
        except (OSError, ValueError, struct.error) as error:
            answers[at] = ("closed", str(error)[:80])

    threads = [threading.Thread(target=one, args=(at,), daemon=True) for at in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * (CONNECT_SECONDS + 2 * ANSWER_SECONDS))
    return answers


if __name__ == "__main__":
    json.dump(dial(json.loads(sys.argv[1])), sys.stdout)
