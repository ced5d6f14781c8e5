"""The entry in a netrc file, whose other entries are preserved."""

from __future__ import annotations

import netrc
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._files import netrc as user_netrc

OWN_ENTRY = ("api.wandb.ai", "user", "k" * 40)
ENTRY = f"machine api.wandb.ai\n  login user\n  password {'k' * 40}\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ("", ENTRY),
        ("machine other login me password p", f"machine other login me password p\n{ENTRY}"),
        ("machine api.wandb.ai login user password old\n", ENTRY),
        (
            "machine api.wandb.ai\n  login user\n  password old\n# mine\nmachine other\n  login me\n  password p\n",
            f"{ENTRY}# mine\nmachine other\n  login me\n  password p\n",
        ),
        (
            "machine api.wandb.ai.example login a password b\n",
            f"machine api.wandb.ai.example login a password b\n{ENTRY}",
        ),
        (
            "machine a login b password c\ndefault login d password e\n",
            f"machine a login b password c\n{ENTRY}default login d password e\n",
        ),
        (ENTRY, ENTRY),
    ],
)
def test_entry_is_written_and_other_entries_are_kept(before: str, after: str, tmp_path: Path) -> None:
    result = user_netrc.set_entry(before, *OWN_ENTRY)
    assert result == after
    path = tmp_path / "netrc"
    path.write_text(result)
    path.chmod(0o600)
    read = netrc.netrc(str(path)).authenticators("api.wandb.ai")
    assert read is not None and read[2] == "k" * 40, "by Python's own reader"
