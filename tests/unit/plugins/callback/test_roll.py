# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user-visible output for each event in real plays, with the ansible-core that runs these tests."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.callback import CallbackBase
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.muster.training.plugins.callback import roll
from tests.unit.typed import give_collection, own_environment, typed

PLAY = """\
- hosts: node3  # so that it is the first that answers
  gather_facts: false
  tasks:
    - {name: Answer, ansible.builtin.assert: {that: true}}
- hosts: training
  gather_facts: false
  roles:
    - quiet
    - "off"
    - works
    - looks
    - fails
  tasks:
    - name: Come here after all has failed
      ansible.builtin.debug: {msg: never}
"""
ROLES = {
    "quiet": "- {name: Skip this, ansible.builtin.command: /bin/false, when: false}\n",
    "off": """\
- {name: Refuse misspelt variables, known_variables: {}}
- {name: End what is off, ansible.builtin.meta: end_role, when: inventory_hostname != 'node2'}
- {name: Do it, ansible.builtin.include_tasks: nodes.yml, when: false}
""",
    "works": """\
- name: Change one of them
  ansible.builtin.assert: {that: true}
  changed_when: inventory_hostname == 'node3'
  notify: Go on
- name: Try again
  ansible.builtin.assert: {that: true}
  register: tried
  until: tried.attempts == 2
  retries: 2
  delay: 0
  changed_when: false
- name: Wait for a run that continues on its own
  ansible.builtin.command: /bin/true
  async: 30
  poll: 1
  changed_when: false
  run_once: true
- name: Look at a list
  ansible.builtin.assert: {that: item == 1}
  loop: [1, 2]
  failed_when: false
  changed_when: false
- name: Have failed, and nobody minds
  ansible.builtin.fail: {msg: not shown}
  ignore_errors: true
- name: Go another way
  block:
    - name: Fail in a block
      ansible.builtin.fail: {msg: not shown either}
  rescue:
    - name: Say what was done instead
      ansible.builtin.debug: {msg: the other way was taken}
      run_once: true
- name: Include more
  ansible.builtin.include_tasks: more.yml
""",
    "looks": """\
- name: Look
  ansible.builtin.assert: {that: true}
- name: Write a file
  ansible.builtin.copy: {content: "{{ range(50) | join('\\n') }}", dest: "{{ there }}/long"}
  run_once: true
  diff: true
""",
    "fails": """\
- name: Take what was begun away
  block:
    - name: Begin
      ansible.builtin.fail: {msg: "{{ inventory_hostname }}: no room on {{ inventory_hostname }}"}
      when: inventory_hostname == 'node2'
  rescue:
    - name: Say that it is away
      ansible.builtin.fail: {msg: what was begun is away}
- name: Ask each item
  ansible.builtin.command: "sh -c 'echo broken {{ item }} >&2; exit {{ item }}'"
  loop: [0, 3]
""",
}
WARNS = """\
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({}, supports_check_mode=True)
module.warn("mind this")
module.exit_json()
"""
REFUSED = "Task failed: Error while resolving value for 'a': The lookup plugin 'muster.training.b' failed:"
MORE = {
    "off/library/known_variables.py": WARNS.replace('module.warn("mind this")\n', ""),
    "works/tasks/more.yml": "- {name: Skip once more, ansible.builtin.command: /bin/false, when: false}\n",
    "works/handlers/main.yml": "- {name: Go on, ansible.builtin.assert: {that: true}}\n",
}


def play(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook on three nodes that are all this machine."""
    give_collection(directory)
    (directory / "ansible.cfg").write_text(
        "[defaults]\nstdout_callback = muster.training.roll\ncallback_result_format = yaml\n"
    )
    hosts = "".join(
        f"    node{n}: {{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}\n"
        for n in range(1, 4)
    )
    (directory / "hosts.yml").write_text(f"training:\n  hosts:\n{hosts}")
    settings = {"MUSTER_ROLL_SLOW_TASK_SECONDS": "3600", "ANSIBLE_ASYNC_DIR": str(directory / "async"), **environment}
    return typed(directory, ["ansible-playbook", "-i", "hosts.yml", *arguments], **settings)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "site.yml").write_text(PLAY)
    for name, tasks in ROLES.items():
        (tmp_path / "roles" / name / "tasks").mkdir(parents=True)
        (tmp_path / "roles" / name / "tasks/main.yml").write_text(tasks.replace("{{ there }}", str(tmp_path)))
    for name, text in MORE.items():
        path = tmp_path / "roles" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_output_has_one_line_per_role_and_each_failure_once(project: Path) -> None:
    completed = play(project, "site.yml")
    duration = r" +([\d.]+ s|\d+ min \d+ s)"
    lines = [line.rstrip() for line in completed.stdout.splitlines()]
    expected = [
        "site: 3 nodes: node1 node2 node3",
        "  works             the other way was taken",
        rf"  works             changed node3{duration}",
        r"  node1:",
        *[r"    .*"] * 20,
        r"    \.\.\. and \d+ more lines; -v shows them",
        rf"  looks             changed node1{duration}",
        "FAILED fails on node2: Say that it is away",
        "    no room on node2",
        "    what was begun is away",
        "FAILED fails on node1 node3: Ask each item",
        r"    .*non-zero return code\.?",
        "    broken 3",
        rf"site: failed on node1 node2 node3; rerun with -v for Ansible's full output{duration}",
    ]
    assert completed.returncode == 2 and len(lines) == len(expected), completed.stdout
    assert [line for line, like in zip(lines, expected, strict=True) if not re.fullmatch(like, line)] == [], (
        completed.stdout
    )
    assert "\x1b" not in completed.stdout and "\r" not in completed.stdout


def test_role_in_parts_names_them_and_includes_the_role_that_it_uses(tmp_path: Path) -> None:
    helper = "- {name: Change, ansible.builtin.assert: {that: true}, changed_when: true}\n"
    user = "- {name: Use it, ansible.builtin.include_role: {name: helper}, vars: {helper_parts: [inner]}}\n"
    for name, text in (("helper", helper), ("user", user)):
        (tmp_path / "roles" / name / "tasks").mkdir(parents=True)
        (tmp_path / "roles" / name / "tasks" / "main.yml").write_text(text)
    imports = [("helper", "environment"), ("user", "installation"), ("helper", "requirements"), ("user", "")]
    tasks = [
        {"ansible.builtin.import_role": {"name": role}, "vars": {f"{role}_parts": [part]} if part else {}}
        for role, part in imports
    ]
    play_text = json.dumps([{"hosts": "training", "gather_facts": False, "tasks": tasks}])
    (tmp_path / "site.yml").write_text(play_text)
    lines = [line.split("   ")[0] + line[20:60].rstrip() for line in play(tmp_path, "site.yml").stdout.splitlines()]
    assert lines[1:-1] == [
        "  helperchanged (environment)",
        "  userchanged (installation)",
        "  helperchanged (requirements)",
        "  userchanged",
    ]


def test_role_that_runs_again_and_changes_nothing_has_one_line(tmp_path: Path) -> None:
    (tmp_path / "roles/looks/tasks").mkdir(parents=True)
    (tmp_path / "roles/looks/tasks/main.yml").write_text("- {name: Look, ansible.builtin.assert: {that: true}}\n")
    one_play = "- {hosts: training, gather_facts: false, roles: [looks]}\n"
    (tmp_path / "site.yml").write_text(one_play * 3)
    lines = play(tmp_path, "site.yml").stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("  ")] == [["looks", "ok"]], lines


def test_v_option_shows_the_output_of_ansible(project: Path) -> None:
    completed = play(project, "site.yml", "-v")
    for arguments in (
        "TASK [off : End what is off]",
        "TASK [works : Change one of them]",
        "PLAY RECAP",
        "changed: [node3]",
        "fatal: [node1]",
        "FAILED - RETRYING",
    ):
        assert arguments in completed.stdout, completed.stdout
    assert completed.stdout.count("TASK [off : End what is off]") == 1, "for each node"


def test_check_mode_shows_what_would_change(project: Path) -> None:
    (project / "site.yml").write_text("- {hosts: training, gather_facts: false, roles: [looks]}\n")
    completed = play(project, "site.yml", "--check")
    assert "site: 3 nodes, dry run (--check): node1 node2 node3\n" in completed.stdout
    assert re.search(r"^  looks +would change node1 ", completed.stdout, re.MULTILINE), completed.stdout
    assert "site: 1 of 3 nodes would be changed " in completed.stdout
    assert not (project / "long").exists()


def test_play_without_roles_shows_the_messages_of_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "tell.yml").write_text(
        "- hosts: training\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.debug: {msg: [the same of all, in two lines]}\n"
        '    - ansible.builtin.debug: {msg: "{{ inventory_hostname }} itself"}\n'
        "    - ansible.builtin.debug: {var: inventory_hostname}\n      run_once: true\n"
        "    - ansible.builtin.debug: {msg: '{{ item }}'}\n      loop: [1, 2]\n      run_once: true\n"
        '    - ansible.builtin.debug: {msg: "{{ inventory_hostname }}: there is no GPU"}\n'
        '    - ansible.builtin.debug: {msg: "{{ inventory_hostname }}: only here"}\n'
        "      when: inventory_hostname == 'node2'\n"
        "    - ansible.builtin.command: /bin/true\n      timeout: 60\n      run_once: true\n"
        "    - warns:\n      run_once: true\n"
        "- hosts: nobody\n  tasks: []\n"
    )
    (tmp_path / "library").mkdir()
    (tmp_path / "library/warns.py").write_text(WARNS)
    completed = play(tmp_path, "tell.yml")
    output = [line for line in completed.stdout.splitlines() if "pattern" not in line]
    assert output == [
        "the same of all",
        "in two lines",
        *(f"node{n}: node{n} itself" for n in range(1, 4)),
        "inventory_hostname: node1",
        *("1", "2"),
        "there is no GPU",  # a node whose message already contains its name is named once, or not at all
        "node2: only here",
        "[WARNING]: mind this",  # no message about the group `nobody`, since another play had nodes
    ]


@pytest.mark.parametrize(
    ("play_settings", "is_listed"),
    [
        ({"roles": ["quiet"]}, True),
        (
            {"tasks": [{"name": "a", "ansible.builtin.import_role": {"name": "a"}}, {"import_role": {"name": "b"}}]},
            True,
        ),
        ({"tasks": [{"name": "a", "ansible.builtin.import_role": {"name": "a"}}]}, False),
        ({"roles": [], "tasks": None}, False),
    ],
)
def test_play_lists_roles_if_it_has_roles_or_imports_several(play_settings: dict[str, Any], is_listed: bool) -> None:
    assert roll.lists_roles(play_settings) is is_listed


def test_program_in_a_diff_is_named_but_not_shown(tmp_path: Path) -> None:
    (tmp_path / "works.py").write_text("print(1)\nprint(2)\n")
    (tmp_path / "site.yml").write_text(
        "- hosts: node1\n  gather_facts: false\n  tasks:\n"
        f"    - ansible.builtin.copy: {{src: works.py, dest: {tmp_path}/there.py}}\n"
        f"    - ansible.builtin.copy: {{content: 'echo 1', dest: {tmp_path}/there.sh}}\n"
    )
    completed = play(tmp_path, "site.yml", "--check", "--diff")
    assert re.findall(r"^ +(.*): a program, (\d) lines?$", completed.stdout, re.MULTILINE) == [
        (f"{tmp_path}/works.py", "2"),
        (f"{tmp_path}/there.sh", "1"),
    ], completed.stdout
    assert "print" not in completed.stdout and "echo" not in completed.stdout


def test_remote_tmp_warning_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[str] = []
    monkeypatch.setattr(Default, "_handle_warnings", lambda _self, res: handled.extend(res.get("warnings", [])))
    callback = roll.CallbackModule()
    callback._handle_warnings({"warnings": ["Module remote_tmp /root/.ansible/tmp did not exist and was created"]})
    assert handled == []
    callback._handle_warnings({"warnings": ["mind this"]})
    callback._handle_warnings({})
    assert handled == ["mind this"]


def test_long_task_is_named_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "wait.yml").write_text(
        "- hosts: training\n  gather_facts: false\n"
        "  tasks:\n    - {name: Wait here, ansible.builtin.command: sleep 1}\n"
    )
    completed = play(tmp_path, "wait.yml", MUSTER_ROLL_SLOW_TASK_SECONDS="0.1")
    assert completed.returncode == 0 and re.findall(r"^  wait +Wait here \.\.\.$", completed.stdout, re.MULTILINE), (
        completed.stdout
    )


def test_unreachable_nodes_are_reported_in_one_block(tmp_path: Path) -> None:
    (tmp_path / "ask.yml").write_text(
        "- hosts: training\n  gather_facts: false\n"
        "  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 9}\n"
        "  tasks:\n    - {name: Ask, ansible.builtin.command: /bin/true}\n"
    )
    completed = play(tmp_path, "ask.yml")
    assert completed.returncode == 4 and completed.stdout.count("FAILED") == 1, completed.stdout
    assert completed.stdout.splitlines()[0] == "FAILED on node1 node2 node3: Ask"
    assert re.findall(r"^    (\w+.*?: )", completed.stdout, re.MULTILINE) == [
        "nothing is listening on its port 9: ",
        "needed: ",
        "do: ",
    ], completed.stdout


BROKEN = 'launch_args: [--epochs, "3"\n# more\nlaunch_launcher: env\n'
BROKEN_AT = "group_vars/training.yml, line 3, column 1"
BROKEN_TEXT = "YAML parsing failed: While parsing a flow sequence did not find expected ',' or ']'."


@pytest.mark.parametrize("value", ["hostvars.node2 | length", "hostvars.node2.launch_launcher"])
def test_yaml_error_in_group_variables_is_shown_with_its_position(tmp_path: Path, value: str) -> None:
    """Ansible shows only the message, as an error of the task that reads the variables."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/training.yml").write_text(BROKEN)
    task = {"name": "Do something else", "ansible.builtin.debug": {"msg": f"{{{{ {value} }}}}"}}
    (tmp_path / "ping.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    completed = play(tmp_path, "ping.yml")
    assert completed.returncode == 2
    assert completed.stdout == f"ping: not possible\n    {BROKEN_AT}: {BROKEN_TEXT} It begins in line 1.\n"


def test_invalid_character_in_group_variables_has_no_position(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/training.yml").write_text("a: \x01\n")
    (tmp_path / "env.yml").write_text('[{"hosts": "training", "gather_facts": false, "tasks": [{"debug": {}}]}]')
    completed = play(tmp_path, "env.yml")
    assert completed.stdout.endswith("env: not possible\n    group_vars/training.yml\n"), completed.stdout


def test_yaml_error_in_the_variables_of_a_plays_nodes_is_located(tmp_path: Path) -> None:
    """Ansible shows its message outside of any task."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/training.yml").write_text(BROKEN)
    (tmp_path / "env.yml").write_text('[{"hosts": "training", "gather_facts": false, "tasks": [{"debug": {}}]}]')
    completed = play(tmp_path, "env.yml")
    output = " ".join(completed.stdout.split())
    assert output == f"[ERROR]: {BROKEN_TEXT} env: not possible {BROKEN_AT}" and completed.returncode == 4


def test_reader_that_ends_early_leads_to_no_error(tmp_path: Path) -> None:
    """As in `./muster check train.py | head -1`."""
    task = {"name": "Refuse", "ansible.builtin.fail": {"msg": "not like this"}}
    (tmp_path / "check.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    assert "not like this" in play(tmp_path, "check.yml").stdout
    reader, writer = os.pipe()
    os.close(reader)
    completed = subprocess.run(
        ["ansible-playbook", "-i", "hosts.yml", "check.yml"],
        cwd=tmp_path,
        env=own_environment(tmp_path),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (completed.returncode, completed.stderr) == (2, "")


def test_every_event_of_the_default_callback_is_overridden() -> None:
    """An unhandled event of this ansible-core would print Ansible's banners."""
    overridden = {name for name in vars(roll.CallbackModule) if name.startswith("v2_")}
    default_events = {name for name in vars(Default) if name.startswith("v2_")}
    base_events = {name for name in vars(CallbackBase) if name.startswith("v2_")}
    assert default_events - overridden == set() and overridden - base_events == set()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [([], ""), (["a", "b", "a"], "a b"), ([f"n{n}" for n in range(64)], "n0 n1 n2 n3 n4 n5 n6 and 57 more")],
)
def test_long_list_of_node_names_is_shortened(nodes: list[str], expected: str) -> None:
    assert roll.join_names(nodes) == expected


@pytest.mark.parametrize(
    ("seconds", "message"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 00 s"), (271.6, "4 min 32 s"), (3720, "1 h 02 min")],
)
def test_duration_is_shown_in_suitable_units(seconds: float, message: str) -> None:
    assert roll.format_duration(seconds) == message


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "why\nand what to do"}, "why\nand what to do"),
        ({"msg": "it failed", "stderr": "it failed", "stdout": "more"}, "it failed\nmore"),
        (
            {"msg": "", "stderr": "\n".join(str(n) for n in range(30))},
            "...\n" + "\n".join(str(n) for n in range(20, 30)),
        ),
        ({}, "failed without a message"),
        (
            {
                "msg": "Task failed: Finalization of task args for 'muster.training.project_files' failed: Error while "
                "resolving value for 'files': The filter plugin 'muster.training.static_inventory' failed: hosts: 1"
            },
            "hosts: 1",
        ),
        ({"msg": "Task failed: there is no user"}, "there is no user"),
        ({"msg": f"{REFUSED} not set: HF_TOKEN; export it"}, "not set: HF_TOKEN; export it"),
        ({"msg": "\x1b]0;mine\x07a\x1b[2J\x9b1mb\tc\r\n"}, "]0;minea[2J1mb\tc"),
    ],
)
def test_failure_reason_is_taken_from_the_result(result: dict[str, Any], message: str) -> None:
    assert roll.reason(result) == message


def test_playbook_without_nodes_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tell.yml").write_text("- hosts: nobody\n  tasks: []\n")
    assert "tell: no host in the inventory matches; check --limit and the group\n" in play(tmp_path, "tell.yml").stdout


@pytest.mark.parametrize("verbosity", [0, 1])
def test_interruption_names_the_playbook_at_any_verbosity(verbosity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = roll.CallbackModule()
    monkeypatch.setattr(callback._display, "verbosity", verbosity)
    monkeypatch.setattr(Default, "v2_playbook_on_start", lambda *_arguments: None)  # requires a command line
    callback.v2_playbook_on_start(SimpleNamespace(_file_name="/project/playbooks/status.yml"))
    assert callback.playbook == "status"


def test_ignored_interruption_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a process that a script starts with &
    callback = roll.CallbackModule()
    os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not callback.interrupted


@pytest.mark.parametrize("launched", [False, True])
def test_interruption_is_explained_after_ansible_has_handled_it(
    launched: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interruption is also reported if Ansible's handler fails because a worker has just ended."""

    def fail(_number: int, _frame: Any) -> None:
        raise ValueError("process object is closed")

    checked: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(roll, "interrupt_if_stuck", checked.put)  # it would interrupt the tests after this one
    signal.signal(signal.SIGINT, fail)
    callback = roll.CallbackModule()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    assert checked.get(timeout=60) == os.getpid()
    messages: list[str] = []
    monkeypatch.setattr(callback, "say", messages.append)
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    callback.playbook, callback.launched = "launch", launched
    callback.show_remaining()
    state = "its run had ended: ./muster status shows the result" if launched else "nothing was started"
    assert messages == [f"launch was interrupted: {state}"]
    assert capsys.readouterr().err == "muster: interrupted\n"


@pytest.mark.parametrize(
    ("action", "title"),
    [
        ("muster.training.known_variables", "launch: not possible"),
        ("muster.training.node_facts", "FAILED on node1: Read the facts"),
    ],
)
def test_refused_command_is_not_a_failure_of_a_node(action: str, title: str) -> None:
    callback = roll.CallbackModule()
    callback.playbook, callback.nodes = "launch", ["node1"]
    callback.task = SimpleNamespace(action=action, get_name=lambda: "launch : Read the facts")
    assert callback.failure_title(["node1"]) == title


def test_run_is_mentioned_until_it_was_watched_to_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = roll.CallbackModule()
    messages: list[str] = []
    monkeypatch.setattr(callback, "say", messages.append)

    def messages_after(action: str, **result: Any) -> list[str]:
        callback.remember_run(SimpleNamespace(task=SimpleNamespace(action=action), result=result))
        callback.show_remaining()
        matches, messages[:] = list(messages), []
        return matches

    opened = {"run_id": "first", "run_commands": "  stop: stop"}
    assert messages_after("run_record", **opened) == ["run first was starting and may be running.\n  stop: stop"]
    callback.watched = True
    assert messages_after("debug") == ["run first keeps running on its nodes.\n  stop: stop"]
    assert messages_after(roll.WATCH, lost=True) == ["run first keeps running on its nodes.\n  stop: stop"]
    assert messages_after(roll.WATCH, lost=False) == []
