"""Hypothesis strategies shared by several tests: valid clusters, and hostfiles that are almost valid."""

from __future__ import annotations

import os
import string

from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec


def examples(number: int) -> int:
    """Return how many examples a test generates: as many as this in make test-all, a tenth of them in make test."""
    return number if os.environ.get("ROWS") == "all" else number // 10


_short_names = st.text(string.ascii_letters + string.digits + "-_", max_size=8).map("n{}".format)
_domains = st.sampled_from(["", "", ".a.example", ".b", ".ec2.internal"])


@st.composite
def clusters(draw: st.DrawFn, six: bool | None = None) -> list[HostSpec]:
    """Generate hosts that form a rank table, with IPv4 addresses, IPv6 addresses (`six`), or either."""
    names = draw(st.lists(_short_names, min_size=1, max_size=12, unique_by=str.lower))
    numbers = draw(st.lists(st.integers(1, 2**16 - 1), min_size=len(names), max_size=len(names), unique=True))
    if six is None:
        six = draw(st.booleans())
    return [
        HostSpec(
            name + draw(_domains),
            f"fd00::{number:x}" if six else f"10.0.{number >> 8}.{number & 255}",
            draw(st.integers(1, 16)),
        )
        for name, number in zip(names, numbers, strict=True)
    ]


_NAMES = ("node0", "node1.b", "10.0.0.1", "10.0.0.2", "a-b_c", "9n")
_blanks = st.text(" \t", max_size=2)
_comments = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["C", "Z"]), max_size=8)


@st.composite
def _right(draw: st.DrawFn) -> str:
    """Generate a hostfile that DeepSpeed and Open MPI read identically."""
    lines = []
    for name in draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True)):
        if draw(st.booleans()):
            lines.append(draw(_blanks) + draw(st.just("") | _comments.map("#{}".format)))
        end = draw(_blanks | _comments.map("\t#{}".format))
        lines.append(f"{draw(_blanks)}{name}{draw(_blanks)} slots={draw(st.integers(1, 20))}{end}")
    return "".join(f"{line}\n" for line in lines)


# Text that corrupts a hostfile: much of it makes a launcher misread the line.
_pieces = st.sampled_from(
    ("node0", "Node0.a", "slots=1", "slots", "max_slots=4", "=", "0", "7", "cpu", "rank", "port", "localhost", "+n0")
    + (" ", "\t", "\n", "#", " # ", "/", "//", "/*", "*/", ";", ",", ":", "@", "^", "[", "]", '"', "'", "\\", "$")
    + ("\r\n", "\r", "\ufeff", "\x00", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\xa0", "ü", "٤", "²")
)


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """Generate a hostfile into which text was inserted or from which text was removed."""
    text = draw(_right())
    start = draw(st.integers(0, len(text)))
    end = start + draw(st.integers(0, 2))
    return text[:start] + draw(_pieces | st.just("")) + text[end:]


hostfile_like = _right() | _damaged()
"""Generate text that is a hostfile, or almost one."""
