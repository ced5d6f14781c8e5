"""Fixtures: the test hosts of this scenario, and clean nodes before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield five test hosts for this scenario only, which are powered off and isolated."""
    with drive.own_lab("recovery", nodes=5) as lab:
        for node in lab.nodes:
            lab.exec(node.name, ["rm", "-rf", "/home/muster/.muster"])
        yield lab


@pytest.fixture
def nodes(lab: Lab) -> Iterator[list[str]]:
    """Yield the names of the nodes, which are on, reachable and without runs before and after the test."""
    with drive.clean_nodes(lab, 5) as names:
        yield names
