"""Short words for the playbooks beside this file: ./muster help. Each command is printed before it is run."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = {"": "run_id"}  # a lone word is the name of a run
REPORT = {**RUN, "--runs": "runs", "--fetch": "fetch=true"}
IMAGE = {"": "cluster", "--name": "template"}
DOCKER = {"--data-root": "docker_data_root_path", "--delete-old": "docker_data_root_delete_old=true"}
BENCHMARK = {"-n": "nnodes", "--baseline": "baseline"}
WORDS_OF_JOB = """
    -n:nnodes --nnodes:nnodes --nproc-per-node:nproc_per_node --launcher:launch_launcher --image:launch_image
    --run-id:run_id --as-user:launch_user --directory:launch_working_directory --python:launch_python
    --detach:detach=true --replace:replace=true --debug:debug=true
"""
JOB = dict(re.findall(r"(\S+):(\S+)", WORDS_OF_JOB))
SHELL = {"": "nodes", "--image": "launch_image", "--run-id": "run_id", "--as-user": "launch_user"}
JOB_FILE = ("site", "preflight", "launch", "shell", "fit", "sweep", "rehearse")  # accept files: launch job.yml
# For each word: its playbook, the role with its settings, what it does, options and variables ("=": with the value).
WORDS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "site": ("site", "", "make the machines ready, or bring them up to date", {}),
    "docker": ("docker", "docker_engine", "install Docker, or move its data to another disk", DOCKER),
    "ping": ("ping", "", "show which machines answer, and their GPUs", {}),
    "preflight": ("preflight", "preflight", "check for all that would keep a job from running", {"-n": "nnodes"}),
    "launch": ("launch", "launch", "run a job: ./muster launch job.yml, or launch -n 4 train.py --epochs 3", JOB),
    "status": ("status", "launch", "show the state of a run: ./muster status [RUN]", RUN),
    "logs": ("logs", "launch", "show the output of a rank", {**RUN, "--rank": "rank", "--fetch": "fetch=true"}),
    "fetch": ("fetch", "launch", "copy what a job wrote: ./muster fetch [RUN]", {**RUN, "--yes": "confirm=true"}),
    "report": ("report", "launch", "write a report on a run, or compare runs: ./muster report --runs A,B", REPORT),
    "shell": ("shell", "launch", "log in to a node, as a rank: ./muster shell NODE [--run-id RUN]", SHELL),
    "stop": ("stop", "launch", "stop a run: ./muster stop [RUN]", RUN),
    "runs": ("runs", "launch", "list runs, and remove old ones", {"--keep": "keep", "--older-than": "older_than"}),
    "provision": ("provision", "", "create machines: ./muster provision bert -n 4", {"": "cluster", "-n": "nnodes"}),
    "cost": ("cost", "", "show what all clusters of the account cost", {"": "cluster"}),
    "teardown": ("teardown", "", "remove the machines of a cluster: ./muster teardown bert", {"": "cluster"}),
    "image": ("image", "", "create a template from a machine: ./muster image bert --name golden", IMAGE),
    "benchmark": ("benchmark", "benchmark", "measure GPUs and network, and name what is slow", BENCHMARK),
    "fit": ("fit", "fit", "find the largest batch that fits into memory", {"-n": "nnodes"}),
    "sweep": ("sweep", "sweep", "compare variants: ./muster sweep job.yml variants.yml", {"--run-id": "run_id"}),
    "rehearse": ("rehearse", "rehearse", "try a job first: ./muster rehearse job.yml rehearsal.yml", RUN),
    "stage-data": ("stage_data", "stage_data", "copy a bucket to the machines' disks", {"": "stage_data_bucket"}),
    "checkpoints": ("checkpoints", "checkpoints", "copy what runs save to S3, or back", {"": "checkpoints_bucket"}),
    "bucket-move": ("bucket_move", "", "copy a bucket to another region", {"--from": "source", "--to": "target"}),
}
# ansible-playbook's options that take a value.
THEIRS = """
    -e --extra-vars -i --inventory -l --limit -t --tags --skip-tags -f --forks -M --module-path -u --user -T --timeout
    -c --connection --become-user --become-method --become-password-file --connection-password-file --private-key
    --key-file --ssh-common-args --ssh-extra-args --sftp-extra-args --scp-extra-args --task-timeout --vault-id
    --vault-password-file --vault-pass-file --conn-pass-file --become-pass-file --inventory-file --start-at-task
"""
KNOWN = f"""{THEIRS}
    -v --verbose -C --check -D --diff -b --become -K --ask-become-pass -k --ask-pass -J --ask-vault-password
    --ask-vault-pass --step --force-handlers --flush-cache --list-hosts --list-tags --list-tasks --syntax-check
"""


class UsageError(Exception):
    """What is wrong with the typed words, and what is right."""


def like(word: str, known: list[str]) -> str:
    """Return a question that suggests the most similar known word, "" if none is similar."""
    close = difflib.get_close_matches(word, known, 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def help_of(word: str) -> str:
    """Return the help for a word, or for all words."""
    if word not in (*WORDS, ""):
        raise UsageError(f"there is no command {word!r}: ./muster help lists them{like(word, list(WORDS))}")
    if word in WORDS:
        options = [f"  {option or 'WORD':<18}{name}" for option, name in WORDS[word][3].items()]
        return "\n".join([f"./muster {word}: {WORDS[word][2]}", *options, "  -e NAME=VALUE     any variable of a role"])
    lines = [f"  {name:<13}{about}" for name, (_playbook, _role, about, _options) in WORDS.items()]
    return "\n".join(["./muster WORD ...", *lines, "  help WORD    options of WORD"])


def translate(word: str, words: list[str]) -> list[str]:
    """Translate the typed words into those of an ansible-playbook command. Raise UsageError."""
    playbook, _role, _about, options = WORDS[word]
    command, rest = ["ansible-playbook", f"{playbook}.yml"], list(words)
    variables: dict[str, str | list[str]] = {}
    while rest:
        one = rest.pop(0)
        name, joined, value = one.partition("=") if one.startswith("--") else (one, "", "")
        if name in options and name:
            variable, switch, on = options[name].partition("=")
            if not (value if joined else switch or rest):
                raise UsageError(f"{name} needs a value: {name} {variable.upper()}")
            variables[variable] = value if joined else on if switch else rest.pop(0)
        elif one.startswith("-") and one != "--":
            if not any(other.startswith(name) if name[:2] == "--" else other == name[:2] for other in KNOWN.split()):
                close = like(name, [*options, *KNOWN.split()])
                aside = "; options for the script go after its name" if word == "launch" else ""
                raise UsageError(f"{name} is not an option of {word}: ./muster help {word}{aside}{close}")
            command.append(one)
            if one in THEIRS.split() and rest:
                command.append(from_here(rest.pop(0)))
        elif word in JOB_FILE and one.endswith((".yml", ".yaml")):
            command += ["-e", from_here(f"@{one}")]
        elif word == "launch":
            script = rest.pop(0) if one == "--" and rest else one
            variables["launch_script"], variables["launch_args"] = script, rest
            break
        elif "" in options and options[""] not in variables:
            variables[options[""]] = one
        else:
            raise UsageError(f"{one!r} was not expected. Usage: ./muster help {word}")
    for name, given in variables.items():
        plain = isinstance(given, str) and re.fullmatch(r"[\w./:-]+", given, re.ASCII)
        # Ansible would split other values, or YAML would read them as something else
        command += ["-e", f"{name}={given}" if plain else f'{{"{name}": {as_yaml(given)}}}']
    return command


def as_yaml(given: str | list[str]) -> str:
    """Return a text, or a list of texts, as YAML that Ansible takes literally, without templating braces."""
    if isinstance(given, list):
        return f"[{', '.join(as_yaml(one) for one in given)}]"
    return ("!unsafe " if "{" in given else "") + json.dumps(given, ensure_ascii=False)


def from_here(value: str) -> str:
    """Return an option's value, with an absolute path for a file, since commands run in this file's directory."""
    mark, path = ("@", value[1:]) if value.startswith("@") else ("", value)
    return mark + os.path.abspath(path) if os.getcwd() != HERE and os.path.exists(path) else value


def refuse_unread(command: list[str]) -> None:
    """Raise UsageError for a missing file after -e or -i, and for an unreadable text after -e."""
    for option, value in zip(command, command[1:]):
        variables = option in ("-e", "--extra-vars")
        file = value.startswith("@") if variables else option in ("-i", "--inventory") and "," not in value
        path = os.path.expandvars(os.path.expanduser(value[value.startswith("@") :]))
        if file and not os.path.exists(os.path.join(HERE, path)):
            raise UsageError(f"there is no file {os.path.abspath(path)}. Correct its name")
        try:
            import yaml

            yaml.compose(value if variables and value.startswith(("{", "[")) else "")
        except ImportError:
            continue  # Ansible reports it itself
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = f" at character {mark.index + 1}, behind {value[: mark.index][-30:]}" if mark else ""
            why = " ".join(str(getattr(error, "problem", error)).split())
            raise UsageError(f"-e cannot be read: {why}{at}. Needed: JSON, as in -e '{{\"a\": 1}}'") from None


def login(command: list[str]) -> list[str]:
    """Return the words, from a playbook's output, that open a shell where a node's rank would run. Raise UsageError."""
    with tempfile.TemporaryDirectory() as place:
        words = [*command, "-e", f"json={place}/words"]
        done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UsageError(f"cannot open this shell:\n{done.stdout}{done.stderr}")
        with open(f"{place}/words", encoding="utf-8") as stream:
            return [str(word) for word in json.load(stream)]


def main(arguments: list[str]) -> int:
    """Print and run what was typed; return the exit status."""
    word, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] else ("help", [])
    word, rest = ("help", [word]) if rest[:1] in (["-h"], ["--help"]) else (word, rest)
    try:
        if word in ("help", "-h", "--help"):
            print(help_of(rest[0] if rest else ""))
            role = WORDS[rest[0]][1] if rest and rest[0] in WORDS else ""
            if role:
                print(f"All variables for -e: ansible-doc -t role muster.training.{role}")
            return 0
        help_of(word)  # refuses an unknown word
        command = translate(word, rest)
        refuse_unread(command)
        if word == "shell" and not any(re.fullmatch(r"nodes=[^,]+", one) for one in command):
            raise UsageError("./muster shell NODE: the name of one node of the inventory")
        if not shutil.which("ansible-playbook"):
            raise UsageError("ansible-playbook is not found: activate the environment in which Ansible is installed")
        command = login(command) if word == "shell" else command
    except UsageError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 2
    print("+ " + shlex.join(command), flush=True)
    os.chdir(HERE)
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
