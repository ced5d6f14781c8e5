# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables that each playbook and role reads, in addition to the roles' documented variables.

tests/unit/playbooks/test_declared_variables.py compares these tables with the templates of the playbooks and roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class PlaybookVariables(NamedTuple):
    """The variables that a playbook itself reads, and the roles run by the playbook or by a playbook that it starts."""

    names: frozenset[str]
    roles: tuple[str, ...]


def make_entry(names: str, *roles: str) -> PlaybookVariables:
    """Return a playbook's entry. names: separated by spaces."""
    return PlaybookVariables(frozenset(names.split()), roles)


RUN_ROLES = ("launch", "code", "python_env")
# Read by plugins rather than by templates: host variables of choose_nodes, which may be given for all hosts on the
# command line.
PLUGIN_VARIABLES = frozenset({"node_address", "node_slots", "node_rank", "node_price_per_hour"})
# variables that identify the cluster and its account
ACCESS = "cluster region provision_cluster provision_provider provision_region"
PROVISION = f"""
    {ACCESS} launch_group machine_types max_usd_per_hour nnodes provision_disk_gb provision_drive_gb provision_efa
    provision_key_name provision_machine_types provision_market provision_max_usd_per_hour provision_network_id
    provision_nnodes provision_on_shortage provision_own_network provision_price_per_hour provision_public_ip
    provision_ssh_from provision_ssh_public_key provision_subnet_id provision_template provision_wait_minutes
    provision_zones
"""
PLAYBOOKS = {
    "benchmark": make_entry("job nnodes nodes", "benchmark", *RUN_ROLES),
    "bucket_move": make_entry(
        "bucket_move_price_per_1000_requests bucket_move_price_per_gb bucket_move_workers endpoint_url region replace "
        "source target"
    ),
    "check": make_entry("check_script check_skip code_source job launch_group launch_launcher launch_script"),
    "checkpoints": make_entry("", "checkpoints", "python_env", "s3_client", "stage_data"),
    "cost": make_entry(f"{ACCESS} idle_watch_ttl jmespath"),
    "diff": make_entry("launch_group launch_run_id launch_runs_directory lines other_run run_id"),
    "docker": make_entry("site_group", "docker_data_root", "docker_engine"),
    "env": make_entry("site_group", "python_env"),
    "fetch": make_entry("run_id", *RUN_ROLES),
    "fit": make_entry("", "fit", *RUN_ROLES),
    "forgive": make_entry("add launch_group node reason"),
    "image": make_entry(
        "cluster force image image_more launch_runs_directory node provision_cluster provision_network_id template"
    ),
    "init": make_entry("", "init"),
    "join": make_entry("node run_id", *RUN_ROLES),
    "keep": make_entry(f"{PROVISION} keep_interval launch_run_id run_id", "idle_watch"),  # keep starts provision.yml
    "keys": make_entry("key launch_group"),
    "launch": make_entry("job nnodes nodes", *RUN_ROLES),
    "logs": make_entry("attempt fetch rank run_id", *RUN_ROLES),
    "page": make_entry("", *RUN_ROLES),
    "ping": make_entry("launch_group"),
    "preflight": make_entry("job nnodes nodes", "preflight", *RUN_ROLES),
    "profile": make_entry("run_id", *RUN_ROLES),
    "provision": make_entry(PROVISION, "idle_watch"),
    "rehearse": make_entry("", "rehearse", *RUN_ROLES),
    "report": make_entry(
        "bundle fetch job launch_group launch_node_directory launch_run_id launch_runs_directory launch_user "
        "report_directory run_id runs"
    ),
    "runs": make_entry("", *RUN_ROLES),
    "save": make_entry("run_id", *RUN_ROLES),
    "shell": make_entry("nodes", *RUN_ROLES),
    "site": make_entry("job site_group"),  # its roles and their switches: see the module check_site
    "stacks": make_entry("run_id", *RUN_ROLES),
    "stage_data": make_entry("", "python_env", "s3_client", "stage_data"),
    "status": make_entry("jmespath mounts preflight_mounts run_id", *RUN_ROLES),
    "stop": make_entry("run_id", *RUN_ROLES),
    "sweep": make_entry("", "sweep", "fit", *RUN_ROLES),
    "teardown": make_entry(
        f"{ACCESS} confirm force launch_runs_directory provision_network_id teardown teardown_drive teardown_template"
    ),
}
LAUNCH_NAMES = "code code_directory code_source gpus jmespath job more_args nnodes nproc_per_node"
SEQUENCE_NAMES = "launch_group launch_run_id launch_runs_directory run_id"
S3_CLIENT_NAMES = "s3_client_directory s3_client_endpoint_url s3_client_region"
ROLES = {
    name: frozenset(names.split())
    for name, names in {
        "benchmark": "baseline launch_group launch_runs_directory launch_user run_id",
        "checkpoints": f"{S3_CLIENT_NAMES} launch_node_directory launch_user run_id",
        "cifs_share": "launch_user",
        "code": "job launch_user python_env_requirements python_env_requirements_files",
        "container_image": "job launch_container_engine launch_image launch_user",
        "firewall": "ssh_mesh_port",
        "fit": SEQUENCE_NAMES,
        "hugging_face": "s3_client_directory",
        "idle_watch": "job launch_user",
        "init": "directory hostfile hosts machines source",
        "launch": f"""
            {LAUNCH_NAMES} allow_differences attempt confirm debug debug_port debug_rank detach fetch fitted grep
            hugging_face_datasets hugging_face_home hugging_face_models hugging_face_offline json keep like node_address
            older_than page_port preflight_mounts preflight_skip preflight_thresholds profile_ranks profile_steps
            pytorch_index_url rank replace run_id save_stop wandb_entity wandb_project
        """,
        "mount_s3": "launch_user",
        "nvidia_driver": "pytorch_cuda",
        "open_mpi": "launch_user preflight_skip",
        "preflight": f"""
            {LAUNCH_NAMES} launch_accelerate_config launch_args launch_code launch_container_engine
            launch_container_mounts launch_container_options launch_deepspeed_launcher launch_environment launch_gpus
            launch_group launch_image launch_import_test launch_launcher launch_lifeline_port launch_master_port
            launch_module launch_nnodes launch_no_python launch_node_directory launch_nproc_per_node
            launch_pass_environment launch_python launch_rdzv_backend launch_script launch_user launch_working_directory
        """,
        "python_env": "code_directory code_repository code_source job pytorch_index_url remove",
        "pytorch": """
            flash_attention_build flash_attention_enabled flash_attention_version python_env_index_url
            python_env_manager python_env_python
        """,
        "rehearse": f"{SEQUENCE_NAMES} job launch_nnodes nnodes nodes",
        "s3fs": "launch_user",
        "stage_data": S3_CLIENT_NAMES,
        "sweep": f"""
            {SEQUENCE_NAMES} fit_args fit_margin fit_max fit_multiple fit_probe_timeout fit_start job launch_scheduler
            launch_slurm_choose
        """,
    }.items()
}


def used_roles(playbooks: Iterable[Path]) -> set[str]:
    """Return the roles that these playbooks from this collection run."""
    return {role for playbook in playbooks for role in PLAYBOOKS[playbook.stem].roles}


def read_variables(playbooks: Iterable[Path]) -> set[str]:
    """Return the variables that these playbooks and their roles read, except for the roles' own variables."""
    playbooks = list(playbooks)
    names = {name for playbook in playbooks for name in PLAYBOOKS[playbook.stem].names}
    return names.union(PLUGIN_VARIABLES, *(ROLES.get(role, ()) for role in used_roles(playbooks)))
