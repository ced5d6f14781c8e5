# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node's interfaces and routes over netlink, its names from the resolver, and its TCP listeners from /proc.

Starts a program only to find the processes that own listening sockets.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import threading
import time

from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

RTM_NEWADDR, RTM_GETADDR, RTM_NEWROUTE, RTM_GETROUTE = 20, 22, 24, 26  # linux/rtnetlink.h
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300  # linux/netlink.h
NLMSG_ERROR, NLMSG_DONE = 2, 3
IFA_ADDRESS, IFA_LOCAL = 1, 2  # linux/if_addr.h
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_METRICS = 1, 4, 5, 7, 8
RTAX_MTU = 2
IFF_UP, IFF_LOOPBACK = 1, 8  # linux/if.h
TCP_LISTEN = "0A"  # state in /proc/net/tcp
RESOLVE_TIMEOUT = 3.0  # seconds for all names together; a single unanswered query takes 5 s or more
RESOLVERS = 8  # number of names looked up at a time
SOCKET_OWNERS_TIMEOUT = 3.0  # seconds; sudo may query a directory service
# Prints the socket, PID and command line of each process that has one of the sockets in argv open. Ordinary users see
# only their own processes; root sees all.
SOCKET_OWNERS_PROGRAM = """
import os, sys
def target(path):
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        targets = {target(entry.path) for entry in os.scandir("/proc/%s/fd" % pid)}
        with open("/proc/%s/cmdline" % pid, "rb") as stream:
            arguments = stream.read().replace(b"\\0", b" ").split()
    except OSError:  # ended meanwhile, or another user's
        continue
    for socket in targets.intersection(sys.argv[1:]):
        os.write(1, b" ".join([socket.encode(), pid.encode(), *arguments]) + b"\\n")
"""


# --- netlink ---------------------------------------------------------------------------------------------------------


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a netlink message's attributes as (type, value)."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def query_kernel(channel: socket.socket, kind: int, flags: int, body: bytes) -> list[tuple[int, bytes]]:
    """Return the messages (type, body) of the kernel's reply to a request. Raise OSError with the kernel's error."""
    channel.send(struct.pack("IHHII", 16 + len(body), kind, NLM_F_REQUEST | flags, 1, 0) + body)
    replies: list[tuple[int, bytes]] = []
    while True:
        data = channel.recv(262144)
        while len(data) >= 16:
            length, reply_kind, _flags, _sequence, _pid = struct.unpack_from("IHHII", data)
            content, data = data[16:length], data[(length + 3) & ~3 :]
            if reply_kind == NLMSG_ERROR:
                code = -struct.unpack_from("i", content)[0]
                raise OSError(code, os.strerror(code))
            if reply_kind == NLMSG_DONE:
                return replies
            replies.append((reply_kind, content))
            if not flags & NLM_F_DUMP:
                return replies


def open_netlink() -> socket.socket:
    """Return a connection to the kernel's routing tables."""
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    channel.settimeout(2.0)
    return channel


def read_interfaces(channel: socket.socket) -> dict[str, dict[str, Any]]:
    """Return {name: {"mtu", "up", "loopback", "addresses": ["10.0.0.4/24", ...]}} of the interfaces of this machine."""
    interfaces: dict[int, dict[str, Any]] = {}
    for index, name in socket.if_nameindex():
        flags = int(read_value(f"/sys/class/net/{name}/flags") or "0", 16)
        interfaces[index] = {
            "name": name,
            "mtu": int(read_value(f"/sys/class/net/{name}/mtu") or 0),
            "up": bool(flags & IFF_UP),
            "loopback": bool(flags & IFF_LOOPBACK),
            "addresses": [],
        }
    for kind, content in query_kernel(channel, RTM_GETADDR, NLM_F_DUMP, struct.pack("BBBBI", 0, 0, 0, 0, 0)):
        if kind != RTM_NEWADDR:
            continue
        family, prefix, _flags, _scope, index = struct.unpack_from("BBBBI", content)
        values = dict(attributes(content[8:]))
        # on a point-to-point link, IFA_ADDRESS is the address of the other end
        raw = values.get(IFA_LOCAL) or values.get(IFA_ADDRESS)
        if raw and index in interfaces and family in (socket.AF_INET, socket.AF_INET6):
            interfaces[index]["addresses"].append(f"{socket.inet_ntop(family, raw)}/{prefix}")
    return {interface.pop("name"): interface for interface in interfaces.values()}


def read_route(channel: socket.socket, address: str) -> dict[str, Any] | None:
    """Return the route to an address: interface, source, gateway, mtu (the route's, or 0 for the interface's).

    None if there is no route. Sends nothing to the address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    body = struct.pack("BBBBBBBBI", family, len(raw) * 8, 0, 0, 0, 0, 0, 0, 0)
    try:
        replies = query_kernel(channel, RTM_GETROUTE, 0, body + struct.pack("HH", 4 + len(raw), RTA_DST) + raw)
    except OSError:
        return None
    if not replies or replies[0][0] != RTM_NEWROUTE:
        return None
    values = dict(attributes(replies[0][1][12:]))
    if RTA_OIF not in values:
        return None
    metrics = dict(attributes(values.get(RTA_METRICS, b"")))
    return {
        "interface": socket.if_indextoname(struct.unpack("i", values[RTA_OIF])[0]),
        "source": socket.inet_ntop(family, values[RTA_PREFSRC]) if RTA_PREFSRC in values else None,
        "gateway": socket.inet_ntop(family, values[RTA_GATEWAY]) if RTA_GATEWAY in values else None,
        "mtu": struct.unpack("I", metrics[RTAX_MTU])[0] if RTAX_MTU in metrics else 0,
    }


def machine_id() -> str:
    """Return an id shared only by nodes with the same loopback: the kernel's boot id and the network namespace.

    Return "" if it cannot be read. Containers of one kernel share its boot id, but each has its own network namespace,
    unless it uses the machine's, and thus its loopback.
    """
    try:
        namespace = os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
    boot = read_value("/proc/sys/kernel/random/boot_id")
    return f"{boot} {namespace}" if boot else ""


def addresses_of(interfaces: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return {address: interface}."""
    return {
        address.partition("/")[0]: name for name, interface in interfaces.items() for address in interface["addresses"]
    }


def interface_of(address: str, addresses: dict[str, str]) -> str | None:
    """Return the interface with an address; all of 127.0.0.0/8 belongs to the loopback."""
    if address.startswith("127."):
        return "lo"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return addresses.get(socket.inet_ntop(family, socket.inet_pton(family, address)))


# --- names -----------------------------------------------------------------------------------------------------------


def resolve_hostname(hostname: str) -> dict[str, Any]:
    """Resolve this machine's own name by the three methods that launchers use."""
    try:
        ipv4_address: str | None = socket.gethostbyname(hostname)
    except OSError:
        ipv4_address = None
    return {"gethostbyname": ipv4_address, "getaddrinfo": resolve(hostname), "getfqdn": socket.getfqdn()}


def resolve(name: str) -> list[str]:
    """Return a name's addresses in the resolver's order, or [] if the name is unknown."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def parse_hosts(text: str) -> dict[str, list[str]]:
    """Parse /etc/hosts into {lower-case name: its addresses in file order}."""
    addresses_by_name: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        for name in fields[1:]:
            addresses = addresses_by_name.setdefault(name.lower(), [])
            if fields[0] not in addresses:
                addresses.append(fields[0])
    return addresses_by_name


def read_names(names: Iterable[str], query_resolver: bool, timeout: float = RESOLVE_TIMEOUT) -> dict[str, Any]:
    """Resolve this machine's own name and its peers' names.

    Returns hostname; own: see resolve_hostname(), or None if the resolver did not reply in time; hosts_file: {peer:
    addresses} in /etc/hosts; resolver: {peer: addresses}, None without query_resolver, since a name server costs
    packets and, if slow, seconds; unanswered: the names that took too long.
    """
    names = list(names)
    hostname = socket.gethostname()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as stream:
            hosts_file = parse_hosts(stream.read())
    except OSError:
        hosts_file = {}
    waiting = [*(names if query_resolver else []), None]  # None: this machine's own name
    unanswered = {name or hostname for name in waiting}
    hostname_results: list[dict[str, Any]] = []
    resolved: dict[str, list[str]] = {}

    def resolve_waiting() -> None:
        while waiting:
            try:
                name = waiting.pop()
            except IndexError:  # another thread was faster
                return
            if name is None:
                hostname_results.append(resolve_hostname(hostname))
            else:
                resolved[name] = resolve(name)
            unanswered.discard(name or hostname)

    deadline = time.monotonic() + timeout
    # daemon threads, so that a hanging resolver does not block the reply
    workers = [threading.Thread(target=resolve_waiting, daemon=True) for _worker in range(min(RESOLVERS, len(waiting)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return {
        "hostname": hostname,
        "own": hostname_results[0] if hostname_results else None,
        "hosts_file": {name: hosts_file[name.lower()] for name in names if name.lower() in hosts_file},
        "resolver": dict(resolved) if query_resolver else None,
        "unanswered": sorted(unanswered),
    }


# --- ports -----------------------------------------------------------------------------------------------------------


def listeners(ports: set[int]) -> dict[str, dict[str, Any]]:
    """Return {port: {"pid", "command"}} for the given TCP ports that have a listener on this node.

    pid is None if the process belongs to another user and sudo does not show it either.
    """
    inodes = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6") if ports else ():  # 5 ms each
        try:
            with open(path, encoding="ascii") as stream:
                lines = stream.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == TCP_LISTEN and port in ports:
                inodes[f"socket:[{fields[9]}]"] = port
    processes: dict[str, dict[str, Any]] = {str(port): {"pid": None, "command": ""} for port in inodes.values()}
    for prefix in ([], ["sudo", "-n"]):
        unknown_inodes = [inode for inode, port in inodes.items() if processes[str(port)]["pid"] is None]
        if unknown_inodes:
            processes.update(
                (str(inodes[inode]), holder) for inode, holder in socket_owners(unknown_inodes, prefix).items()
            )
    return processes


def socket_owners(sockets: Sequence[str], prefix: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return {socket: {"pid", "command"}} for visible processes; prefix: command that runs the query, such as sudo.

    Command lines are truncated to 200 characters.
    """
    from ansible_collections.muster.training.plugins.module_utils._facts import commands

    argv = [*prefix, sys.executable, "-I", "-S", "-c", SOCKET_OWNERS_PROGRAM, *sockets]
    output = commands.Command(argv).output(time.monotonic() + SOCKET_OWNERS_TIMEOUT).text
    lines = re.findall(r"^(socket:\[\d+\]) (\d+) ?(.*)$", output, re.MULTILINE)  # other lines come from sudo
    return {
        inode: {"pid": int(pid), "command": command_line[:200]}
        for inode, pid, command_line in lines
        if inode in sockets
    }


def bind_error(address: str, port: int) -> str:
    """Return why an address and port cannot be bound, or "". Sets SO_REUSEADDR, as torch's store and our listeners
    do.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return ""
