"""The simulation of a large run, at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import bench_scale
from tests.unit.supervised import WORKER

pytestmark = pytest.mark.one_core


def test_simulation_ends_all_nodes_and_blames_the_failed_one(tmp_path: Path) -> None:
    figures = bench_scale.measure(tmp_path, 3, quiet=0.0001, network=f"127.{WORKER + 100}")
    assert 0 < figures.last_job <= figures.last_supervisor  # the simulation itself checks status and verdict
    lines = bench_scale.table([3], [figures]).splitlines()
    assert [line[:62].strip() for line in lines] == ["nodes", *(title for title, _form in bench_scale.ROWS.values())]


def test_addresses_of_nodes_differ() -> None:
    assert len(set(bench_scale.addresses(512))) == 512
