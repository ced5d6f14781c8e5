# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of the Hugging Face Hub."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Hugging Face Hub"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="hub-xet",
        title="The Hub's faster downloads (Xet) fail",
        example="RuntimeError: Data processing error: CAS service error : ReqwestMiddleware Error: Request failed "
        "after 5 retries",
        texts=(
            r"Data processing error: (?:CAS|Cas|MerkleDB|File)\b[^\n]{0,200}[Ee]rror",
            r"xethub\.hf\.co\b[^\n]{0,300}(?:timed out|Max retries exceeded|Connection refused|proxy auth)",
        ),
        cause=(
            "Large files on the Hub come from separate servers (cas-server.xethub.hf.co and others). This node "
            "cannot reach them, for example because a firewall or proxy only allows huggingface.co, or they are not "
            "responding."
        ),
        remedy=(
            'disable Xet downloads with -e \'{"launch_environment": {"HF_HUB_DISABLE_XET": "1"}}\'; or download the '
            "files once before the job and run it offline (HF_HUB_OFFLINE); behind a firewall, allow *.xethub.hf.co "
            "and *.hf.co"
        ),
        source="meta-pytorch/torchforge#109",
        recoverable=True,
    ),
    CatalogueEntry(
        id="certificate-unknown",
        title="A server's certificate is not trusted",
        example="[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in "
        "certificate chain",
        texts=(r"CERTIFICATE_VERIFY_FAILED\b",),
        cause=(
            "A network proxy replaces the servers' certificates with its own, which Python does not trust; or "
            "the node's clock is wrong or its CA certificates are out of date."
        ),
        remedy=(
            "install the proxy's certificate on the nodes (update-ca-certificates) and use the system's certificates "
            'with -e \'{"launch_environment": {"REQUESTS_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt", '
            '"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}}\'; or copy the files beforehand '
            "(ansible-playbook stage_data.yml)"
        ),
        source="Stability-AI/stable-virtual-camera#23",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-offline",
        title="A file is not in the cache, and downloads are disabled",
        example="LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing "
        "traffic has been disabled",
        texts=(
            r"OfflineModeIsEnabled\b",
            r"outgoing traffic has been disabled",
            r"offline mode is enabled\. To disable it",
        ),
        cause=(
            "HF_HUB_OFFLINE (or local_files_only) disables downloads, and this node's cache does not have the "
            "file: it was downloaded on another node, by another user, to a different HF_HOME, or at a different "
            "revision."
        ),
        remedy=(
            "download the file once without HF_HUB_OFFLINE, or copy the cache to all nodes (ansible-playbook "
            "stage_data.yml, or a shared drive) and set HF_HOME in launch_environment to its path"
        ),
        source="huggingface/huggingface_hub#4487",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-gated",
        title="The Hugging Face model is gated",
        example="Cannot access gated repo for url https://huggingface.co/...",
        texts=(r"GatedRepoError\b", r"Cannot access gated repo", r"trying to access a gated repo"),
        cause=(
            "Only accounts that have accepted the authors' terms can download the model, and the job has no "
            "token for such an account."
        ),
        remedy=(
            "request access on the model's page; then run HF_TOKEN=... ansible-playbook site.yml --tags "
            'hugging_face, or pass the token to this job only with -e \'{"launch_pass_environment": '
            '["HF_TOKEN"]}\''
        ),
        source="ariG23498/gemma3-object-detection#5",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-rate-limit",
        title="The Hugging Face Hub received too many requests",
        example="429 Client Error: Too Many Requests for url: https://huggingface.co/...",
        texts=(
            r"429 Client Error[^\n]{0,200}(?:huggingface|hf)\.co",
            r"429 Too Many Requests[^\n]{0,200}(?:huggingface|hf)\.co",
        ),
        cause="All ranks of all nodes contacted the Hub at the same time.",
        remedy=(
            "download the files once before the job, copy the cache to all nodes (ansible-playbook stage_data.yml), "
            'and launch with -e \'{"launch_environment": {"HF_HUB_OFFLINE": "1"}}\'; or use a token, which allows more '
            "requests"
        ),
        source="allenai/OLMo#550",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-unauthorised",
        title="The Hugging Face Hub cannot find the model, or rejects the user",
        example="RepositoryNotFoundError: 401 Client Error. Repository Not Found for url: https://huggingface.co/...",
        texts=(
            r"RepositoryNotFoundError\b",
            r"40[134] Client Error[^\n]{0,120}huggingface\.co",
            r"Repository Not Found for url",
        ),
        cause=(
            "The name is misspelled or is a directory that is missing on this node, or the model is private and "
            "the token is missing, has expired or does not grant access."
        ),
        remedy=(
            "compare the name with the model's page; run HF_TOKEN=... ansible-playbook site.yml --tags "
            "hugging_face; for a model on disk, give an absolute path that exists on all nodes"
        ),
        source="huggingface/huggingface_hub#1007",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-unreachable",
        title="The node cannot reach the Hugging Face Hub",
        example="We couldn't connect to 'https://huggingface.co' to load this file",
        texts=(
            r"Failed to resolve 'huggingface\.co'",
            r"host='huggingface\.co', port=443\): Max retries exceeded",
            r"We couldn't connect to 'https://huggingface\.co'",
            r"LocalEntryNotFoundError\b",
            r"Couldn't reach [^\n]{1,160} on the Hub",
            r"OfflineModeIsEnabled\b",
        ),
        cause="The node has no Internet access or no DNS, and the file is not in its cache.",
        remedy=(
            "copy the model to all nodes (ansible-playbook stage_data.yml, or a shared drive) and set both HF_HOME "
            "and HF_HUB_OFFLINE=1 in launch_environment; behind a proxy, set HTTPS_PROXY"
        ),
        source="yuh-zha/AlignScore#17",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-interrupted",
        title="A download was interrupted",
        example="ConnectionError: (ProtocolError('Connection aborted.', RemoteDisconnected('Remote end closed "
        "connection without response')))",
        texts=(
            r"RemoteDisconnected\('Remote end closed connection",
            r"ProtocolError\('Connection (?:aborted|broken)",
            r"ChunkedEncodingError\b",
            r"HTTPSConnectionPool\(host='(?:[\w.-]{1,80}\.)?(?:huggingface|hf)\.co'[^\n]{0,60}Read timed out",
            r"http\.client\.RemoteDisconnected: ",
            r"IncompleteRead\(",
            r"ClientPayloadError: ",
            r"ConnectionError: Server Disconnected",
        ),
        cause=(
            "The server, usually the Hugging Face Hub, closed the connection while data was being downloaded or "
            "streamed, or did not respond in time."
        ),
        remedy=(
            "download the model and data before the job and run it offline (set HF_HUB_OFFLINE in "
            "launch_environment); for a streamed dataset, allow more retries "
            "(datasets.config.STREAMING_READ_MAX_RETRIES), or use fewer workers at the same time"
        ),
        source="huggingface/datasets#6172",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-path-missing",
        title="A model's directory does not exist on this node",
        example="HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/data/model'",
        texts=(
            r"HFValidationError: Repo id must ",
            r"is not a local folder and is not a valid model identifier",
        ),
        cause=(
            "No directory with this name exists on this node, or the directory lacks the file, so the name was "
            "interpreted as a model on the Hub. The Hub does not have the model either, or does not provide it "
            "without a token."
        ),
        remedy=(
            "copy the model to all nodes with ansible-playbook stage_data.yml -e stage_data_path=DIRECTORY -e "
            "stage_data_destination=DIRECTORY, or put it on a shared drive; give an absolute path, without ~. For a "
            "private model, set HF_TOKEN"
        ),
        source="huggingface/trl#3604",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hub-server-error",
        title="The Hugging Face Hub has an outage",
        example="HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/...",
        texts=(r"HTTPError(?:\x1b\[39m)?: 50\d Server Error: [^\n]{0,200}(?:huggingface|hf)\.co",),
        cause="The server returned an error (500 to 504). The job is not at fault: the Hub, or a proxy in "
        "front of it, is overloaded or down.",
        remedy=(
            "check https://status.huggingface.co and launch again later; download the files once, copy the cache "
            "to all nodes (ansible-playbook stage_data.yml) and set HF_HUB_OFFLINE to 1, so that runs do not "
            "depend on the Hub. Upload after training instead of during it"
        ),
        source="huggingface/huggingface_hub#1516",
        recoverable=True,
    ),
    CatalogueEntry(
        id="model-not-loaded",
        title="A model or tokenizer is not on the node and cannot be downloaded",
        example="OSError: Can't load tokenizer for 'EleutherAI/pythia-160m'.",
        texts=(
            r"Can't load (?:the )?(?:tokenizer|config\w{0,10}|model|image processor|feature extractor|processor) "
            r"(?:for|of) '",
            r"does not appear to have a file named (?:config|preprocessor_config|tokenizer_config)\.json",
        ),
        cause=(
            "The name is the path of a directory that does not exist on this node or lacks files, such as a path "
            "on another machine; or the node has no Internet access, and the model is not in its cache "
            "(HF_HOME); or the model is private or gated; or the working directory contains a directory of the "
            "same name."
        ),
        remedy=(
            "run `ls` on the path on each node, and copy the model to all of them with ansible-playbook "
            "stage_data.yml -e stage_data_path=DIRECTORY -e stage_data_destination=DIRECTORY. Without Internet "
            "access, fill HF_HOME beforehand, and set HF_HUB_OFFLINE=1 in launch_environment; for private "
            "models, run HF_TOKEN=... ansible-playbook site.yml --tags hugging_face"
        ),
        source="OpenEuroLLM/oellm-eval#58",
        weak=True,
        general=True,
        recoverable=True,
    ),
)
