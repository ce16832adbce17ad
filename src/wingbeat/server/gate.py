"""Who may call: decided before any handler runs, from the connection and the request's headers alone.

This server runs code for whoever reaches it, so on a laptop four doors are shut. A web page cannot reach it through
a rebound name (the Host header must be a name of ours) nor from its own origin (a foreign Origin is refused). Another
user of the same machine cannot (on Linux the kernel says whose the other end of a loopback connection is). And it
does not listen elsewhere than on loopback unless that was asked for in so many words.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class ListenRefused(Exception):
    """The address is not a loopback one, and nobody said that this is meant."""


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, as one would bind it) is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or bool(mapped and mapped.is_loopback)


def _kernel_address(host: str, port: int, *, wide: bool) -> bytes:
    """An address as the kernel's tables print it: each 32-bit word in the machine's byte order, then the port."""
    address = ipaddress.ip_address(host.split("%")[0])
    if wide and address.version == 4:
        address = ipaddress.ip_address(f"::ffff:{address}")
    packed = address.packed
    words = [packed[i : i + 4] for i in range(0, len(packed), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return b"".join(words).hex().upper().encode() + b":%04X" % port


def socket_owner(table: bytes, peer: tuple[str, int], local: tuple[str, int], *, wide: bool) -> int | None:
    """The uid that owns the socket at `peer` connected to `local`, looked up in the text of a kernel table.

    None when it is not there, or when no process holds it any more: the kernel then reports uid 0, which would let
    anyone who sends and hangs up pass for root.
    """
    try:
        pattern = b" " + _kernel_address(*peer, wide=wide) + b" " + _kernel_address(*local, wide=wide) + b" "
    except ValueError:
        return None
    start = table.find(pattern)
    if start < 0:
        return None
    end = table.find(b"\n", start)
    fields = table[start : end if end >= 0 else len(table)].split()
    # local, remote, state, queues, timer, retransmits, uid, timeout, inode
    uid, inode = int(fields[6]), int(fields[8])
    return uid if inode else None


def ask_kernel(peer: tuple[str, int], local: tuple[str, int]) -> int | None:
    """As `socket_owner`, by asking for this one socket (netlink, `sock_diag(7)`): the tables grow with every
    connection of the machine. None also where the kernel does not offer it. Raises OSError, ValueError."""
    source, target = (ipaddress.ip_address(host.split("%")[0]) for host in (peer[0], local[0]))
    family = socket.AF_INET if source.version == 4 else socket.AF_INET6
    socket_id = struct.pack(">HH", peer[1], local[1]) + source.packed.ljust(16, b"\0") + target.packed.ljust(16, b"\0")
    # No interface; a cookie of all ones is "any".
    request = (
        struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        + socket_id
        + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    )
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(0.5)
        netlink.send(header + request)
        reply = netlink.recv(8192)
    if struct.unpack_from("=H", reply, 4)[0] != SOCK_DIAG_BY_FAMILY:
        return None
    # The answer: 4 bytes of state, the 48 of the socket's id, three numbers, then these two.
    uid, inode = struct.unpack_from("=II", reply, 16 + 4 + 48 + 12)
    return int(uid) if inode else None


def peer_uid(peer: tuple[str, int], local: tuple[str, int]) -> int | None:
    """The uid at the other end of a connection within this machine; None when the kernel does not say."""
    with contextlib.suppress(OSError, ValueError):
        owner = ask_kernel(peer, local)
        if owner is not None:
            return owner
    for path in TCP_TABLES:
        try:
            table = path.read_bytes()
        except OSError:
            continue
        owner = socket_owner(table, peer, local, wide=path.name.endswith("6"))
        if owner is not None:
            return owner
    return None


class Gate:
    """The rules for one server. `extra_hosts` are more names to answer to (`name` or `name:port`)."""

    def __init__(
        self,
        *,
        extra_hosts: Iterable[str] = (),
        allow_other_users: bool = False,
        allow_remote: bool = False,
        uid: int | None = None,
    ) -> None:
        self._extra = tuple(name.lower() for name in extra_hosts)
        self._allow_other_users = allow_other_users
        self._allow_remote = allow_remote
        self._uid = uid if uid is not None else (os.getuid() if hasattr(os, "getuid") else -1)
        self._hosts: frozenset[str] = frozenset()
        self._port = 0
        self._local_only = True
        self._knows_owners = False

    def open(self, host: str, port: int) -> None:
        """Learn where the server listens (after binding, when the port is known)."""
        self._port = port
        self._local_only = is_loopback(host)
        names = [*LOOPBACK_NAMES, *self._extra]
        if not self._local_only:
            names.append(socket.gethostname().lower())
        self._hosts = frozenset(
            accepted
            for name in names
            for accepted in ((name,) if ":" in name.rpartition("]")[2] else self._with_port(name))
        )
        self._knows_owners = sys.platform == "linux" and any(path.exists() for path in TCP_TABLES)

    def _with_port(self, name: str) -> tuple[str, ...]:
        return (f"{name}:{self._port}", name) if self._port in (80, 443) else (f"{name}:{self._port}",)

    def check_host(self, host: str) -> None:
        """Raises ListenRefused for an address that others can reach, unless that is allowed."""
        if not is_loopback(host) and not self._allow_remote:
            raise ListenRefused(
                f"refusing to listen on {host}: everyone who can reach it could run code as you. "
                "Listen on 127.0.0.1, or pass --allow-remote if the network in front of it keeps others out"
            )

    def refuse_connection(self, peer: Any, local: Any) -> str:
        """Why this connection may not be used, or "". Looked up once a connection."""
        if self._allow_other_users or not self._knows_owners:
            return ""
        if not (isinstance(peer, tuple) and isinstance(local, tuple)):
            return ""
        if not is_loopback(peer[0]):
            return "" if self._allow_remote else "only connections from this machine are accepted"
        owner = peer_uid((peer[0], peer[1]), (local[0], local[1]))
        if owner == self._uid:
            return ""
        who = "of an unknown user" if owner is None else f"of uid {owner}"
        return (
            f"this server belongs to uid {self._uid} and runs code as that user; a process {who} may not use it. "
            "Start a server of your own, or start this one with --allow-other-users"
        )

    def refuse_request(self, scope: Scope) -> str:
        """Why this request may not be served, or ""."""
        refused = scope.get("state", {}).get("refused", "")
        if refused:
            return str(refused)
        hosts, origins, site, mode = [], [], b"", b""
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
        if len(hosts) != 1:
            return f"a request needs exactly one Host header, this one has {len(hosts)}"
        host = hosts[0].decode("latin-1").lower()
        if not self._known_host(host):
            return (
                f"this server does not answer to the name {host[:200]!r}. Use {LOOPBACK_NAMES[0]}:{self._port}, "
                "or add the name with --allow-host"
            )
        for raw in origins:
            origin = raw.decode("latin-1").lower()
            if origin not in (f"http://{host}", f"https://{host}"):
                return f"pages of another origin ({origin[:200]!r}) may not call this server"
        if site in (b"cross-site", b"same-site") and not (mode == b"navigate" and scope["method"] == "GET"):
            return "pages of another site may not call this server"
        return ""

    def _known_host(self, host: str) -> bool:
        if host in self._hosts:
            return True
        if self._local_only:
            return False
        # A name can be rebound to our address, an address cannot.
        name, _, port = host.rpartition(":")
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return port == str(self._port)
