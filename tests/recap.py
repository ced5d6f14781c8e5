"""What Ansible's recap says of a play."""

from __future__ import annotations

import re

from tests import drive


def unchanged(play: drive.Play) -> bool:
    """Whether a play went well and its recap names hosts, with no change on any of them."""
    _before, recap, hosts = play.output.rpartition("PLAY RECAP")
    return play.rc == 0 and bool(recap) and set(re.findall(r"changed=(\d+)", hosts)) == {"0"}
