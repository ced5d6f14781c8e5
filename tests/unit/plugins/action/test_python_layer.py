"""The steps of a layer as both sides know them, and what an installation has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.action import flash_attention, python_layer
from ansible_collections.muster.training.plugins.module_utils._python_layer.steps import STEPS
from ansible_collections.muster.training.plugins.module_utils._torch.flash_attention import STEPS as FLASH_STEPS

LAYER = Path(__file__).resolve().parents[4] / "roles" / "python_env" / "tasks" / "layer.yml"


def test_each_step_is_known_on_the_node() -> None:
    assert set(python_layer.WHAT) == set(STEPS)
    assert set(python_layer.READING) | set(python_layer.LONG) < set(STEPS)
    assert set(flash_attention.WHAT) == set(FLASH_STEPS)


def test_an_installation_shows_what_it_has_changed() -> None:
    answer: dict[str, Any] = {"changed": True, "installed": ["numpy", "torch"], "removed": ["six"]}
    assert python_layer.difference(answer) == {"before": "six\n", "after": "numpy\ntorch\n"}


def test_the_role_gives_each_option_once_for_all_steps() -> None:
    """What a step alone needs aside; an option that is forgotten would be another lock on the node."""
    (block,) = (task for task in yaml.safe_load(LAYER.read_text()) if "module_defaults" in task)
    given = block["module_defaults"]["muster.training.python_layer"]
    assert {name: f"{{{{ __python_env_given.{name} }}}}" for name in given} == given
    of_a_step = {"step", "lock", "from", "url", "address", "token"}
    assert set(given) == set(python_layer.ARGUMENT_SPEC) - of_a_step


@pytest.mark.parametrize(
    "name", ["index_url", "extra_index_urls", "find_links", "environment", "requirements", "token"]
)
def test_what_may_hold_a_secret_is_marked_so(name: str) -> None:
    assert python_layer.ARGUMENT_SPEC[name]["no_log"] is True
