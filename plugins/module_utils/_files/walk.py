# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Handle errors while walking directories."""

from __future__ import annotations


def raise_error(error: OSError) -> None:
    """Raise an error from os.walk, which would otherwise skip unreadable directories."""
    raise error
