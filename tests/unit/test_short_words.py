# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""./muster: the playbook of each short command, and the refusal of invalid arguments."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from tests.unit.typed import give_collection

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = CHECKOUT / "roles/init/files/muster.py"
pytestmark = pytest.mark.one_core
NONE = """-e '{"launch_args": []}'"""  # instead of those in group_vars, which belong to a different script


def load() -> Any:
    spec = importlib.util.spec_from_file_location("short_words", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


muster = load()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("site", "site.yml"),
        ("site --tags code --check --diff -v", "site.yml --tags code --check --diff -v"),
        (
            "launch -n 4 train.py --epochs 3 --lr 1e-3 -n 5",
            "launch.yml -e nnodes=4 -e launch_script=train.py"
            """ -e '{"launch_args": ["--epochs", "3", "--lr", "1e-3", "-n", "5"]}'""",
        ),
        (
            "launch -n 4 --launcher deepspeed train.py --deepspeed zero2.json",
            "launch.yml -e nnodes=4 -e launch_launcher=deepspeed -e launch_script=train.py"
            """ -e '{"launch_args": ["--deepspeed", "zero2.json"]}'""",
        ),
        ("launch --gpus 2,3 --detach", """launch.yml -e '{"gpus": "2,3"}' -e detach=true"""),
        ("launch --gpus=0", "launch.yml -e gpus=0"),
        ("launch --nnodes=2 --detach", "launch.yml -e nnodes=2 -e detach=true"),
        ("launch --replace=false --debug", "launch.yml -e replace=false -e debug=true"),
        ("report", "report.yml"),
        ("launch --like first", "launch.yml -e like=first"),
        ("launch --like first --allow-differences", "launch.yml -e like=first -e allow_differences=true"),
        ("diff first second", "diff.yml -e run_id=first -e other_run=second"),
        ("diff --lines second", "diff.yml -e lines=true -e run_id=second"),
        ("report mine", "report.yml -e run_id=mine"),
        ("report --runs=a,b --fetch", """report.yml -e '{"runs": "a,b"}' -e fetch=true"""),
        ("site -CDvvv --limi=gpu1 -f5", "site.yml -CDvvv --limi=gpu1 -f5"),
        ("site --vault-pass-file a --inventory-file b", "site.yml --vault-pass-file a --inventory-file b"),
        ("site --become-user root -e a=b", "site.yml --become-user root -e a=b"),
        (
            "launch a.py --template '{{ messages }}'",
            """launch.yml -e launch_script=a.py -e '{"launch_args": ["--template", !unsafe "{{ messages }}"]}'""",
        ),
        ("launch -i cluster.yml -l gpu1 a.py", f"launch.yml -i cluster.yml -l gpu1 -e launch_script=a.py {NONE}"),
        ("launch -- -odd.py", f"launch.yml -e launch_script=-odd.py {NONE}"),
        ("launch 'my script.py'", f"""launch.yml -e '{{"launch_script": "my script.py"}}' {NONE}"""),
        ("launch job.yml -n 2 --detach", "launch.yml -e @job.yml -e nnodes=2 -e detach=true"),
        (
            "launch job.yml train.py --config a.yml",
            """launch.yml -e @job.yml -e launch_script=train.py -e '{"launch_args": ["--config", "a.yml"]}'""",
        ),
        ("launch job.yml --epochs 4", """launch.yml -e @job.yml -e '{"more_args": ["--epochs", "4"]}'"""),
        ("launch job.yml -n 2 --lr=1e-3 -n 3", "launch.yml -e @job.yml -e nnodes=2"
            """ -e '{"more_args": ["--lr=1e-3", "-n", "3"]}'"""),
        ("launch job.yml -- --check", """launch.yml -e @job.yml -e '{"more_args": ["--check"]}'"""),
        ("preflight -n 2 train.py", f"preflight.yml -e nnodes=2 -e launch_script=train.py {NONE}"),
        (
            "fit -n 2 work.py --batch {batch_size}",
            """fit.yml -e nnodes=2 -e launch_script=work.py -e '{"fit_args": ["--batch", !unsafe "{batch_size}"]}'""",
        ),
        ("logs --run-id first", "logs.yml -e run_id=first"),
        ("benchmark -n 2 --run-id first", "benchmark.yml -e nnodes=2 -e run_id=first"),
        ("site job.yml --check", "site.yml -e @job.yml --check"),
        ("preflight job.yml", "preflight.yml -e @job.yml"),
        ("status --mounts", "status.yml -e mounts=true"),
        ("keys --ask-pass --key my.pub", "keys.yml --ask-pass -e key=my.pub"),
        ("check train.py", "check.yml -e check_script=train.py"),
        ("check job.yml --skip print-every-rank", "check.yml -e @job.yml -e check_skip=print-every-rank"),
        ("fit job.yml -n 2", "fit.yml -e @job.yml -e nnodes=2"),
        ("sweep job.yml variants.yml --run-id a", "sweep.yml -e @job.yml -e @variants.yml -e run_id=a"),
        ("rehearse job.yml rehearsal.yml a", "rehearse.yml -e @job.yml -e @rehearsal.yml -e run_id=a"),
        ("status", "status.yml"),
        ("status first", "status.yml -e run_id=first"),
        ("logs --rank 3 first", "logs.yml -e rank=3 -e run_id=first"),
        ("logs --fetch", "logs.yml -e fetch=true"),
        ("fetch --yes first", "fetch.yml -e confirm=true -e run_id=first"),
        ("shell gpu2 job.yml --run-id first", "shell.yml -e @job.yml -e nodes=gpu2 -e run_id=first"),
        ("stop", "stop.yml"),
        ("runs --keep 20 --older-than=30d", "runs.yml -e keep=20 -e older_than=30d"),
        (
            "checkpoints my-bucket -e checkpoints_state=copied",
            "checkpoints.yml -e checkpoints_state=copied -e checkpoints_bucket=my-bucket",
        ),
        ("provision bert -n 4 --check", "provision.yml --check -e cluster=bert -e nnodes=4"),
        ("cost", "cost.yml"),
        ("docker", "docker.yml"),
        (
            "docker --data-root /mnt/docker --delete-old",
            "docker.yml -e docker_data_root_path=/mnt/docker -e docker_data_root_delete_old=true",
        ),
        ("teardown bert", "teardown.yml -e cluster=bert"),
        (
            "bucket-move --from a --to b --region us-east-1",
            "bucket_move.yml -e source=a -e target=b -e region=us-east-1",
        ),
    ],
)  # fmt: skip
def test_short_commands_translate_to_ansible_playbook_commands(typed: str, expected: str) -> None:
    word, *options = shlex.split(typed)
    assert muster.translate(word, options) == ["ansible-playbook", *shlex.split(expected)]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("launch -n", "-n needs a value: -n NNODES"),
        ("launch --detach= a.py", "--detach needs a value: --detach DETACH"),
        ("stop a b", "unexpected argument 'b'"),
        ("lauch", "unknown command 'lauch': see ./muster help; did you mean launch?\n"),
        ("status --rnak 3", "--rnak is not an option of status: see ./muster help status\n"),
        (
            "launch -n 2 --epochs 1 a.py",
            "--epochs is not an option of launch: see ./muster help launch; options for the script go after its",
        ),
        (
            "launch --nproc_per_node 2 a.py",
            "--nproc_per_node is not an option of launch: see ./muster help launch; options for the script go after "
            "its name; did you mean --nproc-per-node?\n",
        ),
        (
            "launch job.yml --detahc",
            "--detahc is not an option of launch: see ./muster help launch; options for the script go after --; did "
            "you mean --detach?\n",
        ),
        ("site job.yml --epochs 4", "--epochs is not an option of site: see ./muster help site\n"),
        ("launch -i machnies.yml a.py", "{here}/machnies.yml does not exist. Correct its name"),
        ("shell", "./muster shell NODE"),
        ("shell a,b", "./muster shell NODE"),
        ("help nothing", "unknown command 'nothing': see ./muster help"),
        ("launch nojob.yml", "{here}/nojob.yml does not exist. Correct its name"),
        ("site -e @more/nojob.yml", "{here}/more/nojob.yml does not exist. Correct its name"),
        ("launch --extra-vars @/nowhere/job.yml a.py", "/nowhere/job.yml does not exist. Correct its name"),
        ("launch -e @~/nojob.yml", f"{Path.home()}/nojob.yml does not exist. Correct its name"),
        (
            """launch -e '{"launch_args": ["--epochs" "3"]}'""",
            "-e cannot be parsed: expected ',' or ']', but got '<scalar>' at character 29, after "
            """{{"launch_args": ["--epochs" . Write JSON, as in -e '{{"a": 1}}'""",
        ),
        (
            """launch -e '{"nnodes": 2'""",
            "-e cannot be parsed: expected ',' or '}}', but got '<stream end>' at character 13",
        ),
        ("""launch -e '["--lr", "1]'""", "-e cannot be parsed: found unexpected end of stream at character 13, after"),
        ("launch -e '{a: \x01}'", "-e cannot be parsed: unacceptable character #x0001: "),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    typed: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = message.format(here=tmp_path)
    assert muster.main(shlex.split(typed)) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith(f"muster: {message}"), output


@pytest.mark.parametrize(
    "value",
    [
        *("@here.yml", "@there.yml", "@~/of-mine.yml", "@$MINE/of-mine.yml", '{"a": 1}', "{a: b}", '{"a": 1,}', "a=[1"),
        '{"a": !unsafe "{{ b }}", "c": !vault x}',
    ],
)
def test_extra_vars_that_ansible_accepts_are_not_refused(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here/here.yml", "project/there.yml", "home/of-mine.yml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(muster, "HERE", str(tmp_path / "project"))
    for name in ("HOME", "MINE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    muster.check_files_and_values(muster.translate("launch", ["-e", value, "train.py", "@nowhere.yml", "{"]))
    monkeypatch.setitem(sys.modules, "yaml", None)  # a Python next to Ansible's
    muster.check_files_and_values(["-e", '{"a": 1'])
    with pytest.raises(muster.UsageError, match="/nojob.yml does not exist"):
        muster.check_files_and_values(["-e", '{"a": 1', "-e", "@nojob.yml"])


def test_every_playbook_has_a_command_and_every_option_a_variable() -> None:
    assert {playbook for playbook, *_more in muster.COMMANDS.values()} == {
        path.stem for path in (CHECKOUT / "playbooks").glob("*.yml")
    } - {"init"}
    for word, (playbook, role, _about, options) in muster.COMMANDS.items():
        text = (CHECKOUT / f"playbooks/{playbook}.yml").read_text()
        if role:
            text += (CHECKOUT / f"roles/{role}/defaults/main.yml").read_text()
        for variable in options.values():
            assert variable.partition("=")[0] in text, (word, variable)
        help_text = muster.format_help(word)
        assert all(option in help_text for option in options)
    assert len(PROGRAM.read_text().splitlines()) <= 510


@pytest.mark.parametrize("typed", [["help", "launch"], ["launch", "--help"], ["launch", "-h"]])
def test_help_is_printed_for_each_spelling(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert muster.main(typed) == 0
    assert capsys.readouterr().out.startswith(f"./muster launch: {muster.COMMANDS['launch'][2]}")


def test_command_that_reads_a_run_name_has_an_option_for_it() -> None:
    """The name is read in its playbook, or in its role, except launch, which most commands share."""
    missing = []
    for command, (playbook, role, _summary, options) in muster.COMMANDS.items():
        files = [CHECKOUT / f"playbooks/{playbook}.yml"]
        files += (CHECKOUT / "roles" / role).glob("*/*.yml") if role not in ("", "launch") else []
        reads = any("run_id | default" in file.read_text() for file in files)
        missing += [command] if reads and "run_id" not in options.values() else []
    assert missing == []


def test_command_is_printed_and_run_in_the_project(tmp_path: Path) -> None:
    """Arguments are passed on literally from any working directory."""
    (tmp_path / "muster").write_text("#!/usr/bin/env python3\n" + PROGRAM.read_text())
    (tmp_path / "muster").chmod(0o755)
    stand_in = tmp_path / "bin/ansible-playbook"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([os.getcwd(), *sys.argv[1:]]))\nsys.exit(3)\n"
    )
    stand_in.chmod(0o755)
    argv = ["a b", "$HOME", "é'\"", "😀"]
    (tmp_path / "here").mkdir()
    (tmp_path / "here/more.yml").write_text("{}")
    completed = subprocess.run(
        [tmp_path / "muster", "launch", "-e", "@more.yml", "train.py", *argv],
        env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"},
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        check=False,
    )
    (printed,) = completed.stderr.splitlines()
    assert completed.returncode == 3, completed.stderr
    cwd, *arguments = json.loads(completed.stdout)
    expected = ["launch.yml", "-e", f"@{tmp_path}/here/more.yml", "-e", "launch_script=train.py"]
    assert (cwd, arguments[:5]) == (str(tmp_path), expected)
    assert json.loads(arguments[6]) == {"launch_args": argv}
    assert shlex.split(printed.removeprefix("+ ")) == ["ansible-playbook", *arguments]


def test_paths_after_e_are_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(muster, "HERE", str(tmp_path / "project"))
    typed = ["-e", "code_source=.", "-e", "json=a.json", "-e", "launch_script=a.py", "-e", "code_source=/there"]
    assert muster.translate("launch", typed)[3::2] == [
        f"code_source={tmp_path}",
        f"json={tmp_path}/a.json",
        "launch_script=a.py",
        "code_source=/there",
    ]
    monkeypatch.setattr(muster, "HERE", str(tmp_path))
    assert muster.translate("launch", typed)[3::2][0] == "code_source=."


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        *(
            (option, "gpu01", "{here}/gpu01")
            for option in (
                *("-i", "--inventory", "--inventory-file", "-M", "--module-path", "--private-key", "--key-file"),
                *("--vault-password-file", "--vault-pass-file", "--become-password-file", "--become-pass-file"),
                *("--connection-password-file", "--conn-pass-file", "--vault-id"),
            )
        ),
        *((option, "@gpu01", "@{here}/gpu01") for option in ("-e", "--extra-vars", "-l", "--limit", "--vault-id")),
        ("--vault-id", "dev@gpu01", "dev@{here}/gpu01"),
        *(("--vault-id", value, value) for value in ("prompt", "@prompt", "dev@prompt")),
        ("-e", "code_source=gpu01", "code_source={here}/gpu01"),
        *(
            (option, "gpu01", "gpu01")
            for option in (
                *("-e", "-l", "--limit", "-t", "--tags", "--skip-tags", "-u", "--user", "-f", "-T", "-c"),
                *("--become-user", "--become-method", "--ssh-common-args", "--start-at-task"),
            )
        ),
        ("--start-at-task", "to-file x", "to-file x"),
        ("-i", "gpu01,", "gpu01,"),
    ],
)
def test_only_values_that_name_files_are_relative_to_the_current_directory(
    option: str, value: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may have the name of a host, tag or user: then the value stays as it was typed."""
    for name in ("gpu01", "prompt", "to-file x"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(muster, "HERE", str(tmp_path / "project"))
    expected = expected.format(here=tmp_path)
    assert muster.translate("status", [option, value]) == ["ansible-playbook", "status.yml", option, expected]


def test_job_file_and_script_to_check_are_relative_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("job.yml", "a.py", "id.pub"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(muster, "HERE", str(tmp_path / "project"))
    assert f"@{tmp_path}/job.yml" in muster.translate("launch", ["job.yml"])
    assert f"check_script={tmp_path}/a.py" in muster.translate("check", ["a.py"])
    assert f"key={tmp_path}/id.pub" in muster.translate("keys", ["--key", "id.pub"])
    assert "launch_script=a.py" in muster.translate("launch", ["a.py"]), "relative to the job's code"


@pytest.mark.parametrize("braces", ["", "{{ a }}"])
def test_characters_that_yaml_rejects_are_passed_to_the_script(braces: str) -> None:
    """The values are those that Ansible reads; with braces it reads YAML, otherwise JSON."""
    arguments = [f"{braces}a{character}b" for character in "\x01\t\n\x7f\x85\x9f\u2028\u2029\ufeff\ufffe\uffffé😀\\"]
    argv = muster.translate("launch", ["train.py", *arguments])
    muster.check_files_and_values(argv)
    variables = DataLoader().load(argv[-1])
    assert [str(argument) for argument in variables["launch_args"]] == arguments


@pytest.mark.parametrize(
    "typed", [["train.py", b"--name", b"a\xffb\x1b\xc3\xa9"], ["--name", b"a\xffb\x1b\xc3\xa9", "train.py"]]
)
def test_argument_that_is_not_utf8_is_refused_in_one_line(
    typed: list[str | bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    completed = subprocess.run(
        [sys.executable, PROGRAM, "launch", *typed],
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "the argument 'a\\xffb\\x1bé' is not valid UTF-8. Write it in UTF-8; for a path, rename the file"
    assert (completed.returncode, completed.stdout, completed.stderr) == (2, "", f"muster: {expected}\n")


def test_help_explains_each_option_from_the_documentation_of_its_variable() -> None:
    specification = yaml.safe_load((CHECKOUT / "roles/launch/meta/argument_specs.yml").read_text())["argument_specs"]
    text = muster.format_help("launch", {**specification["main"]["options"], **specification["logs"]["options"]})
    help_text = " ".join(text.split())
    assert (
        "-n, --nnodes Number of nodes, in the order of node_rank" in help_text and "Defaults to nnodes" not in help_text
    )
    assert "--replace Whether to first stop any run" in help_text and "Default: torchrun." in help_text
    for command, (_playbook, _role, _summary, options) in muster.COMMANDS.items():
        for variable in options.values():
            plain = muster.describe(variable, "", {})
            documented = {
                name
                for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml")
                for name in re.findall(r"^ {6}(\w+):", path.read_text(), re.M)
            }
            name = variable.partition("=")[0]
            assert plain != name or {name, f"launch_{name}", f"{command}_{name}"} & documented, (command, variable)


@pytest.mark.parametrize("option", ["--step", "--limit", "--timeout=5", "--tags"])
def test_ambiguous_option_after_a_job_file_is_refused(option: str) -> None:
    with pytest.raises(muster.UsageError, match="before the job file; to pass it to the script, write it after --"):
        muster.translate("launch", ["job.yml", option, "100"])
    assert muster.translate("launch", ["--limit", "a", "job.yml", "--", option, "5"])[-1].startswith('{"more_args"')
    assert "--tags" in muster.translate("site", ["job.yml", "--tags", "code"])


@pytest.mark.parametrize("setting", ["trainer.max_epochs=2", "+a=b", "~a=", "model/net@x=big"])
def test_hydra_settings_after_a_job_file_are_appended(setting: str) -> None:
    argv = muster.translate("launch", ["job.yml", setting, "other.py"])
    assert argv[-1] == f'{{"more_args": ["{setting}", "other.py"]}}'
    assert "launch_script=a.py" in muster.translate("launch", ["job.yml", "a.py", setting])


def test_abbreviated_ansible_options_after_a_job_file_belong_to_the_script() -> None:
    argv = muster.translate("launch", ["job.yml", "--vau", "4", "--check"])
    assert argv[-1] == '{"more_args": ["--vau", "4", "--check"]}'
    assert "--check" in muster.translate("launch", ["job.yml", "--check"])


EXAMPLE = "Write `job:` and, indented below it, settings such as `script: train.py`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "job:\n  nnodes: 1\n   script: a.py\n",
            ", line 3, column 10: YAML parsing failed: Mapping values are not allowed in this context.",
        ),
        ("job:\n\tnnodes: 1\n", ", line 2, column 1: YAML parsing failed: Tabs are usually invalid in YAML."),
        (
            "job: \x01\n",
            ": YAML parsing failed: unacceptable character #x0001: control characters are not allowed in "
            '"<unicode string>", position 5',
        ),
        ("", f" is empty. {EXAMPLE}"),
        ("---\n# nnodes: 1\n", f" is empty. {EXAMPLE}"),
        ("# first\n- a\n", f" is not a dictionary. {EXAMPLE}"),
    ],
)
@pytest.mark.parametrize("inventory", ["hosts.yml", "a,b"])
def test_invalid_job_file_is_named_instead_of_the_inventory(
    inventory: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each inventory plugin reads the file, and fails."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/a.yml").write_text(text)
    (tmp_path / "hosts.yml").write_text("training: {hosts: {a: {}}}\n")
    (tmp_path / "play.yml").write_text("[{hosts: training, gather_facts: false}]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(muster, "HERE", str(tmp_path))
    argv = [f"{Path(sys.executable).parent}/ansible-playbook", "play.yml", "-i", inventory, "-e", "@jobs/a.yml"]
    environment = {**os.environ, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1"}
    completed = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert muster.inventory_error(completed.stderr) == f"jobs/a.yml{message}", completed.stderr


def test_invalid_inventory_is_not_taken_for_a_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.yml").write_text("training: [\n")
    (tmp_path / "play.yml").write_text("[{hosts: training, gather_facts: false}]\n")
    monkeypatch.chdir(tmp_path)
    argv = [f"{Path(sys.executable).parent}/ansible-playbook", "play.yml", "-i", "hosts.yml"]
    environment = {**os.environ, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1"}
    completed = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    message = muster.inventory_error(completed.stderr)
    assert message.startswith("the inventory hosts.yml, line 2, cannot be read: YAML parsing failed: "), (
        completed.stderr
    )


def failed_to_parse(*attempts: tuple[str, str], path: str) -> str:
    """Return the output of ansible-core 2.19 for an inventory that no plugin can read."""
    lines = [
        f"[WARNING]: Failed to parse inventory with {plugin!r} plugin: {message}\n\n"
        f"Failed to parse inventory with {plugin!r} plugin.\n"
        f"Origin: <inventory plugin {plugin!r} with source {path!r}>\n"
        for plugin, message in attempts
    ]
    return "".join(lines)


@pytest.mark.parametrize(
    ("path", "attempts", "message"),
    [
        (
            "/x/static.yml",
            [
                ("auto", "no root 'plugin' key found, '/x/static.yml' is not a valid"),
                ("yaml", "mapping values"),
                ("ini", "x"),
            ],
            "the inventory static.yml cannot be read: mapping values",
        ),
        (
            "/x/cloud.yml",
            [("yaml", "Plugin configuration YAML file"), ("auto", "no API key")],
            "the inventory cloud.yml cannot be read: no API key",
        ),
        ("/x/hosts", [("yaml", "not a mapping"), ("ini", "line 3")], "the inventory hosts cannot be read: line 3"),
        ("/x/odd.toml", [("toml", "bad toml")], "the inventory odd.toml cannot be read: bad toml"),
    ],
)
def test_inventory_error_is_the_one_from_the_plugin_for_the_file(
    path: str, attempts: list[tuple[str, str]], message: str
) -> None:
    assert muster.inventory_error(failed_to_parse(*attempts, path=path)) == message
    assert muster.inventory_error("[ERROR]: something else") == ""


INTERRUPTED = """
import os, signal, sys, time
try:
    print("started", flush=True)
    while True:
        time.sleep(0.05)  # short: a signal just before a sleep does not end it
except KeyboardInterrupt:
    for line in {lines}:
        print(line, file=sys.stderr)
    sys.exit({status})
"""


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [
        (["Traceback (most recent call last):", "KeyboardInterrupt"], 130, "interrupted: nothing was started\n"),
        (["[ERROR]: User interrupted execution", "muster: interrupted"], 99, ""),
        # a different output callback does not explain it, and a run may have started
        (["[ERROR]: User interrupted execution"], 99, "interrupted: ./muster status shows whether a run has started\n"),
        (["a warning"], 0, "a warning\n"),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_interruption_is_explained_without_a_traceback(
    lines: list[str], status: int, message: str, terminal: bool, tmp_path: Path
) -> None:
    (tmp_path / "muster").write_text(PROGRAM.read_text())
    stand_in = tmp_path / "bin/ansible-playbook"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!{sys.executable}\n" + INTERRUPTED.format(lines=lines, status=status))
    stand_in.chmod(0o755)
    master, slave = os.openpty()
    # the first terminal that a session leader opens becomes the session's controlling terminal
    stdin = os.ttyname(slave) if terminal else os.devnull
    with subprocess.Popen(
        ["sh", "-c", f'exec "$@" < {stdin}', "sh", sys.executable, tmp_path / "muster", "site"],
        env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() not in ("started\n", ""):
            continue
        if terminal:
            os.write(master, b"\x03")  # Ctrl-C: the terminal signals both processes
        else:
            os.kill(process.pid, signal.SIGINT)
        _output, errors = process.communicate()
    os.close(master)
    os.close(slave)
    assert (process.returncode, errors) == (status, "+ ansible-playbook site.yml\n" + message)


def test_unreadable_inventory_is_explained_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An example is the inventory of a cloud without a key, with the plugins that a project allows."""
    give_collection(tmp_path)
    (tmp_path / "paperspace.yml").write_text((CHECKOUT / "inventories/paperspace.yml").read_text())
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\ninventory = paperspace.yml\n[inventory]\nany_unparsed_is_failed = true\n"
        "enable_plugins = auto, yaml, host_list\n"
    )
    (tmp_path / "ping.yml").write_text("- ansible.builtin.import_playbook: muster.training.ping\n")
    monkeypatch.setattr(muster, "HERE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PAPERSPACE_API_KEY", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "collections"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    previous = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert muster.follow(["ansible-playbook", "ping.yml"]) != 0
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), previous, strict=True):
            signal.signal(number, handler)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "DEPRECATION" not in line and line]
    assert line.startswith("muster: the inventory paperspace.yml cannot be read: ") and "set the environment" in line


def test_shell_starts_in_the_environment_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The playbook determines the environment, including templates and the image of a job."""
    (tmp_path / "my project").mkdir()
    here = {"ansible_connection": "local", "node_address": "127.0.4.1", "launch_working_directory": "{{ place }}"}
    inventory: dict[str, Any] = {"training": {"hosts": {"here": {**here, "place": f"{tmp_path}/my project"}}}}
    inventory["training"]["vars"] = {"launch_python": sys.executable, "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (tmp_path / "ansible.cfg").write_text("[defaults]\ninventory = hosts.yml\n")
    monkeypatch.setattr(muster, "HERE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    give_collection(tmp_path)
    (tmp_path / "shell.yml").write_text("- ansible.builtin.import_playbook: muster.training.shell\n")
    with pytest.raises(muster.UsageError, match="gpu9"):
        muster.login(muster.translate("shell", ["gpu9"]))
    *arguments, shell, option, script = muster.login(muster.translate("shell", ["here"]))
    assert (arguments, shell, option) == ([], "sh", "-c")
    assert script.startswith(f"export PATH={Path(sys.executable).parent}:$PATH") and script.endswith('exec "$SHELL" -i')
    assert f"; cd '{tmp_path}/my project'; " in script
    *arguments, script = muster.login(muster.translate("shell", ["here", "--image", "torch:1"]))
    assert "--interactive --tty --pull=never --network=host --ipc=host" in script and "torch:1 -c" in script


def test_help_of_commands_for_existing_runs_does_not_describe_a_new_run() -> None:
    specification = yaml.safe_load((CHECKOUT / "roles/launch/meta/argument_specs.yml").read_text())["argument_specs"]
    options = {name: option for point in specification.values() for name, option in point.get("options", {}).items()}
    for command, (_playbook, role, _summary, variables) in muster.COMMANDS.items():
        if role == "launch" and "run_id" in variables.values() and command != "launch":
            help_text = " ".join(muster.format_help(command, options).split())
            assert (
                "a new run is named" not in help_text and "Name of the run, or the beginning of its name." in help_text
            ), command
    assert "output is followed" not in muster.format_help("stacks", options)
    assert "Show the data mounts of each node" in muster.format_help("status", options)
    assert "even if they were fetched before" in muster.format_help("report", options)
    assert "fetch the logs of all nodes instead" in muster.format_help("logs", options)
    assert "a new run is named" in " ".join(muster.format_help("launch", options).split())


def test_help_separates_a_long_option_from_its_text() -> None:
    assert "  --allow-differences Start the repeated run" in muster.format_help("launch")


@pytest.mark.parametrize(
    ("typed", "noted"),
    [
        ("launch train.py --time-limit 12h --epochs 3", "--time-limit"),
        ("launch -n 2 train.py --detach --cost-limit=5", "--cost-limit, --detach"),
        ("launch --time-limit 12h --detach train.py --epochs 3", ""),
        ("launch job.yml --time-limit 12h", ""),
        ("launch job.yml -- --time-limit 12h", ""),
    ],
)
def test_launch_options_after_the_script_are_noted(typed: str, noted: str) -> None:
    """A run without the limit that its user believes to have set costs money."""
    command, *arguments = typed.split()
    assert ", ".join(muster.misplaced_options(arguments, muster.translate(command, arguments))) == noted
