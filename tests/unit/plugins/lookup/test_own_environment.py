"""Variables of this machine that are passed to a job, by name and pattern."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, is_trusted_as_template, trust_as_template


def render(template: str, **variables: Any) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(template))


def test_variables_are_selected_by_name_and_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WANDB_API_KEY": "k", "WANDB_MODE": "{{ 1 + 1 }}", "HF_TOKEN": "t", "OTHER": "o"}.items():
        monkeypatch.setenv(name, value)
    selected = render(
        "{{ lookup('muster.training.own_environment', patterns) }}", patterns=["WANDB_*", "HF_TOKEN", "NONE_*"]
    )
    assert selected == {"WANDB_API_KEY": "k", "WANDB_MODE": "{{ 1 + 1 }}", "HF_TOKEN": "t"}
    assert not is_trusted_as_template(selected["WANDB_MODE"])
    assert render("{{ lookup('muster.training.own_environment', patterns) }}", patterns=[]) == {}
    assert render("{{ lookup('muster.training.own_environment', '[HF_TOKEN,OTHER]') }}") == {
        "HF_TOKEN": "t",
        "OTHER": "o",
    }


def test_unset_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(AnsibleError, match="not set in the environment of ansible-playbook: HF_TOKEN"):
        render("{{ lookup('muster.training.own_environment', 'HF_TOKEN') }}")
    assert render("{{ lookup('muster.training.own_environment', 'HF_TOKEN', missing='ignore') }}") == {}
