# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The strategies example with sweep.yml on two local nodes: two tables, and the same loss with every strategy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.table import HEADER
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import CHECKOUT, typed

pytestmark = pytest.mark.one_core  # needs torch

EXAMPLE = CHECKOUT / "examples" / "strategies"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection and an inventory of two nodes."""
    two_nodes(tmp_path, 23, launch_report=False)
    return tmp_path


def run_sweep(directory: Path, *names: str, **more: Any) -> dict[str, Any]:
    """Return the output of a sweep over some variants of the example."""
    variants = yaml.safe_load((EXAMPLE / "variants.yml").read_text())
    settings = {
        **variants,
        "sweep_variants": [item for item in variants["sweep_variants"] if item["name"] in names],
        "sweep_args": "--steps 4 --global-batch-size 8",
        "fit_args": variants["fit_args"].replace("--steps 20", "--steps 4"),
        "launch_script": str(EXAMPLE / "train.py"),
        **more,
    }
    completed = typed(
        directory, ["ansible-playbook", "muster.training.sweep", "-i", "machines.yml", "-e", json.dumps(settings)]
    )
    assert completed.returncode == 0, completed.stdout
    result: dict[str, Any] = json.loads((directory / "runs" / "sweep" / "sweep.json").read_text())
    return result


def losses(directory: Path) -> list[float]:
    """Return the losses of all runs in a sweep."""
    return [
        json.loads(path.read_text())["job_results"]["loss"] for path in (directory / "runs").glob("sweep-*/result.json")
    ]


@pytest.mark.thorough  # oracles/test_train_ddp.py trains this example with FSDP
def test_strategies_reach_the_same_loss(directory: Path) -> None:
    result = run_sweep(directory, "ddp-1", "fsdp-2")
    (table,) = result["tables"]
    assert {(row["variant"], row["ranks"], row["global_batch_size"]) for row in table["rows"]} == {
        ("ddp-1", 1, 8),
        ("fsdp-2", 2, 8),
    }
    assert all(row["samples_per_second"] > 0 and row["memory_mib"] > 0 for row in table["rows"])
    first, second = losses(directory)
    assert first == pytest.approx(second, abs=2e-3)


@pytest.mark.thorough
def test_largest_batch_results_go_into_a_second_table(directory: Path) -> None:
    result = run_sweep(directory, "ddp-2", sweep_fit=True, fit_start=8, fit_max=8, fit_margin=0)
    rows = {
        table["batch"]: [(row["variant"], row["batch_size"]) for row in table["rows"]] for table in result["tables"]
    }
    assert rows == {"same": [("ddp-2", 4)], "largest": [("ddp-2", 8)]}
    page = (directory / "runs" / "sweep" / "sweep.md").read_text()
    assert page.count("| variant | nodes | ranks |") == 2


def test_table_in_docs_has_header_and_variants_of_the_example() -> None:
    page = (CHECKOUT / "docs" / "experiments.md").read_text()
    (header,) = re.findall(r"^\| (variant \| .*) \|$", page, re.MULTILINE)
    assert header.split(" | ") == HEADER[: HEADER.index("cost")]
    names = [item["name"] for item in yaml.safe_load((EXAMPLE / "variants.yml").read_text())["sweep_variants"]]
    assert sorted(re.findall(r"^\| ((?:ddp|fsdp|zero\d)-\d) \|", page, re.MULTILINE)) == sorted(names)
