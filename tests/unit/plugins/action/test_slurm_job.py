# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of the reply of a login host about a submitted job."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.action import slurm_job


@pytest.mark.parametrize("job", ["../../run", "--user=root", "", "12\n", 12, None])
def test_job_number_must_be_a_number(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node passes the number to scontrol and uses it in a file name."""
    monkeypatch.setattr(slurm_job, "call_node", lambda *_arguments: {"job": job})
    args = {"count": 1, "requeue": 0, "group": "training"}
    variables = {"groups": {"training": ["gpu1"]}, "hostvars": {"gpu1": {}}}
    with pytest.raises(AnsibleActionFail, match="invalid reply"):
        slurm_job.ActionModule.allocate(cast("Any", None), args, variables)
