"""The module's results if a package cannot be verified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.modules import package_signature_info


def test_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: str(tmp_path / name) for name in ("path", "signature", "keys")}
    with patch_module_args({**paths, "fingerprints": ["0" * 40]}), pytest.raises(SystemExit):
        package_signature_info.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"]
    assert f"{tmp_path}/keys: No such file or directory. Download the package, its signature" in result["msg"]


def test_package_is_unsigned_if_the_keys_file_holds_no_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "keys").write_text("<html>not found</html>")
    paths = {name: str(tmp_path / name) for name in ("path", "signature", "keys")}
    with patch_module_args({**paths, "fingerprints": ["0" * 40]}), pytest.raises(SystemExit):
        package_signature_info.main()
    result = json.loads(capsys.readouterr().out)
    assert (result["changed"], result["valid"]) == (False, False)
    assert result["detail"] == "the downloaded key file contains no keys"
