"""Hypothesis strategies shared by several tests: valid clusters."""

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
