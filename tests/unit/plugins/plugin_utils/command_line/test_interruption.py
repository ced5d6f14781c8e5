# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages after Ctrl-C."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._command_line.interruption import (
    CONTINUING,
    describe_interruption,
)


def test_site_continues_although_it_has_launched_a_test_run() -> None:
    """The role open_mpi launches a run to verify itself, which the user did not start."""
    assert describe_interruption("site", launched=True) == f"site was interrupted: {CONTINUING}"
    assert "its run had ended" in describe_interruption("launch", launched=True)


@pytest.mark.parametrize("playbook", ["profile", "save", "stacks", "diff", "check"])
def test_commands_without_partial_work_do_not_claim_to_resume(playbook: str) -> None:
    text = describe_interruption(playbook)
    assert CONTINUING not in text
    assert "the run continues" in text or "nothing was changed" in text or playbook == "save"
