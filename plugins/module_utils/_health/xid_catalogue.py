# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's Xid catalogue: errors that the driver writes to the kernel log, and what to do about them. Pure.

The table is the sheet "Xids" of NVIDIA's Xid-Catalog.xlsx without its unused codes: code, description, and the
"immediate action", which NVIDIA calls a resolution bucket. Descriptions are shortened.
"""

from __future__ import annotations

import collections
import re

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
# The copy in oracle-quickstart/oci-hpc, commit ea10de733c15, of the workbook with MD5 c895f0f0c6ff71e445b5cd67bb763a0b,
# as of 2026-11-27.

# What an Xid means for the machine.
NOTHING = "nothing"  # informational
JOB = "job"  # the job may have caused it, or must be restarted; the GPU works
MACHINE = "machine"  # the GPU must not be used until it is reset, or the machine is rebooted or repaired

# The action for each of NVIDIA's resolution buckets, and the meaning of the error for the machine.
Action = collections.namedtuple("Action", "text level")
ACTIONS = {
    "IGNORE": Action("no action is needed", NOTHING),
    "RESTART_APP": Action("restart the job", JOB),
    "RESTART_VM": Action("restart the virtual machine", MACHINE),
    "RESTART_BM": Action("restart the machine; have the GPU replaced if the error returns", MACHINE),
    "RESET_GPU": Action("reset the GPU or reboot; have the GPU replaced if the error returns", MACHINE),
    "CHECK_MECHANICALS": Action("check the GPU's power connectors", MACHINE),
    "CHECK_UVM": Action("look for an error in the memory shared by CPU and GPU", JOB),
    "CONTACT_SUPPORT": Action("contact NVIDIA's support", JOB),
    "UPDATE_SWFW": Action("update the driver and the firmware", JOB),
    "WORKFLOW_XID_45": Action("look for the preceding error", NOTHING),
    "WORKFLOW_XID_48": Action("reset the GPU; have it replaced if the error returns", MACHINE),
    "WORKFLOW_NVLINK_ERR": Action("reset the GPU or reboot; check the NVLink connection if the error returns", MACHINE),
    "WORKFLOW_NVLINK5_ERR": Action("reset the GPU if the error is fatal", JOB),
    "XID_154": Action("follow the recovery action named in the message", JOB),
    "": Action("NVIDIA names no action", JOB),
}

Xid = collections.namedtuple("Xid", "code description bucket")
CATALOGUE = {
    code: Xid(code, description, bucket)
    for code, bucket, description in (
        (8, "RESTART_APP", "GPU stopped processing"),
        (11, "RESTART_APP", "invalid or corrupted push buffer stream"),
        (13, "RESTART_APP", "graphics engine exception"),
        (25, "RESTART_APP", "invalid or illegal push buffer stream"),
        (31, "RESTART_APP", "GPU memory page fault"),
        (32, "RESTART_APP", "invalid or corrupted push buffer stream"),
        (37, "IGNORE", "driver firmware error"),
        (38, "IGNORE", "driver firmware error"),
        (39, "RESTART_APP", "copy engine exception"),
        (40, "RESTART_APP", "copy engine exception"),
        (41, "RESTART_APP", "copy engine exception"),
        (43, "IGNORE", "GPU stopped processing"),
        (44, "IGNORE", "graphics engine fault during context switch"),
        (45, "WORKFLOW_XID_45", "preemptive cleanup, due to previous errors"),
        (46, "RESET_GPU", "GPU stopped processing"),
        (48, "WORKFLOW_XID_48", "double-bit ECC error"),
        (54, "CHECK_MECHANICALS", "auxiliary power is not connected to the GPU board"),
        (60, "RESTART_APP", "video processor exception"),
        (62, "RESET_GPU", "internal micro-controller halt"),
        (63, "IGNORE", "GPU memory remapping event"),
        (64, "RESET_GPU", "GPU memory remapping failure"),
        (66, "IGNORE", "illegal access by driver"),
        (67, "IGNORE", "illegal access by driver"),
        (68, "RESTART_APP", "NVDEC0 exception"),
        (69, "RESTART_APP", "graphics engine class error"),
        (70, "RESTART_APP", "CE3: unknown error"),
        (71, "RESTART_APP", "CE4: unknown error"),
        (72, "RESTART_APP", "CE5: unknown error"),
        (74, "WORKFLOW_NVLINK_ERR", "NVLink error"),
        (75, "RESTART_APP", "CE6: unknown error"),
        (76, "RESTART_APP", "CE7: unknown error"),
        (77, "RESTART_APP", "CE8: unknown error"),
        (78, "UPDATE_SWFW", "vGPU start error"),
        (79, "RESTART_BM", "GPU has fallen off the bus"),
        (80, "RESTART_APP", "corrupted data sent to GPU"),
        (82, "RESTART_APP", "NVJPG0 error"),
        (83, "RESTART_APP", "NVDEC1 error"),
        (84, "RESTART_APP", "NVDEC2 error"),
        (85, "RESTART_APP", "CE9: unknown error"),
        (86, "RESTART_APP", "OFA exception"),
        (88, "RESTART_APP", "NVDEC3 error"),
        (89, "RESTART_APP", "NVDEC4 error"),
        (92, "IGNORE", "high single-bit ECC error rate"),
        (93, "IGNORE", "non-fatal violation of provisioned InfoROM wear limit"),
        (94, "RESTART_APP", "contained memory error"),
        (95, "RESET_GPU", "uncontained memory error"),
        (96, "RESTART_APP", "NVDEC5 error"),
        (97, "RESTART_APP", "NVDEC6 error"),
        (98, "RESTART_APP", "NVDEC7 error"),
        (99, "RESTART_APP", "NVJPG1 error"),
        (100, "RESTART_APP", "NVJPG2 error"),
        (101, "RESTART_APP", "NVJPG3 error"),
        (102, "RESTART_APP", "NVJPG4 error"),
        (103, "RESTART_APP", "NVJPG5 error"),
        (104, "RESTART_APP", "NVJPG6 error"),
        (105, "RESTART_APP", "NVJPG7 error"),
        (106, "IGNORE", "SMBPBI test message"),
        (107, "IGNORE", "SMBPBI test message (silent)"),
        (109, "RESET_GPU", "context switch timeout"),
        (110, "RESET_GPU", "security fault"),
        (119, "RESET_GPU", "GSP RPC timeout"),
        (120, "RESET_GPU", "GSP error"),
        (121, "IGNORE", "C2C error"),
        (126, "RESTART_APP", "CE10: unknown error"),
        (127, "RESTART_APP", "CE11: unknown error"),
        (128, "RESTART_APP", "CE12: unknown error"),
        (129, "RESTART_APP", "CE13: unknown error"),
        (130, "RESTART_APP", "CE14: unknown error"),
        (131, "RESTART_APP", "CE15: unknown error"),
        (132, "RESTART_APP", "CE16: unknown error"),
        (133, "RESTART_APP", "CE17: unknown error"),
        (134, "RESTART_APP", "CE18: unknown error"),
        (135, "RESTART_APP", "CE19: unknown error"),
        (136, "RESET_GPU", "link training failed"),
        (137, "IGNORE", "NVLink privilege error"),
        (139, "RESTART_APP", "OFA1 error"),
        (140, "RESET_GPU", "unrecovered ECC error"),
        (141, "IGNORE", "CUDA fast path error"),
        (142, "CONTACT_SUPPORT", "NVENC3 error"),
        (143, "RESET_GPU", "GPU initialization error"),
        (144, "WORKFLOW_NVLINK5_ERR", "NVLink: SAW error"),
        (145, "WORKFLOW_NVLINK5_ERR", "NVLink: RLW error"),
        (146, "WORKFLOW_NVLINK5_ERR", "NVLink: TLW error"),
        (147, "WORKFLOW_NVLINK5_ERR", "NVLink: TREX error"),
        (148, "WORKFLOW_NVLINK5_ERR", "NVLink: NVLPW_CTRL error"),
        (149, "WORKFLOW_NVLINK5_ERR", "NVLink: NETIR error"),
        (150, "WORKFLOW_NVLINK5_ERR", "NVLink: MSE error"),
        (151, "RESTART_VM", "key rotation error"),
        (152, "IGNORE", "DLA SMMU error"),
        (153, "IGNORE", "DLA timeout"),
        (154, "XID_154", "GPU recovery action changed"),
        (155, "RESET_GPU", "NVLink: software-defined error"),
        (156, "RESET_GPU", "resource retirement event"),
        (157, "IGNORE", "resource retirement failure"),
        (158, "RESET_GPU", "GPU fatal timeout"),
        (159, "CHECK_UVM", "CHI non-data error"),
        (160, "IGNORE", "channel retirement event"),
        (161, "IGNORE", "channel retirement failure"),
        (162, "", "power smoothing capability reengaged"),
        (163, "", "power smoothing capability disengaged"),
        (164, "", "power smoothing circuitry has a low remaining lifetime"),
        (165, "", "power smoothing circuitry has no remaining lifetime"),
        (166, "", "traffic before the link was configured for encryption"),
        (167, "", "fatal PCIe timeout"),
        (168, "", "errors in the write-protected region"),
        (169, "", "internal micro-controller halt"),
        (170, "", "interrupt in confidential computing mode"),
        (171, "", "details of a double-bit ECC error (Xid 48)"),
        (172, "", "details of a double-bit ECC error (Xid 48)"),
    )
}
NVLINK5 = range(144, 151)  # codes whose line in the log says whether the error is fatal
RECOVERY = 154
RECOVERY_ACTION = re.compile(r"\(([^()]*)\)[^()]*\Z")  # "changed from 0x0 (None) to 0x2 (Node Reboot Required)"
RESTING = ("none", "")

# Kernel messages about a GPU: by Xid, or without one, as newer drivers report a GPU that fell off the bus.
XID_LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{1,8}:[0-9a-fA-F:.]{4,8})[^)]*\): (?P<code>[0-9]{1,4})\b(?P<text>.*)"
)
LOST_LINE = re.compile(r"NVRM: (?:The NVIDIA )?GPU (?P<pci>[0-9a-fA-F]{1,8}:[0-9a-fA-F:.]{4,8}):? *(?P<text>.*)")
FALLEN = re.compile(r"fallen off the bus")
SWITCH_LINE = re.compile(
    r"nvidia-nvswitch[0-9]+: SXid \(PCI:(?P<pci>[0-9a-fA-F:.]{4,20})\): (?P<code>[0-9]{1,6}), "
    r"(?P<kind>Fatal|Non-fatal)\b,?(?P<text>.*)"
)
MAX_TEXT = 300  # number of characters of a kernel message that are kept

# A GPU or NVSwitch error. pci: the device's address, such as 0000:44:00. kind: Xid or SXid (of an NVSwitch).
GpuError = collections.namedtuple("GpuError", "kind code pci level description action text")


def normalize_pci(address: str) -> str:
    """Return a PCI address in the form "0000:44:00": the kernel log and nvidia-smi format it differently."""
    parts = address.lower().partition(".")[0].split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    return ":".join([parts[0][-4:].zfill(4), *(part.zfill(2) for part in parts[1:])])


def parse_line(line: str) -> GpuError | None:
    """Return the error reported by a line of the kernel log, or None for any other line."""
    match = XID_LINE.search(line)
    if match:
        return describe_xid(int(match["code"]), match["pci"], match["text"])
    match = LOST_LINE.search(line)
    if match and FALLEN.search(match["text"]):
        return describe_xid(79, match["pci"], match["text"])
    match = SWITCH_LINE.search(line)
    if match:
        is_fatal = match["kind"] == "Fatal"
        action = "reset the NVSwitch and all GPUs, or reboot" if is_fatal else "no action is needed"
        text = shorten(match["text"])
        description = f"{match['kind'].lower()} NVSwitch error"
        level = MACHINE if is_fatal else NOTHING
        return GpuError("SXid", int(match["code"]), normalize_pci(match["pci"]), level, description, action, text)
    return None


def describe_xid(code: int, pci: str, text: str) -> GpuError:
    """Return an Xid with NVIDIA's description and action; an unknown code counts as an error of the job."""
    entry = CATALOGUE.get(code) or Xid(code, "not in NVIDIA's catalogue", "")
    action = ACTIONS[entry.bucket]
    message, level = action.text, action.level
    if code in NVLINK5 and re.search(r"\bFatal\b", text):
        message, level = ACTIONS["RESET_GPU"]
    elif code == RECOVERY:
        named = RECOVERY_ACTION.search(text)
        recovery = named[1].strip() if named else ""
        message = f"recovery action: {shorten(recovery)}" if recovery else message
        level = MACHINE if named and recovery.lower() not in RESTING else NOTHING
    return GpuError("Xid", code, normalize_pci(pci), level, entry.description, message, shorten(text))


def shorten(text: str) -> str:
    """Return the text of a kernel message without leading punctuation, cut after MAX_TEXT characters."""
    return text.strip(" ,.\t")[:MAX_TEXT]


def describe_error(error: GpuError, gpu: str = "") -> str:
    """Return an error as text for users; gpu: the GPU's name, by default its PCI address."""
    part = f"NVSwitch {error.pci}" if error.kind == "SXid" else gpu or f"GPU {error.pci}"
    return f"{error.kind} {error.code} on {part} ({error.description}); NVIDIA: {error.action}"
