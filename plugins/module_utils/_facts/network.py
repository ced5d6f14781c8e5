# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces, routes, names and ports of a node. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. Queries the kernel over netlink, without starting programs.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import threading
import time

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
RESOLVE_TIMEOUT = 3.0  # seconds for all names together; an unanswered query alone takes 5 s or more
RESOLVERS = 8  # names looked up at a time
HOLDERS_TIMEOUT = 3.0  # seconds; sudo may ask a directory service
# Prints socket, pid and command line of each process that has one of the sockets in argv open. A user sees only their
# own processes, root sees all.
HOLDERS = """
import os, sys
def target(path):
    try:
        return os.readlink(path)
    except OSError:  # it was closed meanwhile
        return ""
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        targets = {target(one.path) for one in os.scandir("/proc/%s/fd" % pid)}
        with open("/proc/%s/cmdline" % pid, "rb") as stream:
            words = stream.read().replace(b"\\0", b" ").split()
    except OSError:  # it ended meanwhile, or is another user's
        continue
    for socket in targets.intersection(sys.argv[1:]):
        os.write(1, b" ".join([socket.encode(), pid.encode(), *words]) + b"\\n")
"""


# --- netlink ---------------------------------------------------------------------------------------------------------


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the attributes of a netlink message: (type, value)."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def ask_kernel(channel: socket.socket, kind: int, flags: int, body: bytes) -> list[tuple[int, bytes]]:
    """Return the messages (type, body) of the kernel's answer to a request. Raises OSError with the kernel's error."""
    channel.send(struct.pack("IHHII", 16 + len(body), kind, NLM_F_REQUEST | flags, 1, 0) + body)
    answers: list[tuple[int, bytes]] = []
    while True:
        data = channel.recv(262144)
        while len(data) >= 16:
            length, answer, _flags, _sequence, _pid = struct.unpack_from("IHHII", data)
            content, data = data[16:length], data[(length + 3) & ~3 :]
            if answer == NLMSG_ERROR:
                code = -struct.unpack_from("i", content)[0]
                raise OSError(code, os.strerror(code))
            if answer == NLMSG_DONE:
                return answers
            answers.append((answer, content))
            if not flags & NLM_F_DUMP:
                return answers


def open_netlink() -> socket.socket:
    """Return a connection to the kernel's routing tables."""
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    channel.settimeout(2.0)
    return channel


def read_interfaces(channel: socket.socket) -> dict[str, dict[str, Any]]:
    """Return {name: {"mtu", "up", "loopback", "addresses": ["10.0.0.4/24", ...]}} of the interfaces of this machine."""
    interfaces: dict[int, dict[str, Any]] = {}
    for index, name in socket.if_nameindex():
        flags = int(read_line(f"/sys/class/net/{name}/flags") or "0", 16)
        interfaces[index] = {
            "name": name,
            "mtu": int(read_line(f"/sys/class/net/{name}/mtu") or 0),
            "up": bool(flags & IFF_UP),
            "loopback": bool(flags & IFF_LOOPBACK),
            "addresses": [],
        }
    for kind, content in ask_kernel(channel, RTM_GETADDR, NLM_F_DUMP, struct.pack("BBBBI", 0, 0, 0, 0, 0)):
        if kind != RTM_NEWADDR:
            continue
        family, prefix, _flags, _scope, index = struct.unpack_from("BBBBI", content)
        values = dict(attributes(content[8:]))
        raw = values.get(IFA_LOCAL) or values.get(IFA_ADDRESS)  # on a point-to-point link, IFA_ADDRESS is the other end
        if raw and index in interfaces and family in (socket.AF_INET, socket.AF_INET6):
            interfaces[index]["addresses"].append(f"{socket.inet_ntop(family, raw)}/{prefix}")
    return {interface.pop("name"): interface for interface in interfaces.values()}


def read_route(channel: socket.socket, address: str) -> dict[str, Any] | None:
    """Return the route to an address: interface, source, gateway, mtu (the route's, 0: the interface's).

    None if there is no route. Sends nothing to the address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    body = struct.pack("BBBBBBBBI", family, len(raw) * 8, 0, 0, 0, 0, 0, 0, 0)
    try:
        answers = ask_kernel(channel, RTM_GETROUTE, 0, body + struct.pack("HH", 4 + len(raw), RTA_DST) + raw)
    except OSError:
        return None
    if not answers or answers[0][0] != RTM_NEWROUTE:
        return None
    values = dict(attributes(answers[0][1][12:]))
    if RTA_OIF not in values:
        return None
    metrics = dict(attributes(values.get(RTA_METRICS, b"")))
    return {
        "interface": socket.if_indextoname(struct.unpack("i", values[RTA_OIF])[0]),
        "source": socket.inet_ntop(family, values[RTA_PREFSRC]) if RTA_PREFSRC in values else None,
        "gateway": socket.inet_ntop(family, values[RTA_GATEWAY]) if RTA_GATEWAY in values else None,
        "mtu": struct.unpack("I", metrics[RTAX_MTU])[0] if RTAX_MTU in metrics else 0,
    }


def machine() -> str:
    """Return an id that only nodes with a common loopback share: the kernel's boot id and the network namespace.

    "" if it cannot be read. Containers of one kernel share its boot id, but each has its own network namespace, unless
    it uses the machine's, and thus its loopback.
    """
    try:
        namespace = os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
    boot = read_line("/proc/sys/kernel/random/boot_id")
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


def read_line(path: str) -> str:
    """Return the first line of a small file, "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


# --- names -----------------------------------------------------------------------------------------------------------


def own_names(hostname: str) -> dict[str, Any]:
    """Return what this machine's own name resolves to, by the three methods that launchers use."""
    try:
        first: str | None = socket.gethostbyname(hostname)
    except OSError:
        first = None
    return {"gethostbyname": first, "getaddrinfo": resolve(hostname), "getfqdn": socket.getfqdn()}


def resolve(name: str) -> list[str]:
    """Return the addresses of a name in the resolver's order, [] for an unknown one."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def parse_hosts(text: str) -> dict[str, list[str]]:
    """Read /etc/hosts: {lower-case name: its addresses in file order}."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        for name in fields[1:]:
            addresses = found.setdefault(name.lower(), [])
            if fields[0] not in addresses:
                addresses.append(fields[0])
    return found


def read_names(names: Iterable[str], ask_resolver: bool, timeout: float = RESOLVE_TIMEOUT) -> dict[str, Any]:
    """Return what this machine's own name and its peers' names resolve to here.

    hostname; own: see own_names(), None if the resolver did not answer in time; hosts_file: {peer: addresses} found in
    /etc/hosts; resolver: {peer: addresses}, None if it was not to be queried, since a name server costs packets and, if
    slow, seconds; unanswered: the names that took too long.
    """
    names = list(names)
    hostname = socket.gethostname()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as stream:
            lines = parse_hosts(stream.read())
    except OSError:
        lines = {}
    waiting = [*(names if ask_resolver else []), None]  # None: this machine's own name
    unanswered = {name or hostname for name in waiting}
    own: list[dict[str, Any]] = []
    resolved: dict[str, list[str]] = {}

    def work() -> None:
        while waiting:
            try:
                name = waiting.pop()
            except IndexError:  # another thread was faster
                return
            if name is None:
                own.append(own_names(hostname))
            else:
                resolved[name] = resolve(name)
            unanswered.discard(name or hostname)

    deadline = time.monotonic() + timeout
    # daemons, so that a hanging resolver does not block the answer
    workers = [threading.Thread(target=work, daemon=True) for _worker in range(min(RESOLVERS, len(waiting)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return {
        "hostname": hostname,
        "own": own[0] if own else None,
        "hosts_file": {name: lines[name.lower()] for name in names if name.lower() in lines},
        "resolver": dict(resolved) if ask_resolver else None,
        "unanswered": sorted(unanswered),
    }


# --- ports -----------------------------------------------------------------------------------------------------------


def listeners(ports: set[int]) -> dict[str, dict[str, Any]]:
    """Return {port: {"pid", "command"}} for the given TCP ports that have a listener here.

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
    found: dict[str, dict[str, Any]] = {str(port): {"pid": None, "command": ""} for port in inodes.values()}
    for asked_by in ([], ["sudo", "-n"]):
        unknown = [inode for inode, port in inodes.items() if found[str(port)]["pid"] is None]
        if unknown:
            found.update((str(inodes[inode]), holder) for inode, holder in holders(unknown, asked_by).items())
    return found


def holders(sockets: Sequence[str], asked_by: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return {socket: {"pid", "command"}} of visible processes; asked_by: words before the command, such as sudo.

    Command lines are truncated to 200 characters.
    """
    from ansible_collections.muster.training.plugins.module_utils._facts import commands

    command = [*asked_by, sys.executable, "-I", "-S", "-c", HOLDERS, *sockets]
    said = commands.Command(command).output(time.monotonic() + HOLDERS_TIMEOUT).text
    lines = re.findall(r"^(socket:\[\d+\]) (\d+) ?(.*)$", said, re.MULTILINE)  # other lines are sudo's
    return {inode: {"pid": int(pid), "command": words[:200]} for inode, pid, words in lines if inode in sockets}


def can_listen(address: str, port: int) -> str:
    """Return "" if address and port can be bound here, else why not. Sets SO_REUSEADDR like torch's store and us."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return ""
