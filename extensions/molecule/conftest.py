"""Fixtures shared by the tests of all scenarios."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Lab:
    """Return the test hosts of this run of Molecule."""
    return Lab.load(os.environ.get("MUSTER_LAB", "molecule"))


@pytest.fixture
def breakable(lab: Lab) -> Iterator[Lab]:
    """Yield the test hosts to a test that powers off or isolates hosts; restore all of them for the next test."""
    yield lab
    lab.mend()
