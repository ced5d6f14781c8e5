"""The rules as text; Molecule scenarios test their application by nft and ufw."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._firewall import firewall
from ansible_collections.muster.training.plugins.module_utils._firewall import rules as rules_module

CHECKOUT = Path(__file__).resolve().parents[3]
RULES = {
    "nodes": ["10.0.0.10", "10.0.0.11"],
    "ssh_ports": [22, 2222],
    "ssh_from": ["203.0.113.0/24", "2001:db8::/32"],
    "open": [{"port": "6006-6010", "protocol": "tcp", "from": []}],
    "close": True,
}
UFW = """# ufw's own
*filter
:ufw-before-input - [0:0]
-A ufw-before-input -i lo -j ACCEPT
# don't delete the 'COMMIT' line or these rules won't be processed
COMMIT
*nat
COMMIT
"""


def chain(**fields: Any) -> dict[str, Any]:
    return {
        "chain": {"family": "inet", "table": "site", "name": "incoming", "hook": "input", "policy": "drop", **fields}
    }


def rule(handle: int, expr: list[dict[str, Any]], comment: str = "", **fields: Any) -> dict[str, Any]:
    entry = {"family": "inet", "table": "site", "chain": "incoming", "handle": handle, "expr": expr, **fields}
    return {"rule": {**entry, **({"comment": comment} if comment else {})}}


def test_table_accepts_only_nodes_ssh_and_open_ports() -> None:
    text = rules_module.format_own_table(RULES)
    assert "policy drop;" in text
    assert "ip saddr { 10.0.0.10, 10.0.0.11 } accept" in text
    for port in (22, 2222):
        assert f"ip saddr {{ 203.0.113.0/24 }} tcp dport {port} accept" in text
        assert f"ip6 saddr {{ 2001:db8::/32 }} tcp dport {port} accept" in text
        assert f"    tcp dport {port} accept" not in text
    assert "    tcp dport 6006-6010 accept" in text
    assert rules_module.format_own_table({**RULES, "close": False}) == ""


def test_ufw_lines_contain_only_addresses_of_their_family() -> None:
    ipv4_lines, ipv6_lines = (rules_module.format_iptables_lines(RULES, version) for version in (4, 6))
    assert "-A ufw-before-input -s 10.0.0.10 -j ACCEPT" in ipv4_lines
    assert "-A ufw-before-input -s 203.0.113.0/24 -p tcp --dport 22 -j ACCEPT" in ipv4_lines
    assert "-A ufw-before-input -p tcp --dport 6006:6010 -j ACCEPT" in ipv4_lines
    assert not [line for line in ipv4_lines if "2001:db8" in line]
    assert ipv6_lines[0] == "-A ufw6-before-input -s 2001:db8::/32 -p tcp --dport 22 -j ACCEPT"


def test_ufw_block_is_at_the_end_of_the_filter_table() -> None:
    updated = rules_module.replace_block(UFW, ["-A one", "-A two"])
    assert updated.index("-i lo") < updated.index("-A one") < updated.index("-A two") < updated.index("COMMIT\n*nat")
    assert rules_module.replace_block(updated, ["-A one", "-A two"]) == updated
    assert rules_module.replace_block(updated, []) == UFW
    with pytest.raises(StepError, match="no table `filter`"):
        rules_module.replace_block("*nat\nCOMMIT\n", ["-A one"])


def test_accept_rule_is_inserted_at_the_start_of_foreign_chains() -> None:
    commands = rules_module.plan_commands([chain(), rule(5, [{"accept": None}])], {**RULES, "close": False})
    assert commands.startswith("insert rule inet site incoming ip saddr { 10.0.0.10, 10.0.0.11 } accept")
    assert "handle 5" not in commands


def test_rules_already_active_need_no_change() -> None:
    rules = {**RULES, "close": False}
    mark = f"muster {rules_module.digest(rules)}"
    ruleset = [chain(), rule(7, [], mark)]
    assert rules_module.plan_commands(ruleset, rules) == ""
    assert "delete rule inet site incoming handle 7" in rules_module.plan_commands(
        ruleset, {**rules, "nodes": ["10.0.0.12"]}
    )
    table = [
        {"table": {"family": "inet", "name": "muster"}},
        rule(3, [], f"muster {rules_module.digest(RULES)}", table="muster"),
    ]
    assert rules_module.plan_commands(table, RULES) == ""
    assert "delete table inet muster" in rules_module.plan_commands(table, rules)


def test_all_muster_rules_are_removed_when_none_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(firewall, "KEPT_FILE", tmp_path / "none.json")
    table = [{"table": {"family": "inet", "name": "muster"}}, chain(), rule(7, [], "muster 0123456789ab")]
    commands = rules_module.plan_commands(table, firewall.read_kept_rules())
    assert "delete rule inet site incoming handle 7" in commands
    assert "delete table inet muster" in commands
    assert "accept" not in commands


@pytest.mark.parametrize(
    ("policy", "expr", "is_refused"),
    [
        ("drop", [], True),
        ("accept", [{"counter": {}}, {"xt": {"type": "target", "name": "REJECT"}}], True),
        ("accept", [{"drop": None}], True),
        ("accept", [{"match": {}}, {"drop": None}], False),
        ("accept", [{"jump": {"target": "f2b-sshd"}}], False),
    ],
)
def test_plain_iptables_is_refused_only_if_it_blocks_traffic(policy: str, expr: list[Any], is_refused: bool) -> None:
    location = {"family": "ip", "table": "filter", "name": "INPUT"}
    ruleset = [chain(**location, policy=policy), rule(1, expr, family="ip", table="filter", chain="INPUT")]
    if is_refused:
        with pytest.raises(StepError, match="managed by iptables"):
            rules_module.plan_commands(ruleset, {**RULES, "close": False})
    else:
        assert rules_module.plan_commands(ruleset, {**RULES, "close": False}) == ""


class UfwMachine:
    """A machine with ufw enabled, with its files and a log of commands.

    Attributes:
        timer: Whether the rollback timer is active.
        at_boot: Whether the unit for each boot is enabled and has run.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.timer = False
        self.at_boot = False
        self.files = {4: root / "before.rules", 6: root / "before6.rules", 0: root / "ufw"}
        self.files[4].write_text(UFW)
        self.files[6].write_text(UFW)
        self.files[0].write_text('IPV6=yes\nDEFAULT_INPUT_POLICY="ACCEPT"\n')
        state = root / "state"
        replacements = {
            "UFW_FILES": {version: self.files[version] for version in (4, 6)},
            "UFW_DEFAULTS": self.files[0],
            "KEPT_FILE": root / "kept.json",
            "STATE_DIRECTORY": state,
            "TRIED_FILE": state / "tried.json",
            "SAVED_FILE": state / "ufw.json",
            "is_ufw_active": lambda: True,
            "run": self.run,
        }
        for name, value in replacements.items():
            monkeypatch.setattr(firewall, name, value)
        monkeypatch.setattr(subprocess, "run", self.run_unchecked)

    def run(self, *arguments: str, **_options: Any) -> str:
        self.commands.append(arguments)
        if arguments[0] == "systemd-run":
            self.timer = True
        return ""

    def run_unchecked(self, argv: list[str], **_options: Any) -> Any:
        if "stop" in argv:
            self.timer = False
        succeeds = self.at_boot if argv[-1] == "muster_firewall.service" else self.timer or "stop" in argv
        return subprocess.CompletedProcess(argv, 0 if succeeds else 3)

    def texts(self) -> list[str]:
        return [path.read_text() for path in self.files.values()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UfwMachine:
    return UfwMachine(tmp_path, monkeypatch)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert firewall.main(list(arguments)) == 0
    return capsys.readouterr().out.strip()


def try_rules(monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(rules)))
    assert firewall.main(["try", "60"]) == 0


def test_rollback_state_survives_reboot() -> None:
    for path in (firewall.STATE_DIRECTORY, firewall.TRIED_FILE, firewall.SAVED_FILE):
        assert path.parts[:3] == ("/", "var", "lib")


@pytest.mark.parametrize("is_first", [True, False])
def test_reboot_during_a_trial_restores_all_ufw_files(
    machine: UfwMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_first: bool,
) -> None:
    if not is_first:
        try_rules(monkeypatch, {**RULES, "close": False})
        call(capsys, "confirm")
    before = machine.texts()
    machine.commands.clear()
    try_rules(monkeypatch, {**RULES, "ssh_from": ["192.0.2.0/24"]})
    assert 'DEFAULT_INPUT_POLICY="DROP"' in machine.texts()[2] and machine.texts() != before
    enabled = machine.commands.index(("systemctl", "--quiet", "enable", "muster_firewall.service"))
    assert enabled < machine.commands.index(("ufw", "reload")), (
        "the unit that rolls back at boot was enabled after the rules"
    )
    machine.timer = False
    machine.commands.clear()
    assert call(capsys, "apply").endswith("rolled back")
    assert machine.texts() == before
    assert ("ufw", "reload") in machine.commands
    assert call(capsys, "apply") == "applied"
    assert machine.texts() == before


def test_reload_during_a_trial_does_not_roll_it_back(
    machine: UfwMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try_rules(monkeypatch, RULES)
    trial_texts = machine.texts()
    assert call(capsys, "apply").endswith("applied")
    assert machine.texts() == trial_texts
    assert call(capsys, "confirm") == "confirmed"
    machine.timer = False
    assert call(capsys, "apply") == "applied"
    assert machine.texts() == trial_texts


@pytest.mark.parametrize("at_boot", [False, True])
def test_trial_reports_whether_rules_return_at_boot(
    machine: UfwMachine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    at_boot: bool,
) -> None:
    """A second run then needs no further request."""
    machine.at_boot = at_boot
    boot_line = ["at boot"] if at_boot else []
    try_rules(monkeypatch, RULES)
    assert capsys.readouterr().out.splitlines() == ["applied", *boot_line]
    call(capsys, "confirm")
    try_rules(monkeypatch, RULES)
    assert capsys.readouterr().out.splitlines() == ["unchanged", *boot_line]


def test_state_reports_kept_rules_and_whether_they_are_active(
    machine: UfwMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The role uses the state to skip steps, except during a trial of unconfirmed rules."""

    def state() -> Any:
        return json.loads(call(capsys, "state"))

    assert state() == {"saved": "", "active": False, "at_boot": False}
    machine.at_boot = True
    try_rules(monkeypatch, RULES)
    capsys.readouterr()
    call(capsys, "confirm")
    kept_rules = json.dumps(RULES)
    assert state() == {"saved": kept_rules, "active": True, "at_boot": True}
    try_rules(monkeypatch, {**RULES, "nodes": ["10.0.0.12"]})
    capsys.readouterr()
    assert state() == {"saved": kept_rules, "active": False, "at_boot": True}
    call(capsys, "rollback")
    assert state()["active"]
    machine.files[4].write_text(UFW)
    assert not state()["active"]


def test_rollback_of_nested_trials_restores_the_state_before_both(
    machine: UfwMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machine.texts()
    try_rules(monkeypatch, RULES)
    try_rules(monkeypatch, {**RULES, "nodes": ["10.0.0.12"]})
    assert machine.texts() != before
    assert call(capsys, "rollback").endswith("rolled back")
    assert machine.texts() == before


def test_node_without_confirmed_rules_is_unchanged_at_boot(
    machine: UfwMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "apply") == "applied"
    assert machine.commands == []


def test_documented_undo_removes_all_muster_rules() -> None:
    page = (CHECKOUT / "docs" / "undo.md").read_text()
    (rules_text,) = (line.split("'")[1] for line in page.splitlines() if line.startswith("echo '{"))
    no_rules = json.loads(rules_text)
    assert set(no_rules) == set(RULES)
    with_block = rules_module.replace_block(UFW, rules_module.format_iptables_lines(RULES, 4))
    assert (
        with_block != UFW
        and rules_module.replace_block(with_block, rules_module.format_iptables_lines(no_rules, 4)) == UFW
    )
    mark = f"muster {rules_module.digest(RULES)}"
    ruleset = [chain(), rule(7, [{"accept": None}], mark), {"table": {"family": "inet", "name": "muster"}}]
    commands = rules_module.plan_commands(ruleset, no_rules).split("\n")
    assert [command for command in commands if command] == [
        "delete rule inet site incoming handle 7",
        "add table inet muster",
        "delete table inet muster",
    ]
