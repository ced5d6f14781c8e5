"""The documentation of a module that has an action plugin lists exactly the options of that plugin."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.plugins.loader import fragment_loader, module_loader
from ansible.utils.plugin_docs import get_plugin_docs

CHECKOUT = Path(__file__).resolve().parents[4]
COLLECTION = "muster.training"
ACTIONS = sorted(path.stem for path in (CHECKOUT / "plugins" / "action").glob("*.py"))
COMPARED_KEYS = ("type", "elements", "default", "choices", "required")


def specification(action: str) -> dict[str, dict[str, Any]]:
    spec: dict[str, dict[str, Any]] = importlib.import_module(
        f"ansible_collections.{COLLECTION}.plugins.action.{action}"
    ).ARGUMENT_SPEC
    return spec


def documentation(module: str) -> dict[str, Any]:
    docs, examples, returns, _metadata = get_plugin_docs(
        f"{COLLECTION}.{module}", "module", module_loader, fragment_loader, verbose=False
    )
    return {**docs, "examples": examples, "returns": returns}


def comparable(options: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the comparable keys of each option; a missing key is equivalent to an empty value or false."""
    return {
        name: {key: option[key] for key in COMPARED_KEYS if option.get(key) is not None}
        for name, option in options.items()
    }


@pytest.mark.parametrize("action", ACTIONS)
def test_documented_options_match_argument_spec(action: str) -> None:
    assert comparable(documentation(action).get("options", {})) == comparable(specification(action))


@pytest.mark.parametrize("action", ACTIONS)
def test_each_option_and_return_value_is_described(action: str) -> None:
    docs = documentation(action)
    assert all(option["description"] for option in docs.get("options", {}).values())
    assert docs["returns"] or action in ("check_site", "known_variables")  # these two fail or print nothing
    for name, value in (docs["returns"] or {}).items():
        assert value["description"], name
        assert value["returned"], name
        assert value["type"], name


@pytest.mark.parametrize("action", ACTIONS)
def test_documented_check_mode_and_connection_support_match_plugin(action: str) -> None:
    plugin = importlib.import_module(f"ansible_collections.{COLLECTION}.plugins.action.{action}").ActionModule
    attributes = documentation(action)["attributes"]
    assert (attributes["check_mode"]["support"] != "none") == plugin._supports_check_mode
    assert (attributes["connection"]["support"] == "full") == plugin._requires_connection


def test_comparison_detects_changed_option() -> None:
    documented = comparable(documentation("training_run")["options"])
    changed = {**specification("training_run"), "user": {"type": "str", "default": "root"}}
    assert documented != comparable(changed)


def read_documentation(module: str) -> dict[str, Any]:
    """Return the documentation in the file of a module, without documentation fragments."""
    text = (CHECKOUT / "plugins" / "modules" / f"{module}.py").read_text()
    result: dict[str, Any] = yaml.safe_load(text.partition('DOCUMENTATION = r"""')[2].partition('"""')[0])
    return result


def test_documentation_shared_by_three_modules_is_in_a_fragment() -> None:
    document: dict[str, list[str]] = {}
    for path in sorted((CHECKOUT / "plugins" / "modules").glob("*.py")):
        docs = read_documentation(path.stem)
        blocks = [*docs.get("options", {}).items(), ("attributes", docs.get("attributes"))]
        for name, block in blocks:
            if block:
                document.setdefault(json.dumps([name, block], sort_keys=True), []).append(path.stem)
    assert [(text, modules) for text, modules in document.items() if len(modules) > 2] == []
