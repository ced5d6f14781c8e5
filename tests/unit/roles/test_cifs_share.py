"""Mount options and credentials that the role derives from a share's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.muster.training.plugins.module_utils._mounts import ensure
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import DesiredMount
from ansible_collections.muster.training.plugins.module_utils._mounts.registry import KINDS

ROLE = Path(__file__).resolve().parents[3] / "roles" / "cifs_share"


def render(expression: str, mount: str, **variables: Any) -> Any:
    """Render an expression with the role's variables and one mount, written in YAML."""
    loader = DataLoader()
    all_variables = {
        **loader.load_from_file(str(ROLE / "defaults" / "main.yml"), trusted_as_template=True),
        **loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True),
        "cifs_share_mounts": [loader.load(mount)],
        "__data_mounts_number": 0,
        **variables,
    }
    return Templar(loader=loader, variables=all_variables).template(trust_as_template(expression))


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        (r"{share: \\10.64.92.2\sdvkpg3v2v, path: /mnt/a}", ["file_mode=0755", "dir_mode=0755"]),
        (r"{share: //a/b, path: /mnt/a, port: 4450, vers: '3.0', seal: true}", ["port=4450", "vers=3.0", "seal"]),
        ("{share: //a/b, path: /mnt/a, mfsymlinks: 'yes', file_mode: '0640'}", ["mfsymlinks", "file_mode=0640"]),
        ("{share: //a/b, path: /mnt/a, vers: '', options: {nobrl: true, actimeo: 30}}", ["nobrl", "actimeo=30"]),
        ("{share: //a/b, path: /mnt/a, seal: false, options: {vers: 3.1.1}}", ["vers=3.1.1"]),
    ],
)
def test_mount_options_come_from_share_settings(mount: str, expected: list[str]) -> None:
    share = render("{{ cifs_share_mounts[0].share }}", mount)
    mount_request = DesiredMount("/mnt/a", share, render("{{ __cifs_share_options }}", mount))
    ensure.validate(KINDS["cifs"], mount_request)
    parts = KINDS["cifs"].parts(mount_request, "/c")
    assert set(expected) <= set(parts.options)
    assert parts.what in ("//a/b", "//10.64.92.2/sdvkpg3v2v")
    for name in ("vers", "seal", "mfsymlinks", "port"):
        expected_values = [option for option in expected if option.partition("=")[0] == name]
        assert [option for option in parts.options if option.partition("=")[0] == name] == expected_values


def test_credentials_come_from_environment_and_are_not_templated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIFS_USERNAME", "me")
    monkeypatch.setenv("CIFS_PASSWORD", "{{ 1 + 1 }}, 'a' \"b\"#")
    monkeypatch.delenv("CIFS_DOMAIN", raising=False)
    credentials = render("{{ __cifs_share_credentials }}", "{share: //a/b, path: /mnt/a}")
    assert credentials == {"username": "me", "password": "{{ 1 + 1 }}, 'a' \"b\"#", "domain": ""}
