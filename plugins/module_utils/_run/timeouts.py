# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting times shared by a supervisor and the code that starts it. Private to this collection."""

from __future__ import annotations

HANG_MARGIN = 5.0  # seconds beyond `silence` for which a supervisor may show no life on its own node
