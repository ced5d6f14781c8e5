# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of real kernel logs, from issue trackers and NVIDIA's documentation, and their entries of the Xid catalogue."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import (
    ACTIONS,
    CATALOGUE,
    JOB,
    MACHINE,
    NOTHING,
    describe_error,
    normalize_pci,
    parse_line,
)

LINES = [
    ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus", 79, "0000:44:00", MACHINE),
    ("NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.", 79, "0000:01:00", MACHINE),
    ("[12345.678901] NVRM: Xid (PCI:0000:3b:00.0): 79, pid=0, GPU has fallen off the bus.", 79, "0000:3b:00", MACHINE),
    (
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        63,
        "0000:10:1c",
        NOTHING,
    ),
    (
        "Aug 10 15:36:05 gpu-a kernel: NVRM: Xid (PCI:0000:55:00): 48, pid=2187734, name=python, channel 0x00000002",
        48,
        "0000:55:00",
        MACHINE,
    ),
    (
        "NVRM: Xid (PCI:0000:07:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has "
        "been detected on GPU in the framebuffer at physAddr 0x7fdf0de80 partition 5, subpartition 0.",
        48,
        "0000:07:00",
        MACHINE,
    ),
    (
        "NVRM: Xid (PCI:0000:65:00): 94, pid='<unknown>', name=<unknown>, Contained: CE User Channel (0x9). RST: No, "
        "D-RST: No",
        94,
        "0000:65:00",
        JOB,
    ),
    (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        94,
        "0000:01:00",
        JOB,
    ),
    (
        "[449410.332316] NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected "
        "on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
        74,
        "0003:00:00",
        MACHINE,
    ),
    (
        "NVRM: Xid (PCI:0000:19:00): 119, pid=452531, name=cache_mgr_main, Timeout after 6s of waiting for RPC "
        "response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20809004 0x4).",
        119,
        "0000:19:00",
        MACHINE,
    ),
    (
        "NVRM: Xid (PCI:0000:97:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        154,
        "0000:97:00",
        MACHINE,
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        154,
        "0000:01:00",
        NOTHING,
    ),
    (
        "[171167.620236] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6)",
        149,
        "0009:01:00",
        MACHINE,
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001)",
        149,
        "0018:01:00",
        JOB,
    ),
    (
        "[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, "
        "errorString CTX SWITCH TIMEOUT, Info 0x58005",
        109,
        "0000:cb:00",
        MACHINE,
    ),
    ("NVRM: Xid (PCI:0000:01:00): 62, pid=2763, 0c83(1870) 00000000 00000000", 62, "0000:01:00", MACHINE),
    (
        "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS "
        "GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
        31,
        "0000:00:06",
        JOB,
    ),
    (
        "NVRM: Xid (PCI:0002:00:00): 13, pid=2519562, name=python3, Graphics Exception: ChID 000c, Class 0000cbc0",
        13,
        "0002:00:00",
        JOB,
    ),
    ("nvrm:  xid ( pci:0000:00:1e.0 ) : 43, channel 0x1", None, "", ""),
    (
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus and is "
        "not responding to commands.",
        79,
        "0000:b3:00",
        MACHINE,
    ),
    ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", 79, "0000:01:00", MACHINE),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        12028,
        "0000:05:00",
        NOTHING,
    ),
    ("nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, Fatal, Link 12 Always Fatal", 23001, "0000:59:00", MACHINE),
    ("NVRM: GPU at PCI:0000:01:00: GPU-462c5715-f9c5-3eed-56ad-35fdd066205f", None, "", ""),
    ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01", None, "", ""),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", None, "", ""),
]


@pytest.mark.parametrize(("line", "code", "pci", "level"), LINES)
def test_line_of_a_kernel_log_is_parsed(line: str, code: int | None, pci: str, level: str) -> None:
    error = parse_line(line)
    parsed = (error.code, error.pci, error.level) if error is not None else (None, "", "")
    assert parsed == (code, pci, level)


def test_description_includes_the_action_that_nvidia_recommends() -> None:
    error = parse_line(LINES[0][0])
    assert error is not None
    assert describe_error(error, "GPU 2") == (
        "Xid 79 on GPU 2 (GPU has fallen off the bus); NVIDIA: restart the machine; have the GPU replaced if the error "
        "returns"
    )
    assert describe_error(error).startswith("Xid 79 on GPU 0000:44:00 (")
    recovery = parse_line(LINES[10][0])
    assert recovery is not None and recovery.action == "recovery action: GPU Reset Required"


def test_unknown_code_is_reported_as_a_job_error() -> None:
    error = parse_line("NVRM: Xid (PCI:0000:44:00): 999, something new")
    assert error is not None and (error.level, error.text) == (JOB, "something new")


def test_each_code_has_a_known_bucket() -> None:
    assert {entry.bucket for entry in CATALOGUE.values()} <= set(ACTIONS)
    assert all(code == entry.code and entry.description for code, entry in CATALOGUE.items())
    assert len(CATALOGUE) == 109


@pytest.mark.parametrize("address", ["0000:44:00", "00000000:44:00.0", "44:00.0", "0:44:00"])
def test_addresses_have_a_single_form(address: str) -> None:
    assert normalize_pci(address) == "0000:44:00"
