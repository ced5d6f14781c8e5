# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents of a run, as type checkers know them. Private to this collection.

No node imports this file: it stands behind ``TYPE_CHECKING`` wherever it is used.
"""

from __future__ import annotations

from typing import Any, Dict

Data = Dict[str, Any]
