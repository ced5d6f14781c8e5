# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUDirect RDMA, from kernel modules in sysfs and the driver's version text."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import gpudirect

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder@U22)\n"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:53:15 UTC 2025\n"


@pytest.mark.parametrize(
    ("driver", "release", "expected"),
    [
        (OPEN, "6.8.0-60-generic", True),
        (OPEN, "5.12.0", True),
        (OPEN, "5.4.0-216-generic", False),
        (PROPRIETARY, "6.8.0-60-generic", False),
        ("", "6.8.0", False),
        (OPEN, "unknown", False),
    ],
)
def test_open_modules_on_a_new_kernel_share_memory(driver: str, release: str, expected: bool) -> None:
    assert gpudirect.has_dma_buf(driver, release) is expected


def test_loaded_module_is_detected(tmp_path: Path) -> None:
    (tmp_path / "version").write_text(OPEN)
    arguments = (str(tmp_path / "module"), str(tmp_path / "version"))
    assert gpudirect.read_gpudirect(*arguments, release="6.8.0") == {"peermem": False, "dma_buf": True}
    (tmp_path / "module" / "nvidia_peermem").mkdir(parents=True)
    assert gpudirect.read_gpudirect(*arguments, release="5.4.0") == {"peermem": True, "dma_buf": False}
    assert gpudirect.read_gpudirect("/nonexistent", "/nonexistent") == {"peermem": False, "dma_buf": False}
