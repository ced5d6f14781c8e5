"""The test hosts of this scenario, and clean nodes before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four untouched test hosts of this scenario's own: other scenarios mend the traps with which a run must live."""
    with drive.own_lab("launch", nodes=4) as lab:
        for node in lab.nodes:
            lab.exec(node.name, ["rm", "-rf", "/home/muster/.muster"])
        yield lab


@pytest.fixture
def nodes(lab: Lab) -> Iterator[list[str]]:
    """The names of the nodes, which are on, can be reached and hold no run, before and after."""
    with drive.clean_nodes(lab, 4) as names:
        yield names
