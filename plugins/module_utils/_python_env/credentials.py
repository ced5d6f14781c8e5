# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Usernames and passwords for package indexes: passed in a private file, never as an argument."""

from __future__ import annotations

import base64
import contextlib
import netrc
import os
import re
import urllib.parse
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.text import read
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator

    Data = Dict[str, Any]

# git+https:// URLs keep theirs: git handles them itself and does not read netrc.
CREDENTIALS = re.compile(r"(?<!\+)\b(https?://)([^/\s@]+)@([^/\s:@]+)")


def extract_credentials(request: Data) -> tuple[Data, dict[str, tuple[str, str]]]:
    """Return the request without credentials in its URLs, and (user, password) by host."""
    logins: dict[str, tuple[str, str]] = {}

    def strip_login(match: re.Match[str]) -> str:
        user, _colon, password = match[2].partition(":")
        login = urllib.parse.unquote(user), urllib.parse.unquote(password)
        if logins.setdefault(match[3].lower(), login) != login:
            raise StepError(
                f"the URLs contain different credentials for {match[3]}. Use the same user and password for this host "
                "in all URLs of indexes and packages, or put them into ~/.netrc on this node instead"
            )
        if any(re.search(r"[\s\\\"]", word) for word in login):
            raise StepError(
                f"the credentials for {match[3]} contain a space, a quotation mark or a backslash, which a "
                "netrc file cannot hold. Create other credentials"
            )
        return match[1] + match[3]

    names = ["index_url", "torch_index_url", "extra_index_urls", "find_links", "requirements"]
    names += ["conda_installer_url", "conda_channels"]
    stripped = {}
    for name in names:
        value = request[name]
        stripped[name] = (
            [CREDENTIALS.sub(strip_login, url) for url in value]
            if isinstance(value, list)
            else CREDENTIALS.sub(strip_login, value)
        )
    return {**request, **stripped}, logins


@contextlib.contextmanager
def netrc_login(paths: EnvironmentPaths, logins: dict[str, tuple[str, str]]) -> Iterator[None]:
    """Provide these credentials, and those in ~/.netrc, to pip, conda and this program through a netrc file."""
    if not logins:
        yield
        return
    before = os.environ.get("NETRC", os.path.expanduser("~/.netrc"))
    path = os.path.join(paths.root, "netrc")
    login_lines = [
        f"login {user}" + (f" password {password}" if password else "") for user, password in logins.values()
    ]
    lines = [read(before), *(f"machine {host} {login}" for host, login in zip(logins, login_lines)), ""]
    os.makedirs(paths.root, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left behind by a process that was killed
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    os.environ["NETRC"] = path
    try:
        yield
    finally:
        os.environ["NETRC"] = before
        os.unlink(path)


def open_url(url: str) -> Any:
    """Open a URL with the server's credentials, if any; return the response."""
    request = urllib.request.Request(url)
    try:
        login = netrc.netrc(os.environ.get("NETRC", os.path.expanduser("~/.netrc"))).hosts.get(
            urllib.parse.urlsplit(url).hostname or ""
        )
    except (OSError, netrc.NetrcParseError):
        login = None
    if login:
        token = base64.b64encode(f"{login[0]}:{login[2] or ''}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return urllib.request.build_opener().open(request, timeout=60)
