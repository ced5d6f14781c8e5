"""Fixtures shared by the tests of all scenarios."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Lab:
    """Find the test hosts of this run of Molecule."""
    return Lab.load(os.environ.get("MUSTER_LAB", "molecule"))


@pytest.fixture
def breakable(lab: Lab) -> Iterator[Lab]:
    """Yield the test hosts to a test that turns hosts off or cuts them off; all are back for the next one."""
    yield lab
    lab.mend()
