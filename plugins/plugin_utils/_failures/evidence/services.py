# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence on services that the job uses: storage, trackers and the Hub."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Services and credentials"
# A line of training progress, as printed once data has been read.
TRAINED = (
    r"(?:\d%\|[^\n]{0,120}\d(?:it/s|s/it)|\b(?i:step|iter|iteration|epoch)\b[^\n]{0,80}\b(?i:loss)\b[^\n\d]{0,6}\d)"
)

RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="tracker-unreached",
        entries=(
            "hub-interrupted",
            "hub-unreachable",
            "hub-server-error",
            "hub-rate-limit",
            "service-refused",
            "service-busy",
            "service-unreachable",
        ),
        shows=(r"/(?:site|dist)-packages/(?P<package>mlflow|comet_ml|neptune|clearml|aim|swanlab|trackio)/",),
        unless=r"/(?:site|dist)-packages/(?:huggingface_hub|datasets)/|hf\.co\b|huggingface\.co\b",
        cause=(
            "The server to which {package} reports metrics closed the connection or did not respond in time. The "
            "training itself was not at fault."
        ),
        remedy=(
            "check that server; log only from rank 0, within try/except, so that logging errors do not end the "
            "job; or write to a directory and upload later (for mlflow, set "
            "MLFLOW_TRACKING_URI=file:///data/mlruns in launch_environment; raise "
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES to allow more attempts)"
        ),
    ),
    EvidenceRule(
        id="dataset-cached-otherwise",
        entries=("setting-refused", "package-refused", "package-failed", "dataset-configuration", "hub-offline"),
        shows=(
            r"Couldn't find cache for (?P<name>\S{1,120}) for config '(?P<wanted>[^'\n]{1,120})'\s{0,4}"
            r"Available configs in the cache: \[(?P<available>[^\]\n]{0,200})\]",
        ),
        cause=(
            "Without access to the Hub, datasets looks for {wanted} in the cache, which contains only "
            "{available}. These names depend on the arguments of load_dataset (data_files, data_dir) and on the "
            "datasets version, and {name} was cached by a call with different arguments or a different version."
        ),
        remedy=(
            "make the same call once with access to the Hub, with the same version of datasets and the same HF_HOME; "
            "or load the downloaded files by path: load_dataset('parquet', data_files='/data/*.parquet')"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="tracker-started-slowly",
        entries=("wandb-process",),
        shows=(r"Timed out waiting for wandb service to start after (?P<seconds>[\d.]{1,8}) seconds",),
        cause=(
            "The process that wandb starts on the node did not respond within {seconds} s: its files are on a "
            "slow network drive, or many ranks started such a process at the same time."
        ),
        remedy=(
            'allow more time with -e \'{{"launch_environment": {{"WANDB__SERVICE_WAIT": "300"}}}}\', and call '
            "wandb.init only on rank 0; upgrade wandb, since newer versions start faster. To run without W&B, set "
            "WANDB_MODE=offline"
        ),
    ),
    EvidenceRule(
        id="credentials-throttled",
        entries=("s3-no-credentials",),
        shows=(r"Unable to locate credentials|NoCredentialsError", TRAINED),
        cause=(
            "The job has read from S3 before, so it has credentials. Each process gets them from the instance "
            "metadata service, which refused or did not reply in time because many workers sent requests at the same "
            "time."
        ),
        remedy=(
            'let them retry with -e \'{{"launch_environment": {{"AWS_METADATA_SERVICE_NUM_ATTEMPTS": "10", '
            '"AWS_METADATA_SERVICE_TIMEOUT": "5"}}}}\'; use fewer workers, or stage the data before the job with '
            "ansible-playbook stage_data.yml"
        ),
    ),
)
