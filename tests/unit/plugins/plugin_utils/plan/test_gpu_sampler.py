"""The command that samples a node's GPUs."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_sampler import sample_command


def test_sampling_command_is_that_of_the_gpu_vendor() -> None:
    facts: dict[str, Any] = {
        "node_python": {"path": "/usr/bin/python3"},
        "gpus": {"vendor": "amd", "count": 8, "selected": [2, 3], "smi": {"path": "/opt/rocm/bin/amd-smi"}},
    }
    assert sample_command(facts, "/run/node0") == [
        "/usr/bin/python3",
        "-I",
        "-S",
        "/run/node0/supervisor.py",
        "--sample-amd-gpus",
        "/opt/rocm/bin/amd-smi",
        "2",
        "3",
    ]
    facts["gpus"] = {"count": 8, "smi": {"path": "/usr/bin/nvidia-smi"}}
    assert sample_command(facts, "/run/node0")[0] == "/usr/bin/nvidia-smi"
    facts["gpus"] = {"vendor": "amd", "count": 0, "smi": {"path": ""}}
    assert sample_command(facts, "/run/node0") == []
