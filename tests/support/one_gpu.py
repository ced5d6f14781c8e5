"""A substitute for nvidia-smi that reports one GPU, as far as the software choice needs it."""

from __future__ import annotations


def one_gpu(name: str, capability: str, memory_mib: int) -> str:
    """Return the program's text, with driver 580.65.06 (CUDA 13). capability: compute capability, such as 8.0."""
    return rf"""#!/bin/sh
case "$1" in
--query-gpu=compute_cap) printf 'compute_cap\n{capability}\n' ;;
--query-gpu=*) cat <<'END'
index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode
0, GPU-0, {name}, 580.65.06, {memory_mib} MiB, 1 MiB, Default
END
esac
"""
