"""A container engine for tests: images are files in a directory, an archive is a tar with a manifest, like Docker's.

ENGINE_NAME: the engine to imitate, docker or podman. ENGINE_STORE: the directory. Its file `calls` records requests.
A file `refuse` in it holds the login (USER PASSWORD) that pulls require; a file `full` makes loads fail for lack of
space; a file `first` holds a path that must exist before an image is loaded.
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


def fail(message: str, code: int = 1) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def read_image(name: str) -> bytes:
    """Return the content of an image, by name or id."""
    image_ids = json.loads((STORE / "names").read_text()) if (STORE / "names").exists() else {}
    path = STORE / f"image-{image_ids.get(name, name)}"
    if not path.exists() and PODMAN:
        fail(f"Error: inspecting object: {name}: image not known", 125)
    if not path.exists():
        fail(f"Error response from daemon: No such image: {name}")
    return path.read_bytes()


def format_inspection(body: bytes) -> str:
    """Return the output of `image inspect --format '{{json .}}'`; podman prints a list, as for the format json."""
    label = body.partition(b"\n")[0].decode() if body.startswith(b"label ") else ""
    labels = {"muster.source": label.removeprefix("label ")} if label else None
    identity = hashlib.sha256(body).hexdigest()
    image = {"Id": identity if PODMAN else f"sha256:{identity}", "Size": len(body), "Config": {"Labels": labels}}
    return json.dumps([image], indent=5) if PODMAN else json.dumps(image)


def store_image(body: bytes, *names: str) -> None:
    """Store an image under these names."""
    identity = hashlib.sha256(body).hexdigest()
    (STORE / f"image-{identity}").write_bytes(body)
    image_ids = json.loads((STORE / "names").read_text()) if (STORE / "names").exists() else {}
    (STORE / "names").write_text(json.dumps({**image_ids, **dict.fromkeys(names, identity)}))


def archive_of(body: bytes) -> bytes:
    """Return the archive that docker save would write."""
    identity, packed = hashlib.sha256(body).hexdigest(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in (("body", body), ("manifest.json", json.dumps([{"Config": f"{identity}.json"}]).encode())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def main(argv: list[str]) -> None:  # noqa: C901
    with (STORE / "calls").open("a") as calls:
        calls.write(" ".join(argv) + "\n")
    login_path = (
        os.environ.get("REGISTRY_AUTH_FILE") if PODMAN else f"{argv[1]}/config.json" if argv[0] == "--config" else ""
    )
    login = Path(login_path) if login_path else None
    verb, *arguments = argv[2:] if argv[0] == "--config" else argv
    if verb == "info":
        print("/var/tmp" if "{{.Store.ImageCopyTmpDir}}" in arguments else STORE)
    elif verb == "image":
        print(format_inspection(read_image(arguments[-1])))
    elif verb == "login":
        assert login, "the login must be in a separate directory"
        login.write_text(f"{arguments[1]} {sys.stdin.read()}")
    elif verb == "pull":
        credentials = login.read_text() if login else ""
        if (STORE / "refuse").exists() and (STORE / "refuse").read_text() != credentials:
            fail(f"Error response from daemon: pull access denied for {arguments[-1]}: authentication required")
        store_image(f"pulled {arguments[-1]}\n".encode() * 4000, arguments[-1])
    elif verb == "load":
        if (STORE / "full").exists():
            fail("write /layer.tar: no space left on device")
        deadline = time.monotonic() + 60
        while (STORE / "first").exists() and not Path((STORE / "first").read_text()).exists():
            if time.monotonic() > deadline:
                fail("the file to wait for never appeared")
            time.sleep(0.05)
        with tarfile.open(arguments[-1]) as archive:
            stream = archive.extractfile("body")
            assert stream
            store_image(stream.read())
    elif verb == "save":
        sys.stdout.buffer.write(archive_of(read_image(arguments[-1])))
    elif verb == "tag":
        store_image(read_image(arguments[0]), arguments[1])
    elif verb == "build":
        options = dict(word.split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
        file = arguments[arguments.index("--file") + 1]
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        label = options.get("--label", "").removeprefix("muster.source=")
        store_image((f"label {label}\n" if label else "").encode() + text.encode(), options["--tag"])


if __name__ == "__main__":
    main(sys.argv[1:])
