# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for the environment of a job, and for the services that the job depends on."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Environment variables and services"
SET_VARIABLES = (
    "muster sets WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and also RANK and LOCAL_RANK for every rank unless "
    "launch_launcher=env, which sets NODE_RANK instead; torchrun also sets LOCAL_WORLD_SIZE and GROUP_RANK (the node's "
    "number)"
)
SET_IT = """-e '{{"launch_environment": {{"{name}": "VALUE"}}}}'"""
READS_VARIABLE = r"environ(?:ment)?\[|environ\.__getitem__|raise KeyError\(key\) from None"
HTTP = (
    "huggingface_hub", "requests", "urllib3", "httpx", "httpcore", "aiohttp", "botocore", "s3fs", "gcsfs", "fsspec",
    "wandb", "comet_ml", "neptune", "mlflow", "clearml", "swanlab", "openai", "modelscope", "google", "azure", "minio",
    "pymongo", "redis", "psycopg2", "grpc", "urllib", "http", "socket", "ssl",
)  # fmt: skip
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="secret-variable-missing",
        title="An environment variable with a secret is not set",
        exceptions=("KeyError",),
        message=r"KeyError: ['\"](?P<name>\w{0,60}(?:KEY|TOKEN|SECRET|PASSWORD)\w{0,20})['\"]",
        source=READS_VARIABLE,
        cause="{where} reads the environment variable {name}, which is not set in the job.",
        remedy=(
            'export it in your shell, and launch with -e \'{{"launch_pass_environment": ["{name}"]}}\' to pass '
            "it on without showing it; the job does not get other variables from your shell"
        ),
    ),
    FrameRule(
        id="tracked-value-too-long",
        title="MLflow rejects a parameter that is too long",
        message=r"(?:Param|Tag|Metric|Parameter)s?(?: value| key| name)? [^\n]{0,2000}(?:had length \d{1,9}, "
        r"which exceeded length limit of|exceeds the maximum length)",
        packages=("mlflow",),
        cause=(
            "{where} logs a parameter that is longer than MLflow allows: {message}. A dictionary in the "
            "configuration (id2label, task_specific_params) is logged as a single value."
        ),
        remedy=(
            "upgrade mlflow, since newer versions allow 6000 characters and truncate longer values; or log the value "
            "as a file (mlflow.log_dict). For transformers' Trainer, set MLFLOW_FLATTEN_PARAMS=True in "
            "launch_environment, or leave mlflow out of report_to"
        ),
    ),
    FrameRule(
        id="launcher-variable-missing",
        title="A variable from another launcher is not set",
        exceptions=("KeyError",),
        message=r"KeyError: ['\"](?P<name>(?:OMPI|PMI|PMIX|MPI|MV2|FLUX|LSB|PBS|AZ|AZUREML|SM|VC|"
        r"HOROVOD)_\w{1,60})['\"]",
        cause=(
            "{where} reads {name}, which another launcher or cluster sets (mpirun sets OMPI_ and PMI_ variables), "
            "but this job was started without it."
        ),
        remedy=(
            "launch with -e launch_launcher=mpirun if the name begins with OMPI_ or PMIX_; otherwise read RANK, "
            "LOCAL_RANK and WORLD_SIZE instead, which muster sets"
        ),
    ),
    FrameRule(
        id="environment-variable-missing",
        title="An environment variable is not set",
        exceptions=("KeyError",),
        message=r"KeyError: ['\"](?P<name>\w{1,80})['\"]",
        source=READS_VARIABLE,
        cause="{where} reads the environment variable {name}, which the launcher does not set: the job gets only the "
        "launcher's variables and those of launch_environment.",
        remedy=f"{SET_VARIABLES}. Read one of these instead, or launch with {SET_IT} to set {{name}}",
    ),
    FrameRule(
        id="environment-variable-none",
        title="An environment variable that should hold a number is not set",
        exceptions=("TypeError", "ValueError"),
        message=r"argument must be a string|NoneType|invalid literal for int|could not convert string to float: ''",
        source=r"(?:int|float)\(\s?(?:os\.)?(?:environ\.get|getenv)\(['\"](?P<name>\w{1,80})",
        cause="{where} reads the environment variable {name} as a number, but it is not set or is not a number.",
        remedy=f"{SET_VARIABLES}. Launch with {SET_IT} to set it, or give the script a default",
    ),
    FrameRule(
        id="service-refused",
        title="A service rejects the job's credentials",
        packages=HTTP,
        message=r"(?P<name>\b40[13]\b[^\n]{0,60}|[Uu]nauthori[sz]ed|[Ff]orbidden|[Pp]ermission[ _][Dd]enied|"
        r"[Ii]nvalid (?:API key|token|credentials)|[Aa]uthentication (?:failed|required))",
        cause=(
            "The server that {package} contacts at {where} rejects the request ({name}): the token or key is missing "
            "on this node, has expired, or has no access to this resource."
        ),
        remedy=(
            "export the token and pass it on with launch_pass_environment: [NAME], since the job gets no "
            "variables from your shell; check that the account has access, and that the name in the request is "
            "right"
        ),
        certain=False,
    ),
    FrameRule(
        id="service-not-found",
        title="A service does not have the resource",
        packages=HTTP,
        message=r"\b404\b|Not Found\b|EntryNotFound|RepositoryNotFound|RevisionNotFound|NoSuchKey|NoSuchBucket|does "
        r"not exist",
        cause="The server that {package} contacts at {where} does not have the resource: {message}",
        remedy=(
            "check the name, revision and file in the request; a private resource is also reported as `not found` "
            "without a token, so pass the token on with launch_pass_environment: [NAME]"
        ),
        certain=False,
    ),
    FrameRule(
        id="service-busy",
        title="A service limits requests or fails",
        packages=HTTP,
        message=r"(?P<name>\b429\b|\b50[0234]\b|Too Many Requests|Bad Gateway|Service Unavailable|Internal Server "
        r"Error|"
        r"SlowDown)",
        cause=(
            "The server that {package} contacts at {where} responds with {name}: it is rate-limiting requests or has "
            "an outage. When all ranks on all nodes send requests at the same time, they reach such limits quickly."
        ),
        remedy=(
            "let one rank download the files before the others start, or stage the files beforehand; then launch "
            "again, offline (HF_HUB_OFFLINE=1, WANDB_MODE=offline in launch_environment) if possible"
        ),
        certain=False,
    ),
    FrameRule(
        id="service-name-unknown",
        title="The name of a server cannot be resolved",
        packages=HTTP,
        message=r"NameResolutionError|Name or service not known|Temporary failure in name resolution|nodename nor "
        r"servname|"
        r"Failed to resolve|getaddrinfo failed|Cannot connect to host [^\n]{1,200}\[Name",
        cause=(
            "{package}, called at {where}, cannot resolve the name of a server: this node has no DNS or no "
            "Internet access, as is common on compute nodes."
        ),
        remedy=(
            "run `getent hosts NAME` on the node to test name resolution. Without Internet access, download "
            "everything before the job, and set HF_HUB_OFFLINE=1, HF_DATASETS_OFFLINE=1 or WANDB_MODE=offline in "
            "launch_environment"
        ),
        certain=False,
    ),
    FrameRule(
        id="service-proxy",
        title="A proxy refuses a request",
        packages=HTTP,
        message=r"ProxyError|Unable to connect to proxy|Tunnel connection failed|\b407\b",
        cause=(
            "{package}, called at {where}, uses a proxy that rejects the request or is not responding: HTTP_PROXY or "
            "HTTPS_PROXY is set on this node."
        ),
        remedy="correct or remove HTTP_PROXY and HTTPS_PROXY on the node or in launch_environment, and list internal "
        "hosts in NO_PROXY",
    ),
    FrameRule(
        id="service-unreachable",
        title="The node cannot reach a server",
        packages=HTTP,
        message=r"(?i:timed? ?out|connection (?:refused|reset|aborted|error)|max retries exceeded|cannot connect|"
        r"could not connect|couldn't connect|unreachable|endpointconnectionerror|incompleteread|remotedisconnected|"
        r"failed to connect|ssl|certificate)",
        cause=(
            "{package}, called at {where}, cannot reach a server: {message}. The node has no route to the server "
            "(compute nodes often have no Internet access), a firewall or proxy is blocking the connection, or "
            "the server is not responding in time."
        ),
        remedy=(
            "run `curl -I URL` on the node to test the connection. Without Internet access, stage models and "
            "data before the job, and set HF_HUB_OFFLINE=1 or WANDB_MODE=offline in launch_environment"
        ),
        certain=False,
    ),
    FrameRule(
        id="optional-dependency",
        title="A package that an option requires is not installed",
        exceptions=("ImportError", "ModuleNotFoundError"),
        message=r"(?i:requires? (?:the )?[`'\"]?[\w-]{2,40}[`'\"]?|(?:please|you need to) (?:pip )?install|pip "
        r"install)",
        raised_by="package",
        cause="{package}, called at {where}, needs a package that is not installed in the job's environment: {message}",
        remedy="add it to the job's requirements and run ansible-playbook site.yml --tags python_env; or turn off the "
        "option that needs it",
    ),
)
