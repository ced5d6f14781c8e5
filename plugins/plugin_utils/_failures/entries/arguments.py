# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments and configurations that scripts or launchers reject."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Arguments and configuration"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="windows-line-endings",
        title="A script has Windows line endings",
        example="ValueError: Some specified arguments are not used by the HfArgumentParser: ['\\r']",
        texts=(
            r"not used by the HfArgumentParser: \[[^\n]{0,200}'\\r'",
            r"\$'\\r': command not found",
            r"/(?:usr/)?bin/(?:env|bash|sh|python3?): ?(?:.bash|.python3?)\\r",
            r"bad interpreter: [^\n]{1,80}\^M",
        ),
        cause=(
            "The shell script was saved with Windows line endings: each line ends with an invisible \\r, which "
            "becomes part of the last argument and breaks multi-line commands apart."
        ),
        remedy=(
            "run sed -i 's/\\r$//' SCRIPT.sh (or dos2unix), and configure the editor or git (core.autocrlf=input) to "
            "use Unix line endings; then copy the script again: ansible-playbook site.yml --tags code"
        ),
        source="shufangxun/LLaVA-MoD#16",
    ),
    CatalogueEntry(
        id="arguments-rejected",
        title="The script's or launcher's parser rejects an argument",
        example="train.py: error: unrecognized arguments: --batch-size 16",
        texts=(
            r"\berror: unrecognized arguments: ",
            r"\berror: the following arguments are required: ",
            r"\berror: argument [^\n]{1,120}: (?:invalid |expected |not allowed )",
            r"\berror: ambiguous option: ",
            r"^Error: No such option: ",
            r"^Error: (?:Missing|Invalid value for) ",
            r"FATAL Flags parsing error:",
            r"ERROR: Could not consume arg: ",
            r"ValueError: Unsupported nproc_per_node value: ",
        ),
        cause=(
            "The parser named in the message does not recognize the argument, is missing a required one, or got "
            "a value that is not allowed. Possible causes are a typo, an argument from a different version "
            "(older torchrun versions spell options with _), or a script argument placed before the script's "
            "name (or a launcher argument placed after it)."
        ),
        remedy=(
            "compare the script's arguments (launch_args, or args in a job file) with `python SCRIPT --help`, in the "
            "job's environment; these arguments go to the script, not to the launcher"
        ),
        source="rosinality/ocr-pytorch#1",
        general=True,
    ),
    CatalogueEntry(
        id="trainer-arguments-unknown",
        title="A Hugging Face script does not recognize an argument",
        example="ValueError: Some specified arguments are not used by the HfArgumentParser: ['--neft_alpha', '0']",
        texts=(r"Some specified arguments are not used by the HfArgumentParser: \[",),
        cause=(
            "None of the script's dataclasses defines the listed arguments: they were renamed or removed in this "
            "version, are misspelled, or have no leading --."
        ),
        remedy=(
            "run `python SCRIPT --help` to list the supported arguments; correct launch_args, or install the version "
            "that the command was written for (ansible-playbook site.yml --tags python_env)"
        ),
        source="hiyouga/LlamaFactory#1906",
        general=True,
    ),
    CatalogueEntry(
        id="hydra-override",
        title="Hydra does not accept an override",
        example="Could not override 'trainer.gpus'.",
        texts=(
            r"Could not override '[^'\n]{1,200}'",
            r"Key '[^'\n]{1,100}' is not in struct",
            r"(?:LexerNoViableAltException|OverrideParseException)\b",
            r"MissingMandatoryValue: ",
            r"You must specify '[^'\n]{1,100}', e\.g",
            r"In '[^'\n]{1,200}': Could not (?:find|load) '",
        ),
        cause=(
            "An argument sets a key that the configuration does not have (a typo, or a different version of the "
            "project or of Hydra), a required key has no value, or the quotes around a value were lost."
        ),
        remedy=(
            "correct the key (run `python SCRIPT --cfg job` to list all keys). To add a new key, prefix it with "
            "+, as in +KEY=VALUE; values with special characters need their own quotes, as in 'KEY=\"a=b\"'"
        ),
        source="taokz/BiomedGPT#75",
    ),
)
