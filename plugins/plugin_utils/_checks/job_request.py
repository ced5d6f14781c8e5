# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data about a job that is sent to nodes so that they can read its inputs. It never contains a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import module_source

# Variables that determine which files a job uses on a node. None of them holds a secret, so their values may be sent
# and shown.
PLAIN_VARIABLES = frozenset(
    (
        *(
            "PYTHONPATH",
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "PATH",
            "HOME",
            "TMPDIR",
            "CC",
            "CXX",
            "CUDA_HOME",
            "CUDA_PATH",
        ),
        *("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_P2P_DISABLE"),
        *(
            "NCCL_IB_DISABLE",
            "NCCL_IB_GID_INDEX",
            "NCCL_IB_HCA",
            "NCCL_NET",
            "NCCL_NET_GDR_LEVEL",
            "FI_PROVIDER",
            "XDG_CACHE_HOME",
        ),
        *("HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME"),
        *("TORCH_EXTENSIONS_DIR", "WANDB_MODE", "WANDB_BASE_URL", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"),
        *("PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONHOME", "KERAS_BACKEND", "USE_TF", "USE_TORCH", "LC_ALL"),
        *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CREDENTIAL_EXPIRATION", "TORCHDYNAMO_DISABLE"),
    )
)
JOB_SPEC: dict[str, dict[str, Any]] = {
    "module": {"type": "str", "default": ""},
    "no_python": {"type": "bool", "default": False},
    "environment": {"type": "dict", "default": {}, "no_log": True},
    "import_test": {"type": "bool", "default": True},
    "code": {"type": "str", "default": "synced"},
    "container_mounts": {"type": "list", "elements": "str", "default": []},
    "container_options": {"type": "list", "elements": "str", "default": []},
}


def plain_environment(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return a job's variables that do not contain secrets."""
    return {
        name: str(value)
        for name, value in environment.items()
        if name in PLAIN_VARIABLES
        and not isinstance(value, (dict, list, bool))
        and value is not None
        and not ("://" in str(value) and "@" in str(value))  # a URL may contain a password
    }


def job_request(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `job` part of a facts request, from an argument with the options of JOB_SPEC."""
    return {
        "program": module_source("_facts.import_program"),
        "test": job["import_test"],
        "cuda": job["import_test"],
        "module": job["module"],
        "no_python": job["no_python"],
        "copies_code": job["code"] != "as_is",
        "environment": plain_environment(job["environment"]),
        "names": sorted(job["environment"]),
        "mounts": job["container_mounts"],
        "options": job["container_options"],
    }
