"""Short commands for the playbooks in this file's directory: ./muster help.

Each ansible-playbook command is printed first, to stderr: the output of some commands is read by programs.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = {"": "run_id", "--run-id": "run_id"}  # a word without an option is a run name
REPORT = {**RUN, "--runs": "runs", "--fetch": "fetch=true", "--bundle": "bundle=true"}
DIFF = {"": "run_id", " ": "other_run", "--lines": "lines=true"}  # " ": a second word without an option
PAGE = {**RUN, "--port": "page_port"}
PROFILE = {**RUN, "--steps": "profile_steps", "--ranks": "profile_ranks"}
SAVE = {**RUN, "--stop": "save_stop=true"}
KEEP = {**RUN, "--max-usd-per-hour": "max_usd_per_hour"}
JOIN = {"": "node", "--run-id": "run_id"}
FORGIVE = {"": "node", "--add": "add", "--reason": "reason"}
LOGS = {**RUN, "--rank": "rank", "--attempt": "attempt", "--fetch": "fetch=true"}
STATUS = {**RUN, "--mounts": "mounts=true"}
RUNS = {"--grep": "grep", "--keep": "keep", "--older-than": "older_than"}
IMAGE = {"": "cluster", "--name": "template"}
DOCKER = {"--data-root": "docker_data_root_path", "--delete-old": "docker_data_root_delete_old=true"}
MOVE = {"--from": "source", "--to": "target", "--region": "region"}
CHECKPOINTS = {"": "checkpoints_bucket", "--run-id": "run_id"}
BENCHMARK = {"-n": "nnodes", "--run-id": "run_id", "--baseline": "baseline"}
JOB_OPTIONS = """
    -n:nnodes --nnodes:nnodes --nproc-per-node:nproc_per_node --gpus:gpus --launcher:launch_launcher
    --image:launch_image --name:launch_name --run-id:run_id --as-user:launch_user --directory:launch_working_directory
    --python:launch_python --restarts:launch_restarts --spares:launch_spares --time-limit:launch_time_limit
    --cost-limit:launch_cost_limit --like:like --allow-differences:allow_differences=true
    --scheduler:launch_scheduler --partition:launch_slurm_partition
    --detach:detach=true --replace:replace=true --debug:debug=true --debug-rank:debug_rank
"""
JOB = dict(re.findall(r"(\S+):(\S+)", JOB_OPTIONS))
SHELL = {"": "nodes", "--image": "launch_image", "--run-id": "run_id", "--as-user": "launch_user"}
CHECK = {"": "check_script", "--launcher": "launch_launcher", "--skip": "check_skip"}
PATH_VARIABLES = ("check_script", "key")  # files on this machine
# Commands that accept files, as in launch job.yml
JOB_FILE_COMMANDS = ("site", "check", "preflight", "launch", "shell", "fit", "sweep", "rehearse")
SCRIPT_COMMANDS = {"launch": "launch_args", "preflight": "launch_args", "fit": "fit_args"}  # SCRIPT ARGUMENT ...
# Command: (playbook, role with its variables, summary, options and their variables; "=" sets a fixed value).
COMMANDS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "site": ("site", "", "set up the machines, or update them", {}),
    "docker": ("docker", "docker_data_root", "install Docker, or move its data to another disk", DOCKER),
    "keys": ("keys", "", "install your public SSH key on machines: ./muster keys --ask-pass", {"--key": "key"}),
    "ping": ("ping", "", "show which machines respond, and their GPUs", {}),
    "check": ("check", "", "check a script for use on several nodes: ./muster check train.py", CHECK),
    "preflight": ("preflight", "preflight", "check for problems that would make a job fail", {"-n": "nnodes"}),
    "launch": ("launch", "launch", "run a job: ./muster launch job.yml, or launch -n 4 train.py --epochs 3", JOB),
    "status": ("status", "launch", "show the state of a run: ./muster status [RUN]", STATUS),
    "page": ("page", "launch", "show runs in a browser: ./muster page [RUN] [--port PORT]", PAGE),
    "logs": ("logs", "launch", "show the output of a rank", LOGS),
    "stacks": ("stacks", "launch", "show which source line each rank is executing", {**RUN, "--rank": "rank"}),
    "profile": ("profile", "launch", "profile the next steps of a run: ./muster profile [RUN] --steps 5", PROFILE),
    "fetch": ("fetch", "launch", "copy a job's output files: ./muster fetch [RUN]", {**RUN, "--yes": "confirm=true"}),
    "report": ("report", "launch", "write a report on a run, or compare runs: ./muster report --runs A,B", REPORT),
    "diff": ("diff", "launch", "show what differs between two runs: ./muster diff RUN RUN", DIFF),
    "shell": ("shell", "launch", "log in to a node, as a rank: ./muster shell NODE [--run-id RUN]", SHELL),
    "keep": ("keep", "launch", "replace nodes that a run loses: ./muster keep [RUN]", KEEP),
    "join": ("join", "launch", "add a machine to an active run: ./muster join NODE", JOIN),
    "save": ("save", "launch", "ask a run to save now: ./muster save [RUN] [--stop]", SAVE),
    "stop": ("stop", "launch", "stop a run: ./muster stop [RUN]", RUN),
    "forgive": ("forgive", "", "use a repaired machine again: ./muster forgive [NODE]", FORGIVE),
    "runs": ("runs", "launch", "list runs, and remove old ones: ./muster runs --grep TEXT", RUNS),
    "env": ("env", "python_env", "list the Python environments, or remove one", {"--remove": "remove"}),
    "provision": ("provision", "", "create machines: ./muster provision bert -n 4", {"": "cluster", "-n": "nnodes"}),
    "cost": ("cost", "", "show what all clusters of the account cost", {"": "cluster"}),
    "teardown": ("teardown", "", "remove the machines of a cluster: ./muster teardown bert", {"": "cluster"}),
    "image": ("image", "", "create a template from a machine: ./muster image bert --name golden", IMAGE),
    "benchmark": ("benchmark", "benchmark", "measure GPUs and network, and report slow parts", BENCHMARK),
    "fit": ("fit", "fit", "find the largest batch size that fits in memory", {"-n": "nnodes", "--run-id": "run_id"}),
    "sweep": ("sweep", "sweep", "compare variants: ./muster sweep job.yml variants.yml", {"--run-id": "run_id"}),
    "rehearse": ("rehearse", "rehearse", "try a job first: ./muster rehearse job.yml rehearsal.yml", RUN),
    "stage-data": ("stage_data", "stage_data", "copy a bucket to the machines' disks", {"": "stage_data_bucket"}),
    "checkpoints": ("checkpoints", "checkpoints", "copy checkpoints to S3, or back", CHECKPOINTS),
    "bucket-move": ("bucket_move", "", "copy a bucket to another region", MOVE),
}
# Variables that the documentation of the role launch describes only for these commands.
DOCUMENTED_FOR = {"run_id": ["launch"], "rank": ["launch"], "mounts=true": [], "fetch=true": ["logs"]}
# For the help: variables that no role documents, or that mean something else for an existing run.
MEANINGS = {
    "cluster": "Name of the cluster.",
    "nodes": "Name of a node in the inventory.",
    "node": "Name of the machine. Without it, forgive lists the machines that runs do not use.",
    "max_usd_per_hour": "Maximum cost of all machines in the cluster. Without it, no machine is created.",
    "add": "Name of a machine that no run may use.",
    "reason": "Reason why no run may use the machine.",
    "nnodes": "Number of machines. Required unless provision_nnodes is set.",
    "run_id": "Name of the run, or the beginning of its name. Default: the active run, otherwise the last one "
    "(report, diff: the last one; shell: none).",
    "rank": "Rank to show. Default: all for stacks, 0 for logs.",
    "gpus": "GPUs to use on each node, as nvidia-smi numbers them, such as 0,1. Default: all.",
    "other_run": "Name of the run to compare it with. Default: the run that it repeats.",
    "lines": "Also show the lines of code that differ.",
    "allow_differences": "Start the repeated run despite differences.",
    "runs": "Names of runs to compare, separated by commas.",
    "fetch": "Fetch logs and measurements from the nodes, even if they were fetched before.",
    "bundle": "Also write an archive without secrets, to share when you ask for help.",
    "template": "Name of the template to create.",
    "keep": "How many of the newest runs to keep on the nodes; older ones are removed. Default: all.",
    "older_than": "How old (90m, 12h, 30d, 2w) a run must be to be removed. Default: any age.",
    "source": "Bucket to copy. Required.",
    "target": "Bucket to copy to, which is created if it is missing. Required.",
    "region": "Region to copy to, such as us-east-1. Required.",
    "check_script": "The script to check.",
    "launch_launcher": "Launcher to check the script for. Default: that of the job or project, otherwise torchrun.",
    "check_skip": "IDs of rules to skip, separated by commas.",
    "key": "File with your public key. Default: the first of ~/.ssh/id_ed25519.pub, id_ecdsa.pub and id_rsa.pub.",
    "page_port": "Port of the page on this machine. Default: any free port.",
    "mounts": "Show the data mounts of each node instead.",
    "remove": "Name of the environment to remove.",
    "grep": "Text to look for in the names, arguments, projects and errors of runs.",
}
# YAML rejects these characters, or reads them as line breaks. It cannot read JSON's escapes of those above U+FFFF.
ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFFFE, 0xFFFF)}
LOCAL_PATHS = ("code_source", "stage_data_here", "json", "preflight_json", "report_directory")  # typed after -e
# ansible-playbook's options that take a value, and those whose value is a file, or is one after @.
VALUE_OPTIONS = """
    -e --extra-vars -i --inventory -l --limit -t --tags --skip-tags -f --forks -M --module-path -u --user -T --timeout
    -c --connection --become-user --become-method --become-password-file --connection-password-file --private-key
    --key-file --ssh-common-args --ssh-extra-args --sftp-extra-args --scp-extra-args --task-timeout --vault-id
    --vault-password-file --vault-pass-file --conn-pass-file --become-pass-file --inventory-file --start-at-task
"""
FILE_VALUE = r"(-[iM]|--(inventory|\S+-(file|path|key)|vault-id(?! (.*@)?prompt$))) |(-[el]|--extra-vars|--limit) @"
KNOWN_OPTIONS = f"""{VALUE_OPTIONS}
    -v --verbose -C --check -D --diff -b --become -K --ask-become-pass -k --ask-pass -J --ask-vault-password
    --ask-vault-pass --step --force-handlers --flush-cache --list-hosts --list-tags --list-tasks --syntax-check
"""
NOTHING_STARTED = "interrupted: nothing was started\n"
UNKNOWN_STATE = "interrupted: ./muster status shows whether a run has started\n"
STARTUP_SECONDS = 0.05  # importing Ansible takes longer
# Options of ansible-playbook that scripts have, too: after a job file, the user must say which program they are for.
AMBIGUOUS_OPTIONS = ("--step", "--timeout", "--user", "--tags", "--skip-tags", "--forks", "--connection", "--limit")
LAUNCH_ONLY = "--time-limit --cost-limit --restarts --debug-rank --like --detach --replace"  # scripts rarely have these


class UsageError(Exception):
    """Invalid arguments; the message describes the problem and its remedy."""


def suggest_similar(name: str, candidates: list[str]) -> str:
    """Return a suggestion of the most similar candidate, or an empty string."""
    close = difflib.get_close_matches(name, candidates, 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def format_help(command: str, options: dict[str, dict[str, Any]] | None = None) -> str:
    """Return the help for a command, or the list of commands if the name is empty. Raise UsageError.

    options: documented variables of the command's role, from read_options().
    """
    if command not in (*COMMANDS, ""):
        raise UsageError(f"unknown command {command!r}: see ./muster help{suggest_similar(command, [*COMMANDS])}")
    if command not in COMMANDS:
        lines = [f"  {name:<13}{summary}" for name, (_playbook, _role, summary, _options) in COMMANDS.items()]
        return "\n".join(["./muster COMMAND ...", *lines, "  help COMMAND options of COMMAND"])
    _playbook, role, summary, variables = COMMANDS[command]
    rows = [("JOB.yml", "A job file.")] if command in JOB_FILE_COMMANDS else []
    rows += [("SCRIPT ...", "The script, and its arguments.")] if command in SCRIPT_COMMANDS else []
    for variable in dict.fromkeys(variables.values()):
        names = [option.strip() or "NAME" for option, name in variables.items() if name == variable]
        is_documented = role != "launch" or command in DOCUMENTED_FOR.get(variable, [command])
        documented = (options or {}) if is_documented else {}
        rows.append((", ".join(names), describe(variable, role, documented)))
    rows += [("-e NAME=VALUE", "Any variable."), ("--check", "Show what would change, and change nothing.")]
    lines = []
    for option, text in rows:
        first, *rest = textwrap.wrap(text, 92) or [""]
        lines += [f"  {option:<17} {first}", *(" " * 20 + line for line in rest)]
    return "\n".join([f"./muster {command}: {summary}", *lines])


def describe(setting: str, role: str, options: dict[str, dict[str, Any]]) -> str:
    """Return the meaning and the default of an option's variable. setting: NAME, or NAME=VALUE."""
    name, _equals, constant = setting.partition("=")
    option = options.get(name) or options.get(f"{role}_{name}") or options.get(f"launch_{name}") or {}
    parts = option.get("description", [])
    text = " ".join([parts] if isinstance(parts, str) else parts) or MEANINGS.get(name, name)
    text = re.sub(r"\b[A-Z]\(([^()]*)\)", r"\1", text)
    text = re.sub(rf" Defaults to {name.removeprefix('launch_')}(, otherwise [^ ]+)?\.", "", text)  # the short name
    text += f" One of {', '.join(map(str, option['choices']))}." if option.get("choices") else ""
    default = option.get("default")
    has_default = default not in (None, "", [], {}) and "efault" not in text and not constant
    return f"{text} Default: {default}." if has_default else text


def read_options(role: str) -> dict[str, dict[str, Any]]:
    """Return the documented variables of a role and of the launch role; empty if reading them fails."""
    roles = [f"muster.training.{name}" for name in dict.fromkeys([role, "launch"])]
    argv = ["ansible-doc", "--type", "role", "--json", *roles]
    try:
        documents = json.loads(subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=True).stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return {}
    points = [points for name in roles[::-1] for points in documents.get(name, {}).get("entry_points", {}).values()]
    return {name: option for point in points for name, option in point.get("options", {}).items()}


def is_ansible_option(name: str, abbreviated: bool = True) -> bool:
    """Return whether ansible-playbook has an option with this name, or one that can be abbreviated to it."""
    if name[:2] != "--":
        return name[:2] in KNOWN_OPTIONS.split()
    return any(opt.startswith(name) if abbreviated else opt == name for opt in KNOWN_OPTIONS.split())


def check_ambiguity(name: str) -> None:
    """Raise UsageError for an option that may belong either to ansible-playbook or to the script."""
    if name in AMBIGUOUS_OPTIONS:
        raise UsageError(
            f"{name} is an option of ansible-playbook, but may be meant for the script: to give it to "
            "ansible-playbook, write it before the job file; to pass it to the script, write it after --"
        )


def read_script(command: str, argument: str, remaining: list[str], has_job: bool) -> dict[str, str | list[str]]:
    """Return the variables for the script and its arguments, or for settings such as Hydra's a.b=1 after a job file."""
    if has_job and command == "launch" and re.match(r"[+~]{0,2}[\w.@/]+=", argument):
        return {"more_args": [argument, *remaining]}
    script = remaining.pop(0) if argument == "--" and remaining else argument
    return {"launch_script": script, SCRIPT_COMMANDS[command]: remaining}


def translate(command: str, typed: list[str]) -> list[str]:
    """Translate the typed arguments to an ansible-playbook command. Raise UsageError."""
    playbook, _role, _summary, options = COMMANDS[command]
    argv, remaining = ["ansible-playbook", f"{playbook}.yml"], list(typed)
    variables: dict[str, str | list[str]] = {}
    has_job = False
    while remaining:
        argument = remaining.pop(0)
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        check_ambiguity(name if has_job and command == "launch" else "")
        if name in options and name:
            variable, set_by, constant = options[name].partition("=")
            if not (value if equals else set_by or remaining):
                raise UsageError(f"{name} needs a value: {name} {variable.upper()}")
            variables[variable] = value if equals else constant if set_by else remaining.pop(0)
        elif argument.startswith("-") and argument != "--" and is_ansible_option(name, not has_job):
            argv.append(argument)
            if argument in VALUE_OPTIONS.split() and remaining:
                argv.append(resolve_path(remaining.pop(0), argument))
        elif argument.startswith("-") and (argument != "--" or has_job):
            suggestion = suggest_similar(name, [*options, *KNOWN_OPTIONS.split()])
            if not has_job or command != "launch" or (suggestion and argument != "--"):
                hint = "; options for the script go after its name" if command in SCRIPT_COMMANDS else ""
                hint = "; options for the script go after --" if has_job and command == "launch" else hint
                raise UsageError(f"{name} is not an option of {command}: see ./muster help {command}{hint}{suggestion}")
            variables["more_args"] = remaining if argument == "--" else [argument, *remaining]
            break
        elif command in JOB_FILE_COMMANDS and argument.endswith((".yml", ".yaml")):
            argv += ["-e", resolve_path(f"@{argument}", "-e")]
            has_job = True
        elif command in SCRIPT_COMMANDS:
            variables.update(read_script(command, argument, remaining, has_job))
            break
        elif unset := [options[word] for word in ("", " ") if word in options and options[word] not in variables]:
            variables[unset[0]] = argument
        else:
            raise UsageError(f"unexpected argument {argument!r}. For usage, see ./muster help {command}")
    for name, content in variables.items():
        content = resolve_path(content) if name in PATH_VARIABLES and isinstance(content, str) else content
        is_plain = isinstance(content, str) and re.fullmatch(r"[\w./:-]+", content, re.ASCII)
        # Ansible would split other values, or YAML would read them as something else
        argv += ["-e", f"{name}={content}" if is_plain else f'{{"{name}": {format_yaml(content)}}}']
    return argv


def misplaced_options(typed: list[str], argv: list[str]) -> list[str]:
    """Return launch options that are passed to the script because they follow its name. argv: translated command."""
    names = {argument.partition("=")[0] for argument in typed} & {*LAUNCH_ONLY.split()} if "--" not in typed else set()
    return [name for name in sorted(names) if not any(word.startswith(JOB[name].split("=")[0]) for word in argv)]


def format_yaml(value: str | list[str]) -> str:
    """Return strings as YAML that Ansible reads literally, without templating braces. Raise UsageError."""
    if isinstance(value, list):
        return f"[{', '.join(format_yaml(item) for item in value)}]"
    if re.search("[\ud800-\udfff]", value):  # Python's substitutes for bytes that are not UTF-8
        shown = repr(value).replace("\\udc", "\\x")
        raise UsageError(f"the argument {shown} is not valid UTF-8. Write it in UTF-8; for a path, rename the file")
    return ("!unsafe " if "{" in value else "") + json.dumps(value, ensure_ascii=False).translate(ESCAPES)


def resolve_path(value: str, option: str = "") -> str:
    """Return a path, or an option's value, with local file paths made absolute: commands run in HERE."""
    name, _equals, path = value.partition("=")
    if os.getcwd() == HERE:
        return value
    if option in ("-e", "--extra-vars") and name in LOCAL_PATHS and path and not path.startswith(("/", "~", "'", '"')):
        return f"{name}={os.path.abspath(path)}"
    start = value.find("@") + 1 if option == "--vault-id" else value.startswith("@")  # after @, or LABEL@
    is_file = os.path.exists(value[start:]) and (not option or re.match(FILE_VALUE, f"{option} {value}"))
    return value[:start] + os.path.abspath(value[start:]) if is_file else value


def check_files_and_values(command: list[str]) -> None:
    """Raise UsageError for a missing file after -e or -i, and for invalid JSON or YAML after -e."""
    for option, value in zip(command, command[1:]):
        variables = option in ("-e", "--extra-vars")
        file = value.startswith("@") if variables else option in ("-i", "--inventory") and "," not in value
        path = os.path.expandvars(os.path.expanduser(value[value.startswith("@") :]))
        if file and not os.path.exists(os.path.join(HERE, path)):
            raise UsageError(f"{os.path.abspath(path)} does not exist. Correct its name")
        try:
            import yaml

            yaml.compose(value if variables and value.startswith(("{", "[")) else "")
        except ImportError:
            continue  # Ansible reports errors itself
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            position = f" at character {mark.index + 1}, after {value[: mark.index][-30:]}" if mark else ""
            reason = " ".join(str(getattr(error, "problem", error)).split())
            raise UsageError(f"-e cannot be parsed: {reason}{position}. Write JSON, as in -e '{{\"a\": 1}}'") from None


def login(command: list[str]) -> list[str]:
    """Run a playbook and return the argv it produces for opening a shell in a rank's environment. Raise UsageError."""
    with tempfile.TemporaryDirectory() as directory:
        argv = [*command, "-e", f"json={directory}/words"]
        completed = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            reason = inventory_error(completed.stderr) or completed.stdout + completed.stderr
            raise UsageError(f"cannot open this shell:\n{reason}")
        with open(f"{directory}/words", encoding="utf-8") as stream:
            return [str(word) for word in json.load(stream)]


def is_foreground() -> bool:
    """Return whether Ctrl-C in a terminal reaches this process and its children."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def variables_error(text: str) -> str:
    """Return why a file after -e cannot be read, from the output of ansible-playbook's inventory plugins."""
    invalid = re.search(r">>>\n\n(YAML parsing failed: .*)\nOrigin: (/.*?)(:(\d+):(\d+))?\n", text)
    if invalid and f"inventory source {invalid[2]}\n" not in text:
        position = f", line {invalid[4]}, column {invalid[5]}" if invalid[3] else ""  # none for invalid characters
        return f"{os.path.relpath(invalid[2])}{position}: {invalid[1]}"
    if not (wrong := re.search(r">>>\n\nInvalid extra vars data supplied\. '@(.*)' could not be made into", text)):
        return ""
    path = os.path.join(HERE, os.path.expanduser(wrong[1]))
    with open(path, encoding="utf-8") as stream:
        lines = [line for line in stream if re.match(r"\s*[^\s#]", line) and line.strip() not in ("---", "...")]
    state = "is not a dictionary" if lines else "is empty"
    return f"{os.path.relpath(path)} {state}. Write `job:` and, indented below it, settings such as `script: train.py`"


def inventory_error(text: str) -> str:
    """Return why an inventory cannot be read, from ansible-playbook's output about each plugin that it tried.

    Only one plugin is for the file: `auto` if the file names a plugin, otherwise that of its format.
    """
    if message := variables_error(text):
        return message
    attempts = re.findall(r"Failed to parse inventory with '([\w.]+)' plugin: (.*?)\n\n", text, re.DOTALL)
    origin = re.search(r"Origin: (?:<[^\n]*? source )?'?(/[^'\n:>]+)(:\d+)?", text)
    if not attempts or not origin:
        return ""
    name, line = os.path.basename(origin[1]), f", line {origin[2][1:]}," if origin[2] else ""
    formats = ["yaml", "auto"] if name.endswith((".yml", ".yaml", ".json")) else ["ini", "script", "yaml"]
    messages = {plugin.rpartition(".")[2]: " ".join(message.split()) for plugin, message in attempts}
    if "auto" in messages and "no root 'plugin' key" not in messages["auto"]:
        formats = ["auto"]
    message = next((messages[plugin] for plugin in formats if plugin in messages), [*messages.values()][0])
    return f"the inventory {name}{line} cannot be read: {message.removeprefix('Failed to parse inventory: ')}"


def interruption_text(text: str, state: str = "", seconds: float = STARTUP_SECONDS) -> str:
    """Return the message to print after Ctrl-C or SIGTERM.

    text: ansible-playbook's standard error. state: the state that the collection's output callback has written last;
    another callback writes none. seconds: how long ansible-playbook ran.
    """
    if "muster: interrupted\n" in text:  # the callback has explained it
        return ""
    if state:
        return state
    # Ansible handles Ctrl-C itself once it has been imported, and so do its worker processes
    handled = any(mark in text for mark in ("User interrupted execution", "cli_executor", "worker.py"))
    importing = "Traceback" in text or seconds < STARTUP_SECONDS
    return NOTHING_STARTED if importing and not handled else UNKNOWN_STATE


def show_interruption(text: str) -> None:
    """Write a message to standard error or, if its reader has been interrupted, too, to the terminal."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open("/dev/tty" if is_foreground() else os.devnull, os.O_WRONLY), 2)
            os.write(2, text.encode())


def follow(argv: list[str]) -> int:
    """Run a command in this file's directory and return its exit status.

    After Ctrl-C or SIGTERM its standard error, such as the traceback of an interrupted import, is replaced by the state
    in which it leaves the run, and the attempts of all inventory plugins to read an inventory by one sentence.
    """
    interrupted: list[int] = []

    def interrupt(number: int, _frame: Any) -> None:
        interrupted.append(number)
        if number != signal.SIGINT or not is_foreground():  # otherwise the terminal interrupts the command, too
            process.send_signal(number)

    def catch(*numbers: int) -> None:
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:  # the command inherits it, too: nohup, or & in a script
                signal.signal(number, interrupt)

    catch(signal.SIGINT)
    with tempfile.TemporaryDirectory() as directory:
        started, state_path = time.monotonic(), f"{directory}/state"
        environment = {**os.environ, "MUSTER_STATE_FILE": state_path}
        with subprocess.Popen(argv, cwd=HERE, env=environment, stderr=subprocess.PIPE) as process:
            catch(signal.SIGTERM, signal.SIGHUP)
            assert process.stderr is not None
            held = b""
            while True:
                # with a timeout: a program in the background may keep the pipe open
                if select.select([process.stderr], [], [], 0.2)[0]:
                    chunk = os.read(process.stderr.fileno(), 65536)
                    if not chunk:
                        break
                    if interrupted or held or b"Failed to parse inventory" in chunk:
                        held += chunk
                    else:
                        sys.stderr.buffer.write(chunk)
                        sys.stderr.flush()
                elif process.poll() is not None:
                    break
            status, seconds = process.wait(), time.monotonic() - started
        state = ""
        with contextlib.suppress(OSError), open(state_path, encoding="utf-8") as stream:  # another callback writes none
            state = stream.read()
    text = held.decode(errors="replace")
    if interrupted and status:
        show_interruption(interruption_text(text, state, seconds))
    else:
        failure = inventory_error(text) if status else ""
        sys.stderr.write(f"muster: {failure}\n" if failure else text)
    return status if status >= 0 else 128 - status


def main(arguments: list[str]) -> int:
    """Print and run the typed command; return its exit status."""
    command, options = (arguments[0], arguments[1:]) if arguments and arguments[0] else ("help", [])
    command, options = ("help", [command]) if options[:1] in (["-h"], ["--help"]) else (command, options)
    try:
        if command in ("help", "-h", "--help"):
            name = options[0] if options else ""
            role = COMMANDS[name][1] if name in COMMANDS else ""
            print(format_help(name, read_options(role) if role else {}))
            if role:
                print(f"All variables for -e: ansible-doc -t role muster.training.{role}")
            return 0
        format_help(command)  # raises UsageError for an unknown command
        argv = translate(command, options)
        check_files_and_values(argv)
        if command == "shell" and not any(re.fullmatch(r"nodes=[^,]+", argument) for argument in argv):
            raise UsageError("./muster shell NODE needs the name of one node in the inventory")
        if not shutil.which("ansible-playbook"):
            raise UsageError("ansible-playbook was not found. Activate the environment in which Ansible is installed")
        # needed for commands in messages
        os.environ.update(MUSTER_COMMAND=shlex.quote(sys.argv[0]), MUSTER_DIRECTORY=os.getcwd())
        if command == "shell":
            argv = login(argv)
            print("+ " + shlex.join(argv), file=sys.stderr, flush=True)
            os.chdir(HERE)
            os.execvp(argv[0], argv)
        print("+ " + shlex.join(argv), file=sys.stderr, flush=True)
        if command == "launch" and (names := misplaced_options(options, argv)):
            note = f"{', '.join(names)}: passed to the script; options of launch go before its name"
            print(f"note: {note}", file=sys.stderr)
        return follow(argv)
    except UsageError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # follow() handles Ctrl-C itself
        print(NOTHING_STARTED, end="", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
