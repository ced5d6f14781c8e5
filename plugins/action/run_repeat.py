# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_repeat: reads and writes the snapshots in runs' records. Connects to no node."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.module_utils._facts.git_checkout import commit_of, git_directory
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json, write_atomically
from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import collect_replies
from ansible_collections.muster.training.plugins.plugin_utils._cluster.training_group import group_members
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import parse_arguments
from ansible_collections.muster.training.plugins.plugin_utils._plan.notify_targets import read_targets
from ansible_collections.muster.training.plugins.plugin_utils._project.environment_path import DEFAULT_DIRECTORY
from ansible_collections.muster.training.plugins.plugin_utils._project.local_code import read_tree
from ansible_collections.muster.training.plugins.plugin_utils._record.code_patch import (
    RecordedCode,
    is_below,
    make_patch,
    restore_code,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import FILE as CODE_FILE
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import (
    digest_of_files,
    make_code_tree,
    read_files,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import to_mapping
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import find_record, records_directory
from ansible_collections.muster.training.plugins.plugin_utils._record.repeat import (
    choose_restoration,
    describe_differences,
    incomplete_settings,
    layers_to_restore,
    nodes_to_use,
    seed_note,
    setting_names,
    settings_to_use,
    unknown_variables,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import (
    CODE,
    FILE,
    NO_CODE,
    PACKAGE,
    PATCH_FILE,
    SETTING,
    CodeSnapshot,
    Difference,
    JobInputs,
    Snapshot,
    compare_snapshots,
    make_snapshot,
    package_differences,
    read_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["nodes", "settings", "environment", "compared", "recorded"], "required": True},
    "like": {"type": "str", "default": ""},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "run_id": {"type": "str", "default": ""},
    "nodes": {"type": "list", "elements": "dict", "default": []},
    "facts": {"type": "dict", "default": {}},
    "facts_from": {"type": "str", "default": ""},
    "plan": {"type": "dict", "default": {}},
    "args": {"type": "raw", "default": []},
    "environment": {"type": "dict", "default": {}, "no_log": True},
    "notify": {"type": "raw", "default": [], "no_log": True},
    "code": {"type": "dict", "default": {}},
    "code_directory": {"type": "str", "default": ""},
    "code_exclude": {"type": "list", "elements": "str", "default": []},
    "repositories": {"type": "raw", "default": []},
    "allow_differences": {"type": "bool", "default": False},
}
MAX_SNAPSHOT = 32 << 20  # bytes
RESTORED_CODE = "restored_code"  # directory in the record of the run to repeat
LISTS = ("/.muster-code.json", "/.muster-code.json.*")  # patterns that the role code adds itself


def read_snapshot(record: Path) -> dict[str, Any]:
    """Return the snapshot in a record. Raise UserError if it has none."""
    snapshot = read_json(str(record / FILE), MAX_SNAPSHOT)
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("settings"), dict):
        raise UserError(
            f"the record of run {record.name} has no {FILE}: it was launched by an older release, so it cannot be "
            "repeated exactly"
        )
    return snapshot


def repository_names(entries: Any) -> list[str]:
    """Return the model and dataset names in the variables of the role hugging_face, given as strings or mappings."""
    entries = entries if isinstance(entries, list) else []
    return [str(entry.get("name", "")) if isinstance(entry, Mapping) else str(entry) for entry in entries]


class CodeToRepeat:
    """The code of a run to repeat, on this machine: either unchanged in its directory, or restored."""

    def __init__(self, record: Path, snapshot: Mapping[str, Any], target: Path) -> None:
        """target: directory in which the code is restored."""
        self.record, self.target = record, target
        self.code = to_mapping(snapshot.get("code"))
        self.files = read_files(read_json(str(record / CODE_FILE), MAX_SNAPSHOT)) or {}

    def find(self) -> tuple[str, list[Difference]]:
        """Return the code directory ("" if none was recorded), and the files that differ from the recorded ones."""
        if not self.code.get("digest"):
            return "", []
        source = Path(str(self.code.get("source")))
        # a copy of code in a record, which may come from somebody else, has no repository
        is_own = source.is_dir() and not is_below(source, self.record.resolve().parent)
        if is_own and self.digest_of(source) == self.code["digest"]:
            return str(source), []
        return self.restore(source)

    def digest_of(self, source: Path) -> str:
        """Return the hash of a directory's files, or "" if it cannot be read."""
        try:
            tree = read_tree(str(source), [*map(str, self.code.get("exclude") or []), *LISTS])
        except ValueError:
            return ""
        return digest_of_files(read_files(make_code_tree("", tree)) or {})

    def restore(self, source: Path) -> tuple[str, list[Difference]]:
        """Write the recorded files into the target."""
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir(mode=0o700)
        patch = self.record / PATCH_FILE
        has_patch = bool(self.code.get("patch")) and patch.is_file()
        root = source if source.is_dir() else self.record
        commit, records = str(self.code.get("commit") or ""), self.record.resolve().parent
        recorded = RecordedCode(self.files, commit, patch if has_patch else None, records)
        directory, problems = restore_code(root, recorded, self.target)
        reason = str(self.code.get("without_patch") or "")
        return str(directory), [
            Difference(CODE, name, "recorded", f"{problem}{f': {reason}' if reason else ''}")
            for name, problem in problems.items()
        ]


class ActionModule(ActionBase):
    """Action plugin that reads and writes records on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read, compare or write a snapshot."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        self.task_vars, self.args = task_vars, args
        self.directory = records_directory(args["directory"], args["group"], task_vars)
        states = {
            "nodes": self.choose_nodes,
            "settings": self.choose_settings,
            "environment": self.choose_environment,
            "compared": self.compare,
            "recorded": self.write,
        }
        result: dict[str, Any] = states[args["state"]]()
        return {"changed": False, **result}

    def like(self) -> tuple[Path, dict[str, Any]]:
        """Return the record of the run to repeat, and its snapshot."""
        record = find_record(self.directory, self.args["like"])
        if os.path.lexists(record / ".git"):  # git, run in restored code, would follow its configuration
            raise UserError(
                f"{record} contains .git, which a launch never writes: remove it, or do not use this record"
            )
        return record, read_snapshot(record)

    def choose_nodes(self) -> dict[str, Any]:
        """Return how many nodes the run had, and their names if all of them are still in the inventory."""
        record, snapshot = self.like()
        members = group_members(self.args["group"], self.task_vars["groups"])
        return {"run_id": record.name, **nodes_to_use(snapshot, members)}

    def choose_settings(self) -> dict[str, Any]:
        """Return the variables for repeating the run, after restoring its code if it has changed."""
        record, snapshot = self.like()
        extra = load_extra_vars(self._loader)
        variables = settings_to_use(snapshot, extra)
        variables["__launch_like_values"] = dict(to_mapping(snapshot.get("values")))
        # with --check, write into a directory that Ansible removes when it ends
        target = Path(C.DEFAULT_LOCAL_TMP) if self._task.check_mode else record
        source, differences = CodeToRepeat(record, snapshot, target / RESTORED_CODE).find()
        differences += [
            Difference(
                SETTING, name, "set", "not recorded, since its value may be secret: set it in launch_environment"
            )
            for name in unknown_variables(snapshot, self.args["environment"])
        ]
        differences += [
            Difference(
                SETTING, name, "set", f"not recorded, since it contains a value that may be secret: set {name} with -e"
            )
            for name in incomplete_settings(variables)
        ]
        code = to_mapping(snapshot.get("code"))
        if source and "code_source" not in extra:
            exclude = code.get("exclude") or []
            variables.update(code_source=source, code_directory=code.get("directory") or "", code_exclude=exclude)
        self.require(record.name, differences)
        Display().display(f"repeating run {record.name}; {seed_note(snapshot)}")
        if source and source != code.get("source"):
            Display().display(f"the code on this machine has changed since the run; the recorded code is in {source}")
        return {"run_id": record.name, "variables": variables}

    def choose_environment(self) -> dict[str, Any]:
        """Return the environment to restore on the nodes."""
        record, snapshot = self.like()
        replies = collect_replies(self.args, self.task_vars.get("hostvars"))
        restoration = choose_restoration(snapshot, replies, self.environments_directory())
        unchanged = {"restore": False, "home": "", "interpreter": "", "layers": []}
        if restoration.problem:
            environments = [read_environment(to_mapping(to_mapping(reply).get("facts"))) for reply in replies.values()]
            recorded = to_mapping(snapshot.get("environment"))
            differences = [row for current in environments for row in package_differences(recorded, current)]
            missing = [Difference(PACKAGE, "environment", "recorded", "missing on a node")]
            self.require(record.name, list(dict.fromkeys(differences)) or missing, [restoration.problem])
            return unchanged
        if not restoration.needed or self.args["allow_differences"]:
            return unchanged
        is_original = restoration.home == to_mapping(snapshot.get("environment")).get("home")
        Display().display(f"the nodes get the environment of run {record.name} in {restoration.home}")
        return {
            "restore": True,
            "home": restoration.home,
            "interpreter": "" if is_original else f"{restoration.home}/env/bin/python",
            "layers": layers_to_restore(snapshot, restoration.home),
        }

    def environments_directory(self) -> str:
        """Return the directory that contains all environments on the nodes; it is the same on every node."""
        directory = self._templar.template(self.task_vars.get("python_env_directory") or DEFAULT_DIRECTORY)
        return posixpath.normpath(str(directory))

    def compare(self) -> dict[str, Any]:
        """Compare the run that is about to start with the run that it repeats."""
        record, snapshot = self.like()
        current = self.snapshot(NO_CODE)
        files = read_files(self.args["code"])
        digest = digest_of_files(files) if files else ""
        before = to_mapping(snapshot.get("code")).get("digest") or ""
        differences = [Difference(CODE, "files", str(before) or "-", digest or "-")] if digest != before else []
        # the interpreter of a restored environment may have another path
        differences += [
            row for row in compare_snapshots(snapshot, current) if row.name != "launch_python" or self.explicit_python()
        ]
        self.require(record.name, differences)
        return {"differences": [row._asdict() for row in differences]}

    def explicit_python(self) -> bool:
        """Return whether the user sets the interpreter with -e."""
        return "launch_python" in load_extra_vars(self._loader)

    def require(self, run_id: str, differences: list[Difference], notes: list[str] | None = None) -> None:
        """Show the differences; raise UserError for material differences that are not allowed."""
        if not differences:
            return
        Display().display(describe_differences(run_id, differences, notes or []))
        if any(row.is_material for row in differences) and not self.args["allow_differences"]:
            parts = format_list(dict.fromkeys(row.part for row in differences if row.is_material))
            raise UserError(
                adapt_commands(
                    f"nothing was started: run {run_id} cannot be repeated exactly ({parts}). To start it anyway, "
                    "run the following with the other options of this command: ansible-playbook launch.yml -e "
                    f"like={run_id} -e allow_differences=true"
                ),
                result={"changed": False},
            )

    def settings(self) -> dict[str, Any]:
        """Return the role variables that determine a run's result, with templates evaluated."""
        names = {option: name for option, name in setting_names().items() if name in self.task_vars}
        values = {name: self._templar.template(self.task_vars[name]) for name in names.values()}
        values["launch_args"] = parse_arguments(self.args["args"], self._loader)
        return values

    def snapshot(self, code: CodeSnapshot) -> Snapshot:
        """Return a snapshot of the run that is about to start."""
        replies = collect_replies(self.args, self.task_vars.get("hostvars"))
        facts = {name: to_mapping(to_mapping(reply).get("facts")) for name, reply in replies.items()}
        names = repository_names(self.args["repositories"])
        like = find_record(self.directory, self.args["like"]).name if self.args["like"] else ""
        inputs = JobInputs(self.settings(), self.args["environment"], code, names, like)
        return make_snapshot(self.args["plan"], facts, inputs)

    def describe_code(self) -> tuple[CodeSnapshot, bytes]:
        """Return a description of the run's code, and a patch with its uncommitted changes."""
        files = read_files(self.args["code"])
        source = str(self.args["code"].get("source") or "")
        if not files or not os.path.isdir(source):
            return NO_CODE, b""
        git = "" if is_below(source, self.directory) else git_directory(source)
        commit = commit_of(git) if git else ""
        urls = [target["url"] for target in read_targets(self.args["notify"])]
        patch = make_patch(source, files, commit, urls)
        if patch.problem:
            missing = "uncommitted changes are" if commit else "the code, which is not in a git checkout, is"
            Display().display(f"{missing} not in the record: {patch.problem}")
        return {
            "source": source,
            "directory": self.args["code_directory"],
            "exclude": [pattern for pattern in self.args["code_exclude"] if pattern not in LISTS],
            "commit": commit,
            "digest": digest_of_files(files),
            "patch": "" if patch.problem else PATCH_FILE,
            "without_patch": patch.problem,
        }, patch.text

    def write(self) -> dict[str, Any]:
        """Write the snapshot of the run that is about to start to its record."""
        record = self.directory / self.args["run_id"]
        if self._task.check_mode:
            return {"changed": True, "snapshot": str(record / FILE)}
        try:
            self.write_files(record)
        except Exception as error:  # a missing snapshot must not prevent a run
            Display().warning(f"this run cannot be repeated with --like: {FILE} could not be written: {error}")
            return {"snapshot": ""}
        return {"changed": True, "snapshot": str(record / FILE)}

    def write_files(self, record: Path) -> None:
        """Write snapshot.json and code.patch."""
        code, patch = self.describe_code()
        write_atomically(str(record / FILE), json.dumps(self.snapshot(code), indent=1, sort_keys=True) + "\n")
        if code["patch"]:
            descriptor = os.open(record / PATCH_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(patch)
