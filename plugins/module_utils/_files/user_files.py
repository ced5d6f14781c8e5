# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create and write a user's directories and files with that user's privileges.

A file in a home may be a link to any other file; with the user's rights, it reaches only files that the user can
reach anyway.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import stat
import subprocess
import tempfile

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Data = Dict[str, Any]

MAX_BYTES = 16 << 20
"""Maximum size in bytes of a file to read; lines are only added to small files."""


class UserFileError(Exception):
    """A file or directory cannot be used; the message explains why, with a remedy."""


def get_user(name: str) -> pwd.struct_passwd:
    """Return a user. Raise UserFileError if the user does not exist, or this process cannot switch to that user."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserFileError(
            f"there is no user {name}. Create the user who runs the jobs: sudo adduser {name}"
        ) from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise UserFileError(f"acting as {name} needs root. Set become: true")
    return entry


def run_as_user(user: pwd.struct_passwd, function: Callable[[], Data]) -> Data:
    """Run `function` in a child process with only the user's privileges; return its result.

    Raise the child's UserFileError, or a new one if the child ended without a result.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            if os.geteuid() != user.pw_uid:
                os.initgroups(user.pw_name, user.pw_gid)
                os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
                os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            os.umask(0o022)
            os.chdir("/")
            message: Data = {}
            try:
                message = {"result": function()}
            except UserFileError as error:
                message = {"error": str(error)}
            except OSError as error:
                message = {"error": f"{error.filename}: {error.strerror}"}
            with os.fdopen(writer, "w") as stream:
                json.dump(message, stream)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        raise UserFileError(f"the process that ran as {user.pw_name} ended without returning a result")
    reply: Data = json.loads(text)
    if "error" in reply:
        raise UserFileError(reply["error"])
    result: Data = reply["result"]
    return result


def describe_path(path: str) -> str:
    """Return the path for a message, with its target if it contains a link."""
    real = os.path.realpath(path)
    return path if real == os.path.normpath(path) else f"{path} (a link to {real})"


def ensure_directory(path: str, mode: int | None, closed: bool, check: bool) -> Data:
    """Ensure that a user has a usable directory; return {"changed"}, and {"missing"} if the user cannot create it.

    Args:
        mode: permissions of the directory if the user owns it; None: the user can read, write and enter it.
        closed: only the owner can write to it.

    Raise UserFileError if the path is not a directory, or the user cannot use it.
    """
    name = pwd.getpwuid(os.geteuid()).pw_name
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise UserFileError(f"{path} is a link to a missing directory. Remove it: sudo rm {path}") from None
        if check:
            return {"changed": True}
        try:
            os.makedirs(path)
        except PermissionError:
            return {"changed": True, "missing": True}
        except FileExistsError:  # created in the meantime by another node that shares the file system
            return ensure_directory(path, mode, closed, check)
        os.chmod(path, 0o755 if mode is None else mode)
        return {"changed": True}
    except PermissionError:
        raise UserFileError(
            f"{describe_path(path)} cannot be accessed by {name}. Give {name} permission to enter its parent "
            "directories (chmod o+x)"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise UserFileError(f"{describe_path(path)} is not a directory. Remove it: sudo rm {path}")
    current = stat.S_IMODE(status.st_mode)
    desired = (current | 0o700 if mode is None else mode) & ~(0o022 if closed else 0)
    if closed and mode is None and not current & 0o022:
        desired = current
    if status.st_uid == os.geteuid():
        if desired != current and not check:
            os.chmod(path, desired)
        return {"changed": desired != current}
    if not os.access(path, os.W_OK | os.X_OK):
        real = os.path.realpath(path)
        # never suggest running chown on the target of a user's link
        remedy = f"give it to {name}: sudo chown {name} {path}" if real == path else f"remove the link to {real}"
        raise UserFileError(
            f"{describe_path(path)} belongs to {user_name(status.st_uid)}, and {name} cannot write there. "
            f"Choose another directory, or {remedy}"
        )
    return {"changed": False}


def user_name(uid: int) -> str:
    """Return a user's name, or the uid if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read(path: str) -> str | None:
    """Return the text of a file, or None if it does not exist. Refuse a pipe or device instead of waiting for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserFileError(f"{path} is not a regular file. Remove it: sudo rm {path}")
        return stream.read(MAX_BYTES).decode("utf-8", "surrogateescape")


def set_line(text: str, line: str, mark: str) -> str:
    """Return the text with a line that replaces the line ending with the mark, or is appended.

    Without a mark, nothing is replaced, and a line that ends with the desired one counts as present: options before a
    public key, such as from= and command=, restrict it, and sshd uses the first line that contains a key.
    """
    lines = text.splitlines()
    if not mark and any(
        current == line or (current.endswith(f" {line}") and not current.lstrip().startswith("#")) for current in lines
    ):
        return text
    indices = [number for number, current in enumerate(lines) if mark and current.endswith(mark)]
    if indices:
        lines[indices[-1]] = line
    else:
        lines.append(line)
    return "".join(f"{current}\n" for current in lines)


def ensure_file(  # noqa: PLR0913
    path: str, mode: int, check: bool, content: str | None, line: str, mark: str, validate: list[str] | None = None
) -> Data:
    """Ensure a file's content, or a line in it; return {"changed", "before", "after"}.

    Follows a link, with this process's rights, and replaces its target atomically.

    Args:
        validate: a command that checks the new file before it replaces the old one; `%s` is its path.
    """
    try:
        real = os.path.realpath(path)
        before = read(real)
        status = None if before is None else os.stat(real)
        after = set_line(before or "", line, mark) if content is None else content
        changed = status is None or before != after or stat.S_IMODE(status.st_mode) != mode
        if os.geteuid() == 0 and status is not None and status.st_uid != 0:
            changed = True  # a root-owned file must stay root's; any other may have been changed by its user
        if changed and not check:
            replace(real, after, mode, validate or [])
    except PermissionError as error:
        name = pwd.getpwuid(os.geteuid()).pw_name
        raise UserFileError(
            f"{describe_path(path)} cannot be written by {name} ({error.filename}: {error.strerror}). Remove it, "
            f"or give {name} ownership of its directory"
        ) from None
    return {"changed": changed, "before": before or "", "after": after}


def replace(path: str, text: str, mode: int, validate: list[str]) -> None:
    """Write a file atomically: readers never see it incomplete or with different permissions.

    A file that is itself a mount, like /etc/hosts in a container, cannot be replaced, so it is written in place.
    """
    descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".muster-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(text.encode("utf-8", "surrogateescape"))
        if validate:
            validate_file(path, [name if word == "%s" else word for word in validate])
        try:
            os.replace(name, path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            with open(path, "wb") as stream:
                os.fchmod(stream.fileno(), mode)
                stream.write(text.encode("utf-8", "surrogateescape"))
            os.unlink(name)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def validate_file(path: str, command: list[str]) -> None:
    """Raise UserFileError if a command rejects a new file."""
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError as error:
        raise UserFileError(f"{path} was not changed: cannot run {command[0]}: {error.strerror}") from None
    if completed.returncode:
        output = completed.stdout.decode("utf-8", "replace").strip()
        raise UserFileError(f"{path} was not changed: `{' '.join(command)}` rejects the new content: {output}")
