"""Supervisors of single nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.single_node import NodeMaker

# The collection can be imported only after pytest has read all conftest.py.


@pytest.fixture
def make_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeMaker]:
    from tests.unit.single_node import node_maker

    yield from node_maker(tmp_path, monkeypatch)


@pytest.fixture
def make_rank_0(make_node: NodeMaker) -> NodeMaker:
    from tests.unit.single_node import hub_maker

    return hub_maker(make_node)
