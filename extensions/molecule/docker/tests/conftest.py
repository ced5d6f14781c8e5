"""Two test hosts of this scenario's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Fresh hosts."""
    with drive.own_lab("docker", nodes=2) as lab:
        yield lab
