# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that list the nodes of a rank table: the hostfiles of DeepSpeed, Open MPI and MPICH, and /etc/hosts."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._rank_table import (
    MAX_SLOTS,
    RankTable,
    RankTableError,
    RankTableProblem,
    format_value,
    ip_literal,
    means_this_machine,
    name_error,
    short_name,
)


class HostfileError(RankTableError):
    """DeepSpeed and Open MPI would not read the hostfile alike. Each problem's `host` is a line of the text."""


def render_deepspeed(table: RankTable, use: str = "name") -> str:
    """A hostfile for DeepSpeed: one line `host slots=N` per node, in rank order.

    `use` is "name" or "address": how the launcher reaches the hosts. Raises RankTableError for IPv6 addresses, which no
    reader of a hostfile accepts.
    """
    return "".join(f"{host} slots={slots}\n" for host, slots in _hosts_and_slots(table, use))


def render_openmpi(table: RankTable, use: str = "name") -> str:
    """A hostfile for Open MPI (`mpirun --hostfile`): the same lines as for DeepSpeed.

    Start mpirun on the first node: Open MPI 4 gives the first ranks to the host it runs on, if the file lists it.
    """
    return render_deepspeed(table, use)


def render_mpich(table: RankTable, use: str = "name") -> str:
    """A hostfile for MPICH and Intel MPI (`mpiexec -f`): one line `host:N` per node. `use` as in render_deepspeed()."""
    return "".join(f"{host}:{slots}\n" for host, slots in _hosts_and_slots(table, use))


def render_hosts_entries(table: RankTable) -> str:
    """Lines for /etc/hosts: address, name and, if the name has a domain, the short name.

    A host whose name is an address needs no line.
    """
    lines: list[str] = []
    for node in table.nodes:
        if ip_literal(node.name) is None:
            first, dot, _domain = node.name.partition(".")
            lines.append(f"{node.address} {node.name} {first}\n" if dot else f"{node.address} {node.name}\n")
    return "".join(lines)


def _hosts_and_slots(table: RankTable, use: str) -> list[tuple[str, int]]:
    if use == "name":
        return [(node.name, node.slots) for node in table.nodes]
    if use != "address":
        raise RankTableError(
            [RankTableProblem(None, f"use is {format_value(use)}", "'name' or 'address'", "Correct use")]
        )
    if ":" in table.master.address:
        problem = f"the addresses are IPv6 ({table.master.address} ...), which readers of a hostfile cut at the colons"
        remedy = "List the hosts by name, and make the names known on all nodes"
        raise RankTableError([RankTableProblem(None, problem, "IPv4 addresses or names", remedy)])
    return [(node.address, node.slots) for node in table.nodes]


_LINE_REQUIREMENT = "`host slots=N`, which DeepSpeed and Open MPI read alike"

# Common faults: a pattern for the line without its comment, what it is, and what to do.
_KNOWN_ERRORS = (
    (r"[^\x00-\x7f]", "a character that is not ASCII", "Write names and numbers in plain ASCII"),
    (r"^(;|//|/\*)", "a comment that one of them does not know", "Begin comments with #"),
    (r"^\[[^\]]*\]$", "a heading, which a hostfile does not have", "Remove it"),
    (r"^\S*@", "a user name, which only one of them knows", "Remove it and set User in ~/.ssh/config"),
    (r"^\S*[\[\]{}*?]", "a pattern, which DeepSpeed's pdsh expands and Open MPI does not", "Write a line a host"),
    (r"^\S*,", "several hosts in one line", "Write a line a host"),
    (r"^[\^+]", "a host excluded or counted, which only one of them knows", "Write the hosts that are meant"),
    (r"^[^\s:]+:[0-9]+$", "a line of an MPICH hostfile", "Write `host slots=N`"),
    (r"^\S*:", "a port or an IPv6 address, which are cut at the colon", "Write the host's name"),
    (r"^\S+$", "no slots", "Add slots=N, the number of processes to start on the host"),
    (r"^\S+\s+slots\s*=\s*0+(\s|$)", "no slots: one leaves the host out, the other does not", "Remove the line"),
    (r"^\S+\s+slots(\s+=|=\s)", "a blank beside =, which DeepSpeed refuses", "Remove the blank"),
    (
        r"^\S+\s+slots=[0-9]+(\s+\S|[^0-9\s])",
        "more after the slots, which DeepSpeed does not read",
        "End the line there",
    ),
)


def parse_hostfile(text: str) -> list[tuple[str, int]]:
    """Hosts and slots in a hostfile, in the file's order.

    Accepts only what both DeepSpeed and Open MPI read as intended: lines `host slots=N`, empty lines, comments after
    `#`. Raises HostfileError with every line that either refuses or misreads.
    """
    _check_encoding(text)
    problems: list[RankTableProblem] = []
    hosts: list[tuple[str, int]] = []
    first_lines: dict[str, int] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        body, hash_sign, _comment = line.partition("#")
        error = _line_error(line, body, open_comment=bool(hash_sign) and number == len(lines))
        if error is None and body.strip():
            name, slots = body.split()
            first = first_lines.setdefault(short_name(name), number)
            if first == number:
                hosts.append((name, int(slots[len("slots=") :])))
            else:
                problem = f"{name} is the host of line {first} again (Open MPI reads names up to their first dot)"
                error = problem, "Write each host once"
        if error is not None:
            problems.append(RankTableProblem(f"line {number}", error[0], _LINE_REQUIREMENT, error[1]))
    for name, _slots in hosts:
        if len(hosts) > 1 and means_this_machine(name):
            problem, requirement = f"each node takes {name} for itself", "names that mean the same host on every node"
            problems.append(
                RankTableProblem(
                    f"line {first_lines[short_name(name)]}", problem, requirement, "Write the host's own name"
                )
            )
    if not hosts and not problems:
        problems.append(RankTableProblem(None, "the hostfile names no host", _LINE_REQUIREMENT, "Write a line a host"))
    if problems:
        raise HostfileError(problems)
    return hosts


def _check_encoding(text: object) -> None:
    """Raise HostfileError for problems of the whole file."""
    if not isinstance(text, str):
        problem, remedy = f"the hostfile is {format_value(text)}", "Give the content of the file as text"
    elif text.startswith("\ufeff"):
        problem, remedy = (
            "the file begins with a byte order mark, which becomes part of a name",
            "Save it as UTF-8 without BOM",
        )
    elif "\r" in text:
        number = text.count("\n", 0, text.index("\r")) + 1
        problem = f"line {number} is the first with a carriage return, the line end of Windows, which Open MPI refuses"
        remedy = r"Convert the file: sed -i 's/\r$//' HOSTFILE"
    else:
        return
    raise HostfileError([RankTableProblem(None, problem, _LINE_REQUIREMENT, remedy)])


def _line_error(line: str, body: str, *, open_comment: bool) -> tuple[str, str] | None:
    """What is wrong with a line and what to do, or None if it is right; `body` is the line without its comment."""
    if not line.replace("\t", " ").isprintable():
        return f"{format_value(line)} holds a control character", "Remove it"
    if open_comment:
        # Open MPI's lexer needs a line end after a comment; without one it reads the words as hosts.
        return (
            "a comment without line end at the end of the file, of which Open MPI reads the words as hosts",
            "End the line",
        )
    if body != line and body and body[-1] not in " \t":
        return f"{format_value(line)} has no blank before the comment", "Put a blank before #"
    body = body.strip(" \t")
    if not body:
        return None
    for pattern, problem, remedy in _KNOWN_ERRORS:
        if re.search(pattern, body):
            return f"{format_value(body)}: {problem}", remedy
    name, *fields = body.split()
    error = name_error(name)
    if error:
        return error, "Write the plain name or the IPv4 address of the host"
    number = re.fullmatch(r"slots=([1-9][0-9]{0,8})", " ".join(fields))
    if number is None or int(number[1]) > MAX_SLOTS:
        return f"{format_value(body)} is not understood", f"Write `{name} slots=N` with N from 1 to {MAX_SLOTS}"
    return None
