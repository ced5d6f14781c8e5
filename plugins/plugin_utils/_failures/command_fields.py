# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make parts of a job's output safe within commands that users copy from a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Characters with which a part of the output would be run or expanded by a shell, or would end the quotes around it
SHELL_SYNTAX = re.compile(r"""[$`;|&<>!\\\n'"]""")


def replace_shell_syntax(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a remedy with _ for each character that has a meaning to a shell."""
    return {name: SHELL_SYNTAX.sub("_", value) for name, value in fields.items()}
