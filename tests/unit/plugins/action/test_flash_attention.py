"""Each step gets only the options it needs, because a cached answer is found by these options."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.action.flash_attention import ARGUMENT_SPEC, build_request

GIVEN: dict[str, Any] = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}


def asked(**given: Any) -> dict[str, Any]:
    return build_request({**GIVEN, "directory": "/opt/muster", **given})


def test_each_step_gets_only_the_options_it_needs() -> None:
    assert asked(step="gpus") == {"step": "gpus"}
    proof = {"step": "prove", "key": "k", "marker": "/opt/muster/installed/flash_attention.proved"}
    assert asked(step="prove", key="k") == proof
    choice = asked(step="choose", wheels="https://wheels/vVERSION", capabilities=["9.0"])
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
