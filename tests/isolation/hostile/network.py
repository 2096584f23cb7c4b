"""Against the network: what is reached, and what may be changed."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct

from .program import Facts, first_of, found, program

_HOST_NETWORK = "the network of the worker, its loopback included, with `SANDBOX_NETWORK_MODE=host`"


@program("user")
def connects_to_a_service_of_the_worker(facts: Facts) -> str | None:
    """Connect to a service on the loopback of the host."""
    with socket.create_connection(("127.0.0.1", facts["port"]), 10) as peer:
        return found(peer.recv(100).decode())


@program("user", network="host", reaches=_HOST_NETWORK)
def connects_to_a_service_over_the_hosts_network(facts: Facts) -> str | None:
    """The same with the network of the host: services there need a password of their own."""
    with socket.create_connection(("127.0.0.1", facts["port"]), 10) as peer:
        return found(peer.recv(100).decode())


@program("user")
def finds_a_way_out(facts: Facts) -> str | None:
    """Find a route to an address outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.connect((facts["host_address_outside"], 9))
        return f"by {peer.getsockname()[0]}"


@program("user")
def lists_interfaces(facts: Facts) -> str | None:
    """List the network cards of the host."""
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return str(names) if names else None


@program("netns")
def takes_an_interface_down(facts: Facts) -> str | None:
    """Turn the loopback off, and give it another address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0))
    return "the loopback is off"


@program("root", network="host")
def takes_an_interface_of_the_host(facts: Facts) -> str | None:
    """Change a flag of the host's loopback (to what it is), with the network of the host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = fcntl.ioctl(control, 0x8913, struct.pack("16sh14x", b"lo", 0))
        fcntl.ioctl(control, 0x8914, flags)
    return "flags of the loopback"


@program("root", network="host")
def listens_to_all_packets(facts: Facts) -> str | None:
    """Open a packet socket on the network of the host."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
    return "every packet"


@program("root", network="host")
def sends_forged_packets(facts: Facts) -> str | None:
    """Open a raw socket on the network of the host."""
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "packets of its own making"


@program("user")
def uses_the_kernels_cryptography(facts: Facts) -> str | None:
    """Open a socket of the kernel's cryptography (AF_ALG)."""
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).close()
    return "a socket"


@program("user")
def talks_to_the_hypervisor(facts: Facts) -> str | None:
    """Open a socket of other odd families: VSOCK, Bluetooth, CAN, XDP, TIPC, SMC."""
    families = {"vsock": (40, 1), "bluetooth": (31, 3), "can": (29, 3), "xdp": (44, 3), "tipc": (30, 1), "smc": (43, 1)}
    return first_of(families, lambda name: socket.socket(*families[name]).close())


@program("root")
def listens_to_the_audit_log(facts: Facts) -> str | None:
    """Bind a netlink socket to messages of audit."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9) as peer:
        peer.bind((0, 1))
    return "the log of audit"


@program("root")
def hears_of_new_devices(facts: Facts) -> str | None:
    """Change the table of routes by netlink (add a rule that is there)."""
    header = struct.pack("IHHII", 16 + 12, 16, 5, 1, 0)
    body = struct.pack("BBHiII", 0, 0, 0, 1, 0, 0)[:12].ljust(12, b"\0")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as peer:
        peer.send(header + body)
        answer = peer.recv(4096)
    number = -struct.unpack_from("i", answer, 16)[0]
    if number in (errno.EPERM, errno.EACCES):
        raise OSError(number, os.strerror(number))
    return "the loopback by netlink"


@program("root", network="host")
def takes_a_well_known_port(facts: Facts) -> str | None:
    """Listen on a port below 1024 of the host's network."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 871))
    return "port 871"


@program("root", network="host")
def marks_its_packets(facts: Facts) -> str | None:
    """Mark packets, bind to a card, and take addresses of others (SO_MARK, SO_BINDTODEVICE, IP_TRANSPARENT)."""
    with socket.socket() as peer:
        options = {"SO_MARK": (1, 36), "IP_TRANSPARENT": (0, 19), "SO_RCVBUFFORCE": (1, 33)}
        return first_of(options, lambda name: peer.setsockopt(*options[name], 1))
