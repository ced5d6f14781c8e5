# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render and parse files that list a rank table's nodes: DeepSpeed, Open MPI and MPICH hostfiles, /etc/hosts."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
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
    """DeepSpeed and Open MPI would read the hostfile differently. Each problem's `host` is a line from the text."""


def render_deepspeed(table: RankTable, use: str = "name") -> str:
    """Render a hostfile for DeepSpeed, with one line `host slots=N` per node, in rank order.

    `use` is "name" or "address": how the launcher reaches the hosts. Raise RankTableError for IPv6 addresses, which no
    hostfile parser accepts.
    """
    return "".join(f"{host} slots={slots}\n" for host, slots in _hosts_and_slots(table, use))


def render_openmpi(table: RankTable, use: str = "name") -> str:
    """Render a hostfile for Open MPI (`mpirun --hostfile`): the same lines as for DeepSpeed.

    Start mpirun on the first node: Open MPI 4 gives the first ranks to the host it runs on, if the file lists it.
    """
    return render_deepspeed(table, use)


def render_mpich(table: RankTable, use: str = "name") -> str:
    """Render a hostfile for MPICH and Intel MPI (`mpiexec -f`): lines `host:N`. `use`: see render_deepspeed()."""
    return "".join(f"{host}:{slots}\n" for host, slots in _hosts_and_slots(table, use))


def render_hosts_entries(table: RankTable) -> str:
    """Render lines for /etc/hosts with the address, the name and, if the name has a domain, the short name.

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
        problem = (
            f"the addresses are IPv6 ({table.master.address} ...), which hostfile parsers truncate at the first colon"
        )
        remedy = "List the hosts by name, and make sure that all nodes can resolve the names"
        raise RankTableError([RankTableProblem(None, problem, "IPv4 addresses or names", remedy)])
    return [(node.address, node.slots) for node in table.nodes]


_LINE_REQUIREMENT = "`host slots=N`, which DeepSpeed and Open MPI interpret the same way"

# Common errors: a pattern for the line without its comment, its description, and the remedy.
_KNOWN_ERRORS = (
    (r"[^\x00-\x7f]", "a non-ASCII character", "Write names and numbers in plain ASCII"),
    (r"^(;|//|/\*)", "a comment that one of them does not recognize", "Start comments with #"),
    (r"^\[[^\]]*\]$", "a section heading, which hostfiles do not have", "Remove it"),
    (r"^\S*@", "a user name, which only one of them supports", "Remove it and set User in ~/.ssh/config"),
    (r"^\S*[\[\]{}*?]", "a pattern, which DeepSpeed's pdsh expands and Open MPI does not", "Write one line per host"),
    (r"^\S*,", "several hosts on one line", "Write one line per host"),
    (r"^[\^+]", "an excluded or a relative host, which only one of them supports", "List the hosts by name"),
    (r"^[^\s:]+:[0-9]+$", "a line of an MPICH hostfile", "Write `host slots=N`"),
    (r"^\S*:", "a port or an IPv6 address, which is truncated at the colon", "Write the host's name"),
    (r"^\S+$", "no slots", "Add slots=N, the number of processes to start on the host"),
    (r"^\S+\s+slots\s*=\s*0+(\s|$)", "no slots: one of them skips the host, the other does not", "Remove the line"),
    (r"^\S+\s+slots(\s+=|=\s)", "a space next to =, which DeepSpeed rejects", "Remove the space"),
    (
        r"^\S+\s+slots=[0-9]+(\s+\S|[^0-9\s])",
        "text after the slots, which DeepSpeed does not read",
        "End the line after slots=N",
    ),
)


def parse_hostfile(text: str) -> list[tuple[str, int]]:
    """Return the hosts and slots in a hostfile, in file order.

    Accepts only what both DeepSpeed and Open MPI read as intended: lines `host slots=N`, empty lines, comments after
    `#`. Raise HostfileError with every line that either rejects or misreads.
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
                problem = f"{name} is already on line {first} (Open MPI reads names only up to the first dot)"
                error = problem, "List each host once"
        if error is not None:
            problems.append(RankTableProblem(f"line {number}", error[0], _LINE_REQUIREMENT, error[1]))
    for name, _slots in hosts:
        if len(hosts) > 1 and means_this_machine(name):
            problem, requirement = (
                f"each node resolves {name} to itself",
                "names that refer to the same host on every node",
            )
            problems.append(
                RankTableProblem(
                    f"line {first_lines[short_name(name)]}", problem, requirement, "Write the host's own name"
                )
            )
    if not hosts and not problems:
        problems.append(
            RankTableProblem(None, "the hostfile lists no hosts", _LINE_REQUIREMENT, "Write one line per host")
        )
    if problems:
        raise HostfileError(problems)
    return hosts


def _check_encoding(text: object) -> None:
    """Raise HostfileError for problems that affect the whole file."""
    if not isinstance(text, str):
        problem, remedy = f"the hostfile is {format_value(text)}", "Pass the content of the file as text"
    elif text.startswith("\ufeff"):
        problem, remedy = (
            "the file begins with a byte order mark, which becomes part of a name",
            "Save it as UTF-8 without BOM",
        )
    elif "\r" in text:
        number = text.count("\n", 0, text.index("\r")) + 1
        problem = f"line {number} has a carriage return (a Windows line ending), which Open MPI rejects"
        remedy = r"Convert the file: sed -i 's/\r$//' HOSTFILE"
    else:
        return
    raise HostfileError([RankTableProblem(None, problem, _LINE_REQUIREMENT, remedy)])


def _line_error(line: str, body: str, *, open_comment: bool) -> tuple[str, str] | None:
    """Return the problem with a line and its remedy, or None if it is valid; `body` is the line without comment."""
    if not line.replace("\t", " ").isprintable():
        return f"{format_value(line)} contains a control character", "Remove it"
    if open_comment:
        # Open MPI's lexer needs a newline after a comment; without one, it reads the words as host names.
        return (
            "the comment on the last line has no newline, so Open MPI reads its words as hosts",
            "Add a newline",
        )
    if body != line and body and body[-1] not in " \t":
        return f"{format_value(line)} has no space before the comment", "Put a space before #"
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
        return f"{format_value(body)} is not recognized", f"Write `{name} slots=N` with N from 1 to {MAX_SLOTS}"
    return None
