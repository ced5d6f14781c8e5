"""Each role that acts for a user, and parts of its work: variables, links planted by the user, expected outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

USER = "trainer"
HOME = f"/home/{USER}"
DIRECTORY = "a link to a directory of root's"
FILE = "a link to a file of root's"
PROGRAM = "a program that tells who runs it"
ABROAD = "root must not use"
FOREIGN_DIRECTORY = f"belongs to root, and {USER} cannot write there"
NO_FILE = f"cannot be written by {USER}"


@dataclass(frozen=True)
class Row:
    """A role. One host has links in place of directories, the other in place of the files in them."""

    variables: dict[str, Any]
    directories: dict[str, str] = field(default_factory=dict)  # path: planted link, on the first host
    files: dict[str, str] = field(default_factory=dict)  # the same on the second host
    ends: tuple[str, str] = ("", "")  # the refusal message on each host; empty: the role does its work
    role: str = ""  # if a role has several rows, a name for the part of its work


MOUNT_POINT = {"path": f"{HOME}/drives/one"}
BUCKETS = [{**MOUNT_POINT, "bucket": "data"}]
MOUNT = ({f"{HOME}/drives": DIRECTORY}, {f"{HOME}/drives/one": DIRECTORY})  # directories, files
S3 = {
    "s3_client_access_key_id": "id",
    "s3_client_secret_access_key": "secret",
    "s3_client_endpoint_url": "http://127.0.0.1:9",
    "s3_client_region": "us-east-1",
    "s3_client_requirements": ["colorama"],  # a small one
}

ROWS: dict[str, Row] = {
    "ssh_mesh": Row(
        {"ssh_mesh_user": USER},
        {f"{HOME}/.ssh": DIRECTORY},
        {
            f"{HOME}/.ssh/authorized_keys": FILE,
            f"{HOME}/.ssh/id_ed25519-cert.pub": FILE,
            f"{HOME}/.ssh/rc": PROGRAM,
        },
        (FOREIGN_DIRECTORY, NO_FILE),
    ),
    "cifs_share": Row(
        {
            "cifs_share_user": USER,
            "cifs_share_packages": ["sudo"],
            "cifs_share_mounts": [{**MOUNT_POINT, "share": "//127.0.0.1/share"}],
        },
        *MOUNT,
        (ABROAD, ABROAD),
    ),
    "s3fs": Row({"s3fs_user": USER, "s3fs_packages": ["sudo"], "s3fs_mounts": BUCKETS}, *MOUNT, (ABROAD, ABROAD)),
    "mount_s3": Row({"mount_s3_user": USER, "mount_s3_mounts": BUCKETS}, *MOUNT, (ABROAD, ABROAD)),
    "code": Row(
        {"code_user": USER},  # the source is the test's
        {f"{HOME}/project": DIRECTORY},
        {
            f"{HOME}/project/train.py": FILE,
            f"{HOME}/project/package": DIRECTORY,
            f"{HOME}/project/.git/hooks/post-checkout": PROGRAM,
        },
        (FOREIGN_DIRECTORY, ""),
    ),
    "python_env": Row(
        {
            "python_env_user": USER,
            "python_env_manager": "venv",
            "python_env_directory": f"{HOME}/work/env",
            "python_env_seed": ["wheel"],
        },
        {f"{HOME}/work": DIRECTORY},
        {f"{HOME}/work/env/env/bin/python": PROGRAM, f"{HOME}/work/env/locks": DIRECTORY},
        ("does not belong to root", "Permission denied"),
    ),
    "wandb": Row(
        {"wandb_user": USER, "wandb_api_key": "k" * 40},
        {f"{HOME}/.config": DIRECTORY},
        {f"{HOME}/.config/wandb/settings": FILE},
        ("does not belong to root|cannot be created", NO_FILE),
    ),
    "hugging_face": Row(
        {"hugging_face_user": USER, "hugging_face_token": "hf_" + "k" * 20},
        {f"{HOME}/.cache": DIRECTORY},
        {f"{HOME}/.cache/huggingface/token": FILE},
        ("does not belong to root|cannot be created", NO_FILE),
    ),
    "hugging_face_models": Row(
        {
            "hugging_face_user": USER,
            "hugging_face_token": "",
            "hugging_face_home": f"{HOME}/models",
            "hugging_face_models": ["team/model"],
            "hugging_face_requirements": ["colorama"],  # the hub is never contacted
        },
        {f"{HOME}/models": DIRECTORY},
        {f"{HOME}/models/hub": DIRECTORY},
        (FOREIGN_DIRECTORY, FOREIGN_DIRECTORY),
        role="hugging_face",
    ),
    "s3_client": Row({"s3_client_user": USER, **S3}),
    "stage_data": Row(
        {"stage_data_user": USER, "stage_data_bucket": "data", **S3},
        {f"{HOME}/data": DIRECTORY},
        {f"{HOME}/data/.muster-stage": DIRECTORY},
        (FOREIGN_DIRECTORY, FOREIGN_DIRECTORY),
    ),
    "stage_data_path": Row(  # the source is read only with the user's permissions
        {"stage_data_user": USER, "stage_data_path": "~/source", "stage_data_destination": "~/staged"},
        {f"{HOME}/source": DIRECTORY},
        {f"{HOME}/source/data.bin": FILE},
        ("source contains no matching file", "data.bin: Permission denied"),
        role="stage_data",
    ),
    "stage_data_here": Row(  # copied by rsync, which runs on the host as the user
        {"stage_data_user": USER, "stage_data_destination": "~/here"},  # the source is the test's
        {f"{HOME}/here": DIRECTORY},
        {f"{HOME}/here/train.py": FILE, f"{HOME}/here/package": DIRECTORY, f"{HOME}/here/.muster-partial": DIRECTORY},
        (FOREIGN_DIRECTORY, ""),
        role="stage_data",
    ),
    "checkpoints": Row(
        {
            "checkpoints_user": USER,
            "checkpoints_bucket": "data",
            "checkpoints_state": "restored",
            "checkpoints_run_id": "run",
            **S3,
        },
        {f"{HOME}/.muster": DIRECTORY},
        {f"{HOME}/.muster/restored/run": DIRECTORY},
        ("does not belong to root", FOREIGN_DIRECTORY),
    ),
    "container_image": Row(
        {"container_image_user": USER, "container_image_engine": "podman", "container_image_name": "team/job:1"},
        {},  # ~/.muster, as is done for checkpoints
        {f"{HOME}/.muster/container_image": DIRECTORY},
        ("belongs? to root|cannot be created", "belongs? to root|cannot be created"),
    ),
    "preflight": Row(
        {"preflight_user": USER, "preflight_names": False},
        {},  # ~/.muster, as is done for checkpoints
        {f"{HOME}/.profile": PROGRAM, f"{HOME}/.bashrc": PROGRAM},
        ("runs-directory", ""),
    ),
    "launch": Row(
        {
            "launch_user": USER,
            "launch_script": "/bin/true",
            "launch_no_python": True,
            "launch_launcher": "env",
            "launch_run_id": "trust",
        },
        {},
        {f"{HOME}/.muster/runs/trust": DIRECTORY},
        ("runs-directory", "could not be started"),
    ),
}
