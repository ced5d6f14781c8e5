"""Each step gets only the options it needs, because they form the key of cached replies."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.action.flash_attention import ARGUMENT_SPEC, build_request

DEFAULTS: dict[str, Any] = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}


def make_request(**options: Any) -> dict[str, Any]:
    return build_request({**DEFAULTS, "directory": "/opt/muster", **options})


def test_each_step_gets_only_the_options_it_needs() -> None:
    assert make_request(step="gpus") == {"step": "gpus"}
    expected = {"step": "prove", "key": "k", "marker": "/opt/muster/installed/flash_attention.proved"}
    assert make_request(step="prove", key="k") == expected
    choice = make_request(step="choose", wheels="https://wheels/vVERSION", capabilities=["9.0"])
    assert choice == {
        "step": "choose",
        "version": "auto",
        "wheels": "https://wheels/vVERSION",
        "sha256": "",
        "build": False,
        "max_jobs": 0,
        "cuda_home": "",
        "capabilities": ["9.0"],
        "choice_file": "/opt/muster/installed/flash_attention.choice",
    }
