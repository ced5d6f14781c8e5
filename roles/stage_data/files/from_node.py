"""A source of the role stage_data: a directory on the first node.

As with a bucket, the other nodes get their shares from the source, here the first node, and the rest from each other.
Standard library of Python >= 3.8.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fnmatch
import json
import os
from typing import Any, Iterator

from transfer import Fault, sha256_of
from wanted import OWN, Entry, leads_elsewhere

GONE = (
    "the first node, which has the files, has failed or does not answer. See its message, then run this again: "
    "it resumes where it stopped"
)


class Directory:
    """A directory on the first node or, with a list of names, some of its files."""

    name = "the first node"

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.root = request["path"]

    def is_here(self, me: int) -> bool:
        """Whether the source is on this node."""
        return me == 0

    def names(self) -> Iterator[str]:
        """The names of the wanted files and links, relative to the directory."""
        if self.request["list"]:
            with open(self.request["list"], encoding="utf-8") as stream:
                yield from json.load(stream)
            return
        seen = set()
        # A link to a directory means the directory's contents.
        for place, directories, files in os.walk(self.root, followlinks=True, onerror=complain):
            real = os.path.realpath(place)
            if real in seen:
                directories.clear()
                continue
            seen.add(real)
            directories[:] = sorted(one for one in directories if one != OWN)
            for one in files:
                whole = os.path.join(place, one)
                path = os.path.relpath(whole, self.root)
                if not os.path.isfile(whole) and not os.path.islink(whole):
                    continue  # a socket or a pipe, whose reading would never end
                if any(fnmatch.fnmatch(path, each) for each in self.request["include"]):
                    yield path

    def find(self, stage: Any) -> list[Entry]:
        """The wanted files with their checksums. Raises Fault."""
        if not self.is_here(stage.me):
            raise Fault(GONE)
        try:
            names = sorted(set(self.names()))
        except FileNotFoundError as error:
            raise Fault(f"there is no {error.filename}. Correct stage_data_path, or make it") from None
        wanted = set(names)
        same = os.path.realpath(self.root) == os.path.realpath(stage.root)
        known = Known(os.path.join(stage.own, "index.jsonl" if same else "source.jsonl"))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            entries = list(pool.map(lambda name: self.entry(name, wanted, known), names))
        if not entries:
            raise Fault(f"{self.root} holds no file that is wanted. Correct stage_data_path or stage_data_include")
        wrong = leads_elsewhere(entries)
        if wrong:
            raise Fault(f"{self.root}/{wrong[0]} has a name that is no path of a file here. Rename it, or exclude it")
        return entries

    def entry(self, name: str, wanted: set[str], known: Known) -> Entry:
        """The entry of a file. A link to another wanted file stays a link; any other link means its target."""
        path = os.path.join(self.root, name)
        if os.path.islink(path):
            link = os.readlink(path)
            there = os.path.normpath(os.path.join(os.path.dirname(name), link))
            if there in wanted and not os.path.isabs(link) and not os.path.islink(os.path.join(self.root, there)):
                return Entry(name, name, 0, "", "", link)
        return Entry(name, name, os.stat(path).st_size, "", known.sha256(name, path))

    def is_right(self, _one: Entry, _path: str) -> bool | None:
        """Whether a file without a SHA-256 is right; not needed, since all files have one."""
        return False

    def corrupt(self, one: Entry) -> str:
        """The message for a file that is wrong at its source."""
        return (
            f"{one.path} came with another content than the first node had told. It was not put in place. "
            f"If {self.root} is not written to there, run this again; else look at that node's disk"
        )

    def get(self, stage: Any, one: Entry, start: int, length: int) -> bytes:
        """Get a piece: on the first node from its disk, elsewhere from the first node. Raises Fault."""
        if self.is_here(stage.me):
            with open(os.path.join(self.root, one.path), "rb") as stream:
                stream.seek(start)
                body = stream.read(length)
            if len(body) != length:
                raise Fault(f"{self.root}/{one.path} was changed meanwhile. Run this again")
            return body
        number = stage.number_of(one, start)
        while not stage.failed and not stage.peers.gone[0]:
            got: bytes | None = stage.peers.ask(0, f"/piece/{number}")
            if got is not None and len(got) == length:
                return got
        raise Fault(stage.failed or GONE)


class Known:
    """A file of known checksums, by path, with size and modification time."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.held: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError), open(file, encoding="utf-8") as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # a truncated line
                    path, *rest = json.loads(line)
                    self.held[path] = rest

    def sha256(self, name: str, path: str) -> str:
        """The checksum of a file, computed if it is not known."""
        found = os.stat(path)
        size, changed, tag = self.held.get(name, [-1, -1, ""])
        if (size, changed) == (found.st_size, found.st_mtime_ns) and len(tag) == 64:
            return str(tag)
        tag = sha256_of(path)
        with open(self.file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps([name, found.st_size, found.st_mtime_ns, tag]) + "\n")
        return tag


def complain(error: OSError) -> None:
    """Raise an error for an unreadable directory, which must not count as empty."""
    raise error
