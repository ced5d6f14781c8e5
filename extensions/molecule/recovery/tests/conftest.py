"""The test hosts of this scenario, and clean nodes before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Five test hosts of this scenario's own, which lose their power and their network."""
    with drive.own_lab("recovery", nodes=5) as lab:
        for node in lab.nodes:
            lab.exec(node.name, ["rm", "-rf", "/home/muster/.muster"])
        yield lab


@pytest.fixture
def nodes(lab: Lab) -> Iterator[list[str]]:
    """The names of the nodes, which are on, can be reached and hold no run, before and after."""
    with drive.clean_nodes(lab, 5) as names:
        yield names
