"""Fixture: three test hosts for this scenario only; the third joins later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield fresh hosts."""
    with drive.own_lab("slurm", nodes=3) as lab:
        yield lab
