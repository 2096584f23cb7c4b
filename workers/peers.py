"""Which account a local peer belongs to: commands on the host's network must not hold the byte channel's threads."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import Any, ClassVar

from cheroot.server import HTTPConnection

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ALL_STATES = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI")
_ANY_COOKIE = b"\xff" * 8
#: Where the answer holds the socket's remote port and its owner.
_REMOTE_PORT_AT, _UID_AT = 22, 80
_ANSWER_BYTES = 8192


def uid_of(peer: tuple[Any, ...], local: tuple[Any, ...]) -> int | None:
    """The uid of the TCP socket at the other end of ``local``; None for a peer on another machine, or gone.

    Asks the kernel for that one socket: its tables, read as text, miss entries while others come and go.
    """
    family, source = _packed(peer[0])
    _, destination = _packed(local[0])
    scope = peer[3] if len(peer) > 3 else 0
    request = (
        _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
        + struct.pack("!HH", peer[1], local[1])
        + source.ljust(16, b"\0")
        + destination.ljust(16, b"\0")
        + struct.pack("=I", scope)
        + _ANY_COOKIE
    )
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.send(header + request)
            answer = kernel.recv(_ANSWER_BYTES)
    except OSError:
        return None
    _, kind, *_ = _HEADER.unpack_from(answer)
    # Without such a connection the kernel answers with an error, or with a listener of that port.
    if kind != _SOCK_DIAG_BY_FAMILY or struct.unpack_from("!H", answer, _REMOTE_PORT_AT)[0] != local[1]:
        return None
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])


def _packed(host: str) -> tuple[int, bytes]:
    address = ipaddress.ip_address(host.split("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return (socket.AF_INET if address.version == 4 else socket.AF_INET6), address.packed


class FleetConnection(HTTPConnection):
    """Closes connections of sandboxes before a byte of them is waited for."""

    #: First and last uid of sandboxes; none where they share the worker's own.
    sandbox_uids: ClassVar[range] = range(0)

    def communicate(self) -> Any:
        if self.requests_seen == 0 and self.sandbox_uids and self._is_of_a_sandbox():
            return False
        return super().communicate()  # type: ignore[no-untyped-call]

    def _is_of_a_sandbox(self) -> bool:
        try:
            peer, local = self.socket.getpeername(), self.socket.getsockname()
        except OSError:
            return True
        return uid_of(peer, local) in self.sandbox_uids
