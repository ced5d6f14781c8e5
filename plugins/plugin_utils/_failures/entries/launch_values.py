# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures caused by an address, a port or a variable that was passed to a launcher."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Launch addresses, ports and variables"
TOO_LARGE = r"(?:6553[6-9]|655[4-9]\d|65[6-9]\d\d|6[6-9]\d{3}|[7-9]\d{4}|\d{6,10})"  # a port above 65535
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="rendezvous-endpoint-invalid",
        title="The rendezvous endpoint has no host or port",
        example="ValueError: The hostname of the rendezvous endpoint ':29500' must be a dot-separated list of labels",
        texts=(
            r"The hostname of the rendezvous endpoint '[^'\n]{0,300}' must be",
            r"The port number of the rendezvous endpoint '[^'\n]{0,300}' must be",
            r"The rendezvous endpoint '[^'\n]{0,300}' must be in",
        ),
        cause=(
            "The address in quotes is not in HOST:PORT form, because the variable for the host or the port is empty "
            "or not set on this node."
        ),
        remedy=(
            "set the variable before the command, as in torchrun --rdzv_endpoint=ADDRESS_OF_THE_FIRST_NODE:29500, "
            "with the same value on all nodes; muster sets the endpoint itself, so leave it out of launch_args"
        ),
        source="HarderThenHarder/transformers_tasks#34",
    ),
    CatalogueEntry(
        id="port-invalid",
        title="The port is not a number between 1 and 65535",
        example="OverflowError: bind(): port must be 0-65535.",
        texts=(
            r"\bport must be 0-65535",
            r"Port could not be cast to integer value as '",
            r"Port out of range 0-65535",
            rf"Invoked with: '[^'\n]{{1,255}}', {TOO_LARGE}, ",
            r"invalid literal for int\(\) with base 10: '(?:FREE_?PORT|PORT|MASTER_PORT)'",
        ),
        cause=(
            "MASTER_PORT, or the port in --dist-url, --master_port or init_method, is larger than 65535, or is a "
            "placeholder that was not replaced."
        ),
        remedy=(
            "use a port between 1024 and 65535, such as 29500; muster sets a port itself, so launch with -e "
            "launch_master_port=29600 to use a different one. Check MASTER_PORT, --master_port and "
            "tcp://ADDRESS:PORT in the script"
        ),
        source="pytorch/pytorch#67172",
    ),
    CatalogueEntry(
        id="shell-variable-unset",
        title="The launch script uses a variable that is not set",
        example="run.sh: line 12: MASTER_ADDR: unbound variable",
        texts=(r"line \d{1,6}: [A-Za-z_]\w{0,80}: (?:unbound variable|parameter (?:null or )?not set)",),
        cause=(
            "The shell script stopped at a variable that has no value (set -u), because nothing has set the variable "
            "on this node."
        ),
        remedy=(
            'set the variable for the job with -e \'{"launch_environment": {"NAME": "VALUE"}}\'; or give it a '
            "default in the script with ${NAME:-VALUE}"
        ),
        source="aws-samples/aws-hpc-tutorials#448",
    ),
    CatalogueEntry(
        id="store-mismatch",
        title="Something else is answering on the rendezvous port",
        example="RuntimeError: Stop_waiting response is expected",
        texts=(r"(?i:stop_waiting response is expected)",),
        cause=(
            "The reply on the rendezvous port does not come from the store that this rank expects: the nodes "
            "have different torch versions, another program or job is using the port, or rank 0 ended in the "
            "meantime."
        ),
        remedy=(
            "use a different port with -e launch_master_port=29600; run ansible-playbook preflight.yml to find "
            "nodes with a different torch version, and ansible-playbook logs.yml -e rank=0 to see whether rank 0 "
            "failed first"
        ),
        source="pytorch/pytorch#114357",
        weak=True,
    ),
    CatalogueEntry(
        id="mpi-variables-exclusive",
        title="Open MPI gets two mutually exclusive settings",
        example="Two mutually-exclusive MCA variables were specified.",
        texts=(r"Two mutually-exclusive MCA variables were specified",),
        cause=(
            "A list of interfaces to use and a list of interfaces to exclude are set at the same time "
            "(if_include and if_exclude), one of them in a file or variable, so Open MPI ignores networks that "
            "it needs."
        ),
        remedy=(
            "keep only one of them: remove the line from the file that `Source of value` names "
            "(openmpi-mca-params.conf), or unset OMPI_MCA_btl_tcp_if_exclude before running mpirun"
        ),
        source="horovod/horovod#414",
        refines=("mpi-network",),
    ),
)
