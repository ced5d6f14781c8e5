"""A fake mount-s3, called by mount(8): mount.mount-s3 s3://BUCKET/PREFIX/ DIRECTORY -o OPTIONS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from typing import NoReturn

FLAGS = [
    "force-path-style",
    "transfer-acceleration",
    "dual-stack",
    "requester-pays",
    "no-sign-request",
    "allow-delete",
    "allow-overwrite",
    "incremental-upload",
    "allow-other",
    "allow-root",
    "log-metrics",
    "debug",
    "debug-crt",
    "no-log",
    "auto-unmount",
]
VALUES = [
    "region",
    "endpoint-url",
    "profile",
    "uid",
    "gid",
    "dir-mode",
    "file-mode",
    "cache",
    "cache-xz",
    "metadata-ttl",
    "negative-metadata-ttl",
    "max-cache-size",
    "max-threads",
    "maximum-throughput-gbps",
    "read-part-size",
    "write-part-size",
    "memory-target",
    "expected-bucket-owner",
    "sse",
    "sse-kms-key-id",
    "storage-class",
    "upload-checksums",
    "bind",
    "user-agent-prefix",
    "log-directory",
    "ca-bundle",
]
OF_MOUNT = {"_netdev", "nosuid", "nodev", "nofail", "noauto", "rw", "ro", "dev", "suid", "relatime", "noatime", "user"}
REQUIRED = {"_netdev", "nosuid", "nodev"}
PARENT_WAITS = 30  # seconds


def usage(text: str) -> NoReturn:
    """Exit as mount-s3 does if its arguments are invalid."""
    print(f"error: {text}\n\nFor more information, try '--help'.", file=sys.stderr)
    sys.exit(2)


def failed(*causes: str) -> NoReturn:
    """Exit as mount-s3 does if the bucket cannot be mounted."""
    lines = "".join(f"    {number}: {cause}\n" for number, cause in enumerate(causes))
    print(f"Error: Failed to create S3 client\n\nCaused by:\n{lines}", file=sys.stderr)
    sys.exit(1)


def parse(arguments: list[str]) -> tuple[str, str, dict[str, str]]:
    """Return the source, directory and options, as in /etc/fstab."""
    argv: list[str] = []
    options: list[str] = []
    remaining = iter(arguments)
    for word in remaining:
        if word == "-o":
            options += [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", next(remaining))]
        elif word in ("-v", "-n", "-s", "-f"):
            continue
        else:
            argv.append(word)
    if len(argv) != 2:
        usage(f"unexpected argument '{argv[-1] if argv else ''}' found")
    missing = REQUIRED - set(options)
    if missing:
        usage(f"the option {', '.join(sorted(missing))} is required in fstab")
    settings = {}
    for option in options:
        name, equals, value = option.partition("=")
        if name in OF_MOUNT:
            settings[name] = ""
        elif (name in FLAGS and not equals) or (name in VALUES and value):
            settings[name] = value
        else:
            usage(f"unexpected argument '--{name}' found")
    if "allow-other" in settings and "allow-root" in settings:
        usage("the argument '--allow-other' cannot be used with '--allow-root'")
    return argv[0], argv[1], settings


def main() -> None:
    """Mount, and continue in the background."""
    source, directory, settings = parse(sys.argv[1:])
    result = re.fullmatch(r"s3://([A-Za-z0-9._-]+)/((?:.+/)?)", source)
    if not result:
        usage(f"invalid value '{source}' for '<BUCKET_NAME>': prefix must end with '/'")
    bucket, prefix = result.groups()
    if "no-sign-request" not in settings and not os.environ.get("AWS_ACCESS_KEY_ID"):
        failed("No signing credentials available, see CRT debug logs")
    options = ["ro" if "ro" in settings else "rw", "nosuid", "nodev", "umask=0022", "dbglevel=err"]
    options += ["retries=1", "connect_timeout=5", "readwrite_timeout=8"]
    options += [f"url={settings['endpoint-url']}"] if "endpoint-url" in settings else []
    options += [f"endpoint={settings['region']}"] if "region" in settings else []
    options += ["use_path_request_style"] if "force-path-style" in settings else []
    options += ["allow_other"] if "allow-other" in settings else []
    options += [f"{name}={settings[name]}" for name in ("uid", "gid") if name in settings]
    options += [f"use_cache={settings['cache']}"] if "cache" in settings else []
    bucket_path = f"{bucket}:/{prefix.rstrip('/')}" if prefix else bucket
    command = ["s3fs", bucket_path, directory, "-f", "-o", ",".join(options)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + PARENT_WAITS
        while time.monotonic() < deadline:
            is_listable = (
                subprocess.run(["timeout", "20", "ls", directory], capture_output=True, check=False).returncode == 0
            )
            if process.poll() is None and is_listable and os.path.ismount(directory):
                print(f"bucket {bucket} is mounted at {directory}")
                return
            if process.poll() is not None or not is_listable:
                break
            time.sleep(0.05)
        time.sleep(0.3)
        process.kill()
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    failure = f"initial ListObjectsV2 failed for bucket {bucket} in region {settings.get('region', 'us-east-1')}"
    message = re.search(r"<Message>(.*?)</Message>", output)
    if message:
        failed(failure, "Client error", f"Forbidden: {message[1]}" if "code 403" in output else message[1])
    failed(failure, "Client error", "Unknown CRT error", "CRT error 1047: aws-c-io: AWS_IO_SOCKET_CONNECTION_REFUSED")


if __name__ == "__main__":
    main()
