"""A container engine for tests: images are files in a directory, an archive is a tar with a manifest, like Docker's.

ENGINE_NAME: the engine to imitate, docker or podman. ENGINE_STORE: the directory. Requests are recorded in `calls`
there. A file `refuse` there holds the login (USER PASSWORD) that pulls require; a file `full` makes loads fail for lack
of space; a file `first` holds a path that must exist before an image is loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

STORE = Path(os.environ.get("ENGINE_STORE", "/nowhere"))
PODMAN = os.environ.get("ENGINE_NAME") == "podman"


def fail(said: str, code: int = 1) -> None:
    print(said, file=sys.stderr)
    sys.exit(code)


def body_of(name: str) -> bytes:
    """The content of an image, by name or id."""
    names = json.loads((STORE / "names").read_text()) if (STORE / "names").exists() else {}
    path = STORE / f"image-{names.get(name, name)}"
    if not path.exists() and PODMAN:
        fail(f"Error: inspecting object: {name}: image not known", 125)
    if not path.exists():
        fail(f"Error response from daemon: No such image: {name}")
    return path.read_bytes()


def inspected(body: bytes) -> str:
    """The output of `image inspect --format '{{json .}}'`; podman prints a list, as for the word json."""
    label = body.partition(b"\n")[0].decode() if body.startswith(b"label ") else ""
    labels = {"muster.source": label.removeprefix("label ")} if label else None
    identity = hashlib.sha256(body).hexdigest()
    image = {"Id": identity if PODMAN else f"sha256:{identity}", "Size": len(body), "Config": {"Labels": labels}}
    return json.dumps([image], indent=5) if PODMAN else json.dumps(image)


def keep(body: bytes, *names: str) -> None:
    """Store an image under these names."""
    identity = hashlib.sha256(body).hexdigest()
    (STORE / f"image-{identity}").write_bytes(body)
    known = json.loads((STORE / "names").read_text()) if (STORE / "names").exists() else {}
    (STORE / "names").write_text(json.dumps({**known, **dict.fromkeys(names, identity)}))


def archive_of(body: bytes) -> bytes:
    """The archive that docker save would write."""
    identity, packed = hashlib.sha256(body).hexdigest(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in (("body", body), ("manifest.json", json.dumps([{"Config": f"{identity}.json"}]).encode())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def main(words: list[str]) -> None:
    with (STORE / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    kept = (
        os.environ.get("REGISTRY_AUTH_FILE") if PODMAN else f"{words[1]}/config.json" if words[0] == "--config" else ""
    )
    login = Path(kept) if kept else None
    verb, *rest = words[2:] if words[0] == "--config" else words
    if verb == "info":
        print("/var/tmp" if "{{.Store.ImageCopyTmpDir}}" in rest else STORE)
    elif verb == "image":
        print(inspected(body_of(rest[-1])))
    elif verb == "login":
        assert login, "the login is to lie in a directory of its own"
        login.write_text(f"{rest[1]} {sys.stdin.read()}")
    elif verb == "pull":
        known = login.read_text() if login else ""
        if (STORE / "refuse").exists() and (STORE / "refuse").read_text() != known:
            fail(f"Error response from daemon: pull access denied for {rest[-1]}: authentication required")
        keep(f"pulled {rest[-1]}\n".encode() * 4000, rest[-1])
    elif verb == "load":
        if (STORE / "full").exists():
            fail("write /layer.tar: no space left on device")
        deadline = time.monotonic() + 60
        while (STORE / "first").exists() and not Path((STORE / "first").read_text()).exists():
            if time.monotonic() > deadline:
                fail("what this was to wait for never came")
            time.sleep(0.05)
        with tarfile.open(rest[-1]) as archive:
            stream = archive.extractfile("body")
            assert stream
            keep(stream.read())
    elif verb == "save":
        sys.stdout.buffer.write(archive_of(body_of(rest[-1])))
    elif verb == "tag":
        keep(body_of(rest[0]), rest[1])
    elif verb == "build":
        given = dict(word.split("=", 1) for word in rest if word.startswith("--") and "=" in word)
        file = rest[rest.index("--file") + 1]
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        label = given.get("--label", "").removeprefix("muster.source=")
        keep((f"label {label}\n" if label else "").encode() + text.encode(), given["--tag"])


if __name__ == "__main__":
    main(sys.argv[1:])
