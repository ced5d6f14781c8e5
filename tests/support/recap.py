"""Check a play by Ansible's recap."""

from __future__ import annotations

import re

from tests.support import drive


def unchanged(play: drive.Play) -> bool:
    """Return whether a play succeeded and its recap names hosts, with no change on any."""
    _before, recap, hosts = play.output.rpartition("PLAY RECAP")
    return play.rc == 0 and bool(recap) and set(re.findall(r"changed=(\d+)", hosts)) == {"0"}
