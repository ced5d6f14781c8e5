# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: user_files
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Create directories and files of a user, with that user's rights
description:
  - As root, for another user, it does everything with that user's rights, so that a link or directory swapped in by the
    user gives no access beyond the user's own. Needs neither the package C(acl) nor a world-readable temporary file.
  - For root's files, such as those below C(/etc), use O(user=root).
  - A directory that the user cannot create, such as C(/data), is created by root and given to the user, provided that
    only root can replace its parent directories. An existing directory keeps its owner.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: full}
  diff_mode: {support: full, details: For O(files). Set C(diff) to false if the content is secret.}
  platform: {platforms: posix}
options:
  user:
    description: Owner of the entries that do not set their own.
    type: str
    required: true
  directories:
    description: Directories, created in order, before the files.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: An absolute path, or one that begins with C(~/), the user's home directory.
        type: str
        required: true
      mode:
        description:
          - Permissions, such as V("0700"). Those of a directory that belongs to another user are not changed.
          - If omitted, the user can read, write and enter the directory.
        type: str
      closed:
        description: Ensure that only the owner can write to it.
        type: bool
        default: false
      only_root:
        description:
          - For root's directories, fail if another user could change it, or replace it or a parent directory. No part
            of the path may be a link, except for root's.
        type: bool
        default: false
      user:
        description: Owner. Defaults to O(user).
        type: str
        default: ""
  files:
    description: Files to write, each with O(files[].content), or with one O(files[].line) to add.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - An absolute path, or one that begins with C(~/), the user's home directory. The parent directory must exist.
        type: str
        required: true
      mode:
        description: Permissions, in octal.
        type: str
        default: "0600"
      content:
        description: Complete content.
        type: str
      base64:
        description: Treat O(files[].content) as Base64, which is required if it may not be UTF-8.
        type: bool
        default: false
      line:
        description: A line, without its line ending. All other lines are kept.
        type: str
        default: ""
      mark:
        description:
          - Suffix of O(files[].line); an existing line with the same suffix is replaced. If empty, defaults to the
            whole line.
        type: str
        default: ""
      user:
        description: Owner. Defaults to O(user).
        type: str
        default: ""
      validate:
        description: Command that validates the new file before it replaces the old one. V(%s) is its path.
        type: list
        elements: str
        default: []
"""

EXAMPLES = r"""
- name: Ensure that a user accepts a key
  muster.training.user_files:
    user: trainer
    directories:
      - path: ~/.ssh
        mode: "0700"
    files:
      - path: ~/.ssh/authorized_keys
        line: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEpJ our-cluster
        mark: our-cluster
  become: true

- name: Ensure that a user has a directory outside the home
  muster.training.user_files:
    user: trainer
    directories:
      - path: /data/sets
  become: true

- name: Ensure that sshd refuses passwords
  muster.training.user_files:
    user: root
    files:
      - path: /etc/ssh/sshd_config.d/10-no-passwords.conf
        content: |
          PasswordAuthentication no
        mode: "0600"
        validate: [/usr/sbin/sshd, -t, -f, "%s"]
  become: true
"""

RETURN = r"""
home:
  description: Home directory of the user.
  returned: success
  type: str
  sample: /home/trainer
changed_files:
  description: Paths of the files that were written, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/home/trainer/.ssh/authorized_keys]
"""

import base64
import functools
import hashlib
import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._files import root_path, user_files
from ansible_collections.muster.training.plugins.module_utils._files.user_files import UserFileError, get_user

ARGUMENT_SPEC: dict[str, Any] = {
    "user": {"type": "str", "required": True},
    "directories": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "str", "required": True},
            "mode": {"type": "str"},
            "closed": {"type": "bool", "default": False},
            "only_root": {"type": "bool", "default": False},
            "user": {"type": "str", "default": ""},
        },
    },
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "str", "required": True},
            "mode": {"type": "str", "default": "0600"},
            "content": {"type": "str"},
            "base64": {"type": "bool", "default": False},
            "line": {"type": "str", "default": ""},
            "mark": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "validate": {"type": "list", "elements": "str", "default": []},
        },
    },
}


def absolute_path(path: str, home: str) -> str:
    """Return the absolute path for a path that may begin with ~/. Raise UserFileError if it is invalid."""
    path = os.path.join(home, path[2:]) if path.startswith("~/") else home if path == "~" else path
    if not path.startswith("/"):
        raise UserFileError(f"path is {path!r}. Use an absolute path, or one that begins with ~/")
    return os.path.normpath(path)


def parse_mode(mode: str | None) -> int | None:
    """Parse permissions as a number. Raise UserFileError if they are invalid."""
    try:
        return None if mode is None else int(mode, 8)
    except ValueError:
        raise UserFileError(f"mode is {mode!r}. Use octal digits in quotes, such as '0700'") from None


def ensure_directory(entry: pwd.struct_passwd, options: dict[str, Any], check: bool) -> bool:
    """Ensure that a directory exists; return whether this changed, or would change, anything."""
    path, mode = absolute_path(options["path"], entry.pw_dir), parse_mode(options["mode"])
    if options["only_root"] and entry.pw_uid == root_path.ROOT:
        require_root_only(path)
    result = user_files.run_as_user(
        entry, functools.partial(user_files.ensure_directory, path, mode, options["closed"], check)
    )
    if result.get("missing"):
        if os.geteuid() != 0:
            raise UserFileError(
                f"{path} cannot be created by {entry.pw_name}. Create it: sudo install -d -o {entry.pw_name} {path}"
            )
        try:
            root_path.make_directory(path, entry.pw_uid, entry.pw_gid, 0o755 if mode is None else mode)
        except FileExistsError:
            raise UserFileError(f"{path} was created by another process at the same moment. Run this again") from None
        except root_path.PathError as error:
            raise UserFileError(
                f"{path} was not created: {error}. Choose a path that only root or only {entry.pw_name} can write to, "
                "or create the directory yourself"
            ) from None
    return bool(result["changed"])


def require_root_only(path: str) -> None:
    """Raise UserFileError if anyone other than root could change or replace a directory."""
    reason = root_path.root_only_error(path)
    if reason:
        raise UserFileError(
            f"{reason}, and root would trust the contents of {path}. Choose a path on which every directory can "
            "be changed only by root, such as one below /var/lib or /usr/local/lib/muster"
        )


def describe_content(text: str) -> str:
    """Return content for display: its size if it is binary, otherwise its text, with a mark for each invalid byte."""
    content = text.encode("utf-8", "surrogateescape")
    if b"\0" in content:
        return f"{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}\n"
    return content.decode("utf-8", "replace")


def apply_state(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Bring everything to the desired state; in check mode, report what would change."""
    changed, diff, written = False, [], []
    for options in params["directories"]:
        changed |= ensure_directory(get_user(options["user"] or params["user"]), options, check)
    for options in params["files"]:
        entry = get_user(options["user"] or params["user"])
        path, mode = absolute_path(options["path"], entry.pw_dir), parse_mode(options["mode"])
        text, line, mark = options["content"], options["line"], options["mark"]
        if text is None and (not line or not line.endswith(mark)):
            raise UserFileError(f"{path}: line is {line!r}. Set content, or a line that ends with mark")
        if text is not None and options["base64"]:
            text = base64.b64decode(text).decode("utf-8", "surrogateescape")
        write = functools.partial(user_files.ensure_file, path, mode or 0, check, text, line, mark, options["validate"])
        result = user_files.run_as_user(entry, write)
        if result["changed"]:
            written.append(path)
        if result["before"] != result["after"]:
            texts = {key: describe_content(result[key]) for key in ("before", "after")}
            diff.append({"before_header": path, "after_header": path, **texts})
    home = get_user(params["user"]).pw_dir
    return {"changed": changed or bool(written), "diff": diff, "home": home, "changed_files": written}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = apply_state(module.params, module.check_mode)
    except UserFileError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error}. Check whether the disk is full or read-only")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
