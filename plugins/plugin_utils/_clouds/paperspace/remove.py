# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove things at Paperspace until they are proved to be gone. Private to this collection."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine, Step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import LOOK_AGAIN, Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    ForbiddenError,
    LostAnswerError,
    NotFoundError,
    PaperspaceError,
    RequestError,
    ServerError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_machines

#: Seconds.
GONE_WITHIN = 600.0
ASK_AGAIN = 30.0
EMPTY_WITHIN = 120.0  # a network notices late that its machines are gone
TRIES = 3


@dataclasses.dataclass
class _Leaving:
    """A machine being removed. asked: when removal was requested, None if not yet. refused: the API's last error."""

    name: str
    asked: float | None = None
    lost: bool = False
    state: str = "ready"
    tries: int = 0
    refused: str = ""


def remove_machines(work: Work, wanted: Mapping[str, str]) -> dict[str, str]:
    """Remove machines, given as names by id, all at once; return why some still exist, by name and id.

    Only a 404 proves that a machine is gone.
    """
    pending = {machine_id: _Leaving(name) for machine_id, name in wanted.items()}
    left: dict[str, str] = {}
    began = work.clock()
    while pending:
        for machine_id, one in pending.items():
            if one.asked is None:
                _ask(work, machine_id, one)
        work.sleep(LOOK_AGAIN)
        there = {machine["id"]: machine for machine in read_machines(work.client)}
        for machine_id, one in list(pending.items()):
            if _is_gone(work, machine_id, one, there.get(machine_id)):
                work.say(f"{one.name} ({machine_id}) is gone")
                work.record.forget("machine", one.name, machine_id)
            elif one.tries >= TRIES or work.clock() - began > GONE_WITHIN:
                why = one.refused or f"it is still there after {GONE_WITHIN / 60:g} minutes"
                left[f"{one.name} ({machine_id})"] = why
                work.say(f"{one.name} ({machine_id}) could not be removed: {why}")
            else:
                continue
            del pending[machine_id]
    return left


def _ask(work: Work, machine_id: str, one: _Leaving) -> None:
    try:
        operations.delete_machine(work.client, machine_id)
        one.asked, one.lost, one.refused = work.clock(), False, ""
    except NotFoundError:
        one.asked = work.clock()
    except LostAnswerError:
        one.asked, one.lost = work.clock(), True
    except (RequestError, ForbiddenError) as error:
        # the documentation requires a machine to be off before removal; others remove running ones
        one.refused, one.asked = error.what, work.clock()
        one.tries += one.state in ("ready", "off")  # in a transitional state, the request is repeated later
        with contextlib.suppress(RequestError, ForbiddenError, NotFoundError, LostAnswerError):
            operations.stop_machine(work.client, machine_id)


def _is_gone(work: Work, machine_id: str, one: _Leaving, machine: Machine | None) -> bool:
    waited = work.clock() - (one.asked or 0.0)
    if machine is not None:
        one.state = machine["state"]
        may_be_asked = machine["state"] == "off" or waited > ASK_AGAIN
        if (one.refused and may_be_asked) or (one.lost and waited > ASK_AGAIN):
            one.asked = None
        return False
    try:
        operations.get_machine(work.client, machine_id)
    except NotFoundError:
        return True
    except ServerError:
        return False  # no proof; ask again
    return False


def remove_other(work: Work, step: Step) -> str:
    """Remove a network, drive, script or address; return why it still exists, or ""."""
    delete: Callable[..., None] = {
        "network": operations.delete_network,
        "drive": operations.delete_drive,
        "script": operations.delete_startup_script,
        "address": operations.release_public_ip,
    }[step["what"]]
    began = work.clock()
    while True:
        try:
            delete(work.client, step["id"])
        except NotFoundError:
            pass
        except PaperspaceError as error:
            passing = isinstance(error, (LostAnswerError, RequestError))
            if not passing or work.clock() - began > EMPTY_WITHIN:
                work.say(f"{step['what']} {step['name']} could not be removed: {error.what}")
                return error.what
            work.sleep(LOOK_AGAIN)
            continue
        work.say(f"{step['what']} {step['name']} is gone")
        if step["what"] == "address":
            work.record.forget_address(step["id"])
        else:
            work.record.forget(step["what"], step["name"], step["id"])
        return ""
