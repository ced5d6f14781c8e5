"""Have one entry in a user's ~/.netrc; all others stay. Standard input: JSON with machine, login, password, check."""

from __future__ import annotations

import json
import os
import re
import sys


def with_entry(text: str, machine: str, login: str, password: str) -> str:
    """The text of a netrc with this entry, in the place of one for the same machine. Macros and comments stay."""
    ours = f"machine {machine}\n  login {login}\n  password {password}\n"
    lines = text.splitlines(keepends=True)
    start = end = len(lines)
    for number, line in enumerate(lines):
        words = line.split()
        if words[:2] == ["machine", machine]:
            start = number
            following = (
                at for at in range(number + 1, len(lines)) if re.match(r"\s*(machine|default|macdef|#)", lines[at])
            )
            end = next(following, len(lines))
            break
        if words[:1] == ["default"]:  # what stands behind it is never read
            start = end = number
            break
    before = "".join(lines[:start])
    return before + ("" if not before or before.endswith("\n") else "\n") + ours + "".join(lines[end:])


def main() -> None:
    """Write the file if it has to change, or if others can read it."""
    asked = json.load(sys.stdin)
    path = os.path.expanduser("~/.netrc")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        text, mode = "", 0o600
    wanted = with_entry(text, asked["machine"], asked["login"], asked["password"])
    changed = wanted != text or mode != 0o600
    if changed and not asked["check"]:
        number = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(number, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(wanted)
        os.replace(path + ".new", path)
    print("changed" if changed else "same")


if __name__ == "__main__":
    main()
