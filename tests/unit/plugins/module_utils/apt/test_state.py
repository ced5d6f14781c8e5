"""Detection of missing packages, settings and systems."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._apt import state
from ansible_collections.muster.training.plugins.module_utils._apt.state import AptStateError


def test_package_is_missing_unless_dpkg_has_it_under_a_plain_name() -> None:
    """The real dpkg lists its own package by name, and by name and architecture."""
    architecture = state.run("dpkg", "--print-architecture").strip()
    installed = ["dpkg", f"dpkg:{architecture}"]
    missing = ["no-such-package", "dpkg=1.0", "dpk*", "dpkg/stable"]
    assert state.missing_packages([*installed, *missing]) == missing
    assert state.missing_packages(installed) == []
    assert state.missing_packages([]) == []


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', ""),
        ('ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n', ""),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', ""),
        ('ID=rocky\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 9.4"\n', "the system is Rocky Linux 9.4,"),
        ("", "the system is unknown,"),
    ],
)
def test_system_without_debian_packages_is_refused(release: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "read", {"/etc/os-release": release}.__getitem__)
    if not name:
        state.require_debian()
        return
    with pytest.raises(AptStateError, match="only Debian and Ubuntu are supported") as caught:
        state.require_debian()
    assert str(caught.value).startswith(name)
