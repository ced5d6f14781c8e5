# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors that all providers share, and errors about a cluster that is not in the desired state."""

from __future__ import annotations

from typing import Literal

# How far a refusal reaches. offer: another offer may succeed. pool: offers from the same pool would be refused as
# well. request: no other offer can help.
RefusalScope = Literal["offer", "pool", "request"]


class CloudError(Exception):
    """A request to a provider failed. str() is a one-line user message; summary is the same without the hint."""

    # Whether the request was definitely not executed.
    refused = False
    # Whether the same request may succeed soon.
    transient = False
    # Whether a request that changes something may have been executed: search for the resource before repeating it.
    reply_lost = False
    scope: RefusalScope = "request"
    # The error that stands for a lost reply.
    cause: CloudError | None = None

    def __init__(self, summary: str) -> None:
        super().__init__(summary)
        self.summary = summary


class ClusterError(Exception):
    """The cluster is not in the desired state. str() describes the existing resources and the remedy."""
