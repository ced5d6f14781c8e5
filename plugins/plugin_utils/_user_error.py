# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user error that is shown once."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail


class UserError(AnsibleActionFail):
    """A one-line failure message, for problems that were already shown or need only a few words.

    For any other error, Ansible shows the message twice, with the lines of the playbook that have the task. That suits
    messages with quotes or several lines: in the result, which is all that remains here, quotes are escaped.
    """

    @property
    def omit_exception_key(self) -> bool:
        """Whether the result omits the error's own text, which is the first of the two messages."""
        return True
