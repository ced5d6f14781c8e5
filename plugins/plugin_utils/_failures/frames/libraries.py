# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for well-known messages from libraries: data sets, checkpoints, trackers, hubs and configurations."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Datasets, checkpoints and library services"
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="sampler-and-shuffle",
        title="A DataLoader gets both a sampler and shuffle",
        message=r"sampler option is mutually exclusive with shuffle|expected unspecified "
        r"(?:shuffle|sampler|batch_sampler) option",
        cause="{where} passes shuffle or a sampler to a DataLoader that does not accept it: {message}",
        remedy=(
            "with DistributedSampler, use DataLoader(shuffle=False, sampler=sampler) and "
            "DistributedSampler(shuffle=True); with an IterableDataset, use neither, and split and shuffle "
            "inside the dataset"
        ),
    ),
    FrameRule(
        id="dataset-without-length",
        title="A streamed dataset has no length",
        message=r"(?<!'NoneType')(?<!'int')(?<!'float')(?<!'bool') has no len\(\)|does not implement __len__|"
        r"has no attribute '__len__'",
        cause="{where} needs the length of a dataset that has none: it is streamed (IterableDataset).",
        remedy=(
            "set a number of steps instead of epochs: use max_steps=N for the Trainer, limit_train_batches=N in "
            "Lightning, or steps_per_epoch in your own loop"
        ),
        certain=False,
    ),
    FrameRule(
        id="shards-too-few",
        title="A dataset has fewer files than workers",
        message=r"fewer shards than workers|No samples found in dataset; perhaps you have|not enough shards|number of "
        r"shards[^\n]{0,60}"
        r"(?:less|smaller|fewer) than|shards? (?:count|number)[^\n]{0,40}divisible",
        cause=(
            "{where}: the dataset has fewer files (shards) than there are DataLoader workers on all ranks, so "
            "some workers get no samples."
        ),
        remedy=(
            "use fewer workers (num_workers times the number of ranks must not exceed the number of shards), write "
            "smaller shards, or use resampled=True with a fixed epoch (webdataset: with_epoch(N))"
        ),
    ),
    FrameRule(
        id="shards-not-enough",
        title="A dataset cannot be split among all ranks and workers",
        exceptions=("IndexError", "ZeroDivisionError", "ValueError", "AssertionError"),
        packages=("megatron", "webdataset", "wids", "streaming", "litdata", "datasets", "torchdata"),
        source=r"(?i:shard|slice|partition|split)\w{0,40}(?:\(|\[|\s{0,2}(?:[<>]=?|[=!]=|//|%))",
        message=r"out of (?:bounds|range)|division|modulo|by zero|empty",
        raised_by="package",
        cause=(
            "{package} could not split the dataset among the ranks and their DataLoader workers ({inner}): a part of "
            "the data has fewer samples or files than there are workers on all ranks."
        ),
        remedy=(
            "use fewer workers (num_workers), make sure that each dataset in a blend has at least as many samples as "
            "ranks times workers, or upgrade {package}"
        ),
        certain=False,
    ),
    FrameRule(
        id="data-files-missing",
        title="A dataset has no files",
        exceptions=("DataFilesNotFoundError", "EmptyDatasetError", "FileNotFoundError"),
        message=r"No (?:\(supported\) )?data files? (?:found )?(?:in|at)|doesn't contain any data files|Couldn't find "
        r"any data file at|"
        r"Unable to find '",
        cause=(
            "{where}: {message}. The directory is empty or missing on this node, its files have other extensions, or "
            "the name was meant to refer to the Hub."
        ),
        remedy=(
            "run `ls` on the path on that node; specify the format and the files: load_dataset('json', "
            "data_files='/path/*.jsonl'); copy the data to all nodes: ansible-playbook stage_data.yml"
        ),
    ),
    FrameRule(
        id="dataset-configuration",
        title="A dataset has several configurations",
        message=r"Config name is missing|BuilderConfig '[^'\n]{1,80}' not found|Please pick one among the available "
        r"configs",
        cause="{where}: {message}",
        remedy="pass one of the names that the message lists as the second argument: load_dataset(NAME, CONFIGURATION)",
    ),
    FrameRule(
        id="json-types-differ",
        title="Lines in a JSON dataset have different types",
        message=r"JSON parse error: (?P<what>[^\n]{1,200})|Error parsing JSON|Expected (?:object|array) or value",
        packages=("pyarrow", "datasets", "pandas"),
        cause="{where}: a file in the dataset is not a JSON file whose lines all have the same types: {message}",
        remedy=(
            "make each line one object with the same types in each field: look at the line that the message names "
            "(sed -n NUMBERp FILE), and write null instead of mixing types; or read the file with pandas and convert "
            "the columns to strings first"
        ),
    ),
    FrameRule(
        id="column-missing",
        title="A data set lacks a column",
        exceptions=("KeyError", "ValueError"),
        message=r"(?:Column \[?['\"]?(?P<name>[\w -]{1,60})['\"]?\]? (?:not in|doesn't exist|does not exist)|Column "
        r"name \[?['\"]?\w{1,60}"
        r"['\"]?\]? not in the dataset|not in index|Current columns in the dataset)[^\n]{0,300}",
        operation=True,
        cause="{where} reads a column that the dataset does not have: {message}",
        remedy=(
            "print dataset.column_names; rename the column (dataset.rename_column) or set the option for it "
            "(dataset_text_field, --text_column, columns in dataset_info.json)"
        ),
    ),
    FrameRule(
        id="sample-key-missing",
        title="A sample or batch lacks an entry",
        exceptions=("KeyError",),
        message=r"KeyError: ['\"](?P<name>text|messages|prompt|chosen|rejected|input_ids|labels?|image|images|"
        r"pixel_values|"
        r"attention_mask|input|output|instruction|content|conversations|audio|caption|target|loss|logits)['\"]",
        operation=True,
        cause=(
            "{where} reads the entry '{name}', which the sample, batch or output does not have: the data has "
            "different column names, or the Trainer removed a column that the model does not accept."
        ),
        remedy=(
            "print the keys before that line (sample.keys()); rename the column, set the option for its name, or set "
            "remove_unused_columns=False"
        ),
        certain=False,
    ),
    FrameRule(
        id="hdf5-filter-missing",
        title="The compression plugin for an HDF5 file is missing",
        packages=("h5py",),
        message=r"Can't (?:synchronously )?(?:read|write) data \((?:can't open directory|required filter|filter)|"
        r"can't dlopen|unable to (?:load|find) (?:the )?filter",
        cause=(
            "{where}: the HDF5 file is compressed with a filter (Blosc, Zstd, LZ4, Bitshuffle) that is not included "
            "in h5py: {message}."
        ),
        remedy=(
            "add hdf5plugin to the job's requirements (ansible-playbook site.yml --tags python_env) and add `import "
            "hdf5plugin` to the file that defines the dataset, so that each worker loads it"
        ),
    ),
    FrameRule(
        id="hdf5-shared",
        title="An HDF5 file is used by several processes",
        packages=("h5py",),
        message=r"Can't (?:synchronously )?read data|bad object header|addr overflow|Can't (?:synchronously )?open "
        r"object|[Uu]nable to (?:synchronously )?open object|wrong B-tree|bad symbol table|inflate\(\) failed|"
        r"bad local heap",
        cause=(
            "{where}: h5py reads garbage: a file that was opened in the main process is used by several "
            "DataLoader workers, or another process is still writing to it."
        ),
        remedy=(
            "open the file in each worker when it is first used (in __getitem__: if self.file is None: self.file "
            "= h5py.File(path, 'r')); try num_workers=0; run `h5ls FILE` to see whether the file itself is intact"
        ),
        certain=False,
    ),
    FrameRule(
        id="database-shared",
        title="A SQLite connection is used by several processes",
        message=r"database disk image is malformed|Recursive use of cursors|"
        r"file is (?:encrypted or is )?not a database|SQLite objects created in a thread can only be used|"
        r"Cannot operate on a closed database",
        cause=(
            "{where}: {message}. Usually the SQLite file was opened in the main process, and the DataLoader workers "
            "share that connection after the fork; otherwise the file is damaged, or another process is still "
            "writing to it."
        ),
        remedy=(
            "open the file in each worker when it is first used (in __getitem__: if self.connection is None: "
            "self.connection = sqlite3.connect(path)); if __init__ needs it too, close it there; run `sqlite3 FILE "
            "'PRAGMA integrity_check'` to see whether the file itself is intact"
        ),
        certain=False,
    ),
    FrameRule(
        id="database-not-writable",
        title="A SQLite file cannot be opened by all ranks",
        message=r"attempt to write a readonly database|unable to open database file|"
        r"OperationalError: (?:disk I/O error|locking protocol)",
        cause=(
            "{where}: {message}. Even for reading, SQLite may write a journal (WAL) next to the file: this fails if "
            "the directory is not writable for this user, and on network drives if several ranks open the file at "
            "the same time."
        ),
        remedy=(
            "build the file once before the job, and give each node a copy on its own disk (ansible-playbook "
            "stage_data.yml); run `ls -ld` on its directory on that node. In your own code, open the file read-only: "
            "sqlite3.connect('file:FILE?mode=ro&immutable=1', uri=True). If the file belongs to {package}, upgrade "
            "the package"
        ),
        certain=False,
    ),
    FrameRule(
        id="lmdb-environment",
        title="An LMDB dataset cannot be opened or read",
        packages=("lmdb",),
        message=r"LockError|mdb_txn_begin|already open in this "
        r"process|MDB_READERS_FULL|MDB_BAD_RSLOT|MDB_MAP_FULL|MDB_INVALID|No such "
        r"file|MDB_CORRUPTED|"
        r"Cannot allocate memory",
        cause=(
            "{where}: {message}. Each worker must open the LMDB environment itself, read-only, and the "
            "environment must be complete on this node."
        ),
        remedy=(
            "call lmdb.open(path, readonly=True, lock=False, readahead=False, max_readers=2048) when a worker "
            "first reads, not in __init__; for MDB_MAP_FULL, write the environment with a larger map_size; run "
            "`ls -l` on data.mdb on that node"
        ),
        certain=False,
    ),
    FrameRule(
        id="image-too-large",
        title="An image has too many pixels for Pillow",
        message=r"DecompressionBombError|exceeds limit of \d{1,12} pixels",
        cause="{where}: an image in the data is larger than Pillow's limit.",
        remedy=(
            "set PIL.Image.MAX_IMAGE_PIXELS = None at the top of the dataset's module, or scale such images down "
            "beforehand"
        ),
    ),
    FrameRule(
        id="chat-template-missing",
        title="The tokenizer has no chat template",
        message=r"chat_template is not set|does not have a chat template|no template argument was passed",
        cause=(
            "{where} formats messages, but this tokenizer has no chat template: it belongs to a base model, or its "
            "chat_template.jinja was not copied."
        ),
        remedy=(
            "use the tokenizer of the instruct model, set tokenizer.chat_template, or pass the framework's option "
            "(--template, clone_chat_template in trl)"
        ),
    ),
    FrameRule(
        id="saved-with-newer-numpy",
        title="A file was saved with numpy 2",
        exceptions=("ModuleNotFoundError",),
        message=r"No module named 'numpy\._core",
        cause="{where} reads a file that was saved with numpy 2, but numpy 1 is installed here.",
        remedy=(
            "put numpy>=2 into the job's requirements, then run ansible-playbook site.yml --tags python_env; or save "
            "the file again with numpy 1"
        ),
        over=("module-missing",),
    ),
    FrameRule(
        id="collate-function-unbound",
        title="A method is passed instead of a function",
        exceptions=("TypeError",),
        message=r"(?P<name>[\w.]{1,100})\(\) missing 1 required positional argument: "
        r"'(?P<argument>batch|data|samples|examples|"
        r"features|x)'",
        source=r"self\.collate_fn\(|collate_fn\(data\)",
        cause=(
            "The DataLoader calls {name} with only the batch: collate_fn is a method that was accessed through "
            "its class instead of an object, so the batch became `self`."
        ),
        remedy="pass the object's method (collate_fn=dataset.collate_fn), or make it a @staticmethod",
    ),
    FrameRule(
        id="class-not-unpickled",
        title="A checkpoint requires the code with which it was saved",
        exceptions=("AttributeError", "ModuleNotFoundError"),
        message=r"Can't get attribute '(?P<name>\w{1,80})' on|No module named",
        source=r"torch\.load\(|pickle\.loads?\(|_load\(|unpickler\.load\(|pickle_module\.load",
        cause=(
            "{where}: the checkpoint contains whole objects, not only tensors, and their class or module no longer "
            "exists under the name it had when they were saved: {message}"
        ),
        remedy=(
            "load the checkpoint with the code and packages that saved it, and from now on save model.state_dict() "
            "instead of the model"
        ),
        over=("module-missing",),
    ),
    FrameRule(
        id="distributed-checkpoint-sizes",
        title="A distributed checkpoint's tensors differ in size from the model's",
        message=r"Size mismatch between saved (?P<saved>torch\.Size\(\[[\d, ]{0,60}\]\)) and current: "
        r"(?P<current>torch\.Size\(\[[\d, ]"
        r"{0,60}\]\)) for (?P<name>[\w.]{1,200})",
        cause=(
            "{name} has the size {saved} in the checkpoint and {current} in this model: the model has a different "
            "configuration (vocabulary, hidden size, layers) from the one that was saved."
        ),
        remedy=(
            "resume with the configuration of the run that saved the checkpoint; if the vocabulary changed, load "
            "the old model first and then call resize_token_embeddings"
        ),
    ),
    FrameRule(
        id="write-cut-off",
        title="A file could not be written completely",
        message=r"basic_ios::clear: iostream error|basic_filebuf::(?:xsputn|_M_convert_to_external) error|file write "
        r"failed",
        cause="{where}: a file could not be written: the disk or the quota is full, or the network drive failed.",
        remedy=(
            "run `df -h` and `quota -s` for the directory on that node; remove old checkpoints, keep fewer of them "
            "(save_total_limit), or save to another drive"
        ),
    ),
    FrameRule(
        id="wandb-config-changed",
        title="Weights & Biases does not allow a value to be changed",
        message=r"Attempted to change value of key \"?(?P<name>[\w./-]{1,80})",
        cause=(
            "{where} sets {name} in the run's configuration to a different value than before: several ranks log "
            "to one run, or a run is resumed with a different configuration."
        ),
        remedy=(
            "call wandb.init and wandb.config on rank 0 only; or use wandb.config.update(values, allow_val_change=True)"
        ),
    ),
    FrameRule(
        id="tracker-parameter-changed",
        title="MLflow does not allow a parameter to be changed",
        message=r"Changing param values is not allowed|RESOURCE_ALREADY_EXISTS|INVALID_PARAMETER_VALUE",
        packages=("mlflow",),
        cause=(
            "{where}: MLflow rejects the request ({message}): several ranks log to the same run or create the "
            "same experiment at the same time, or a run is resumed with different parameters."
        ),
        remedy=(
            "log on rank 0 only (report_to=[] on the others); to resume with different parameters, unset "
            "MLFLOW_RUN_ID to start a new run"
        ),
        certain=False,
    ),
    FrameRule(
        id="hub-token-missing",
        title="There is no token for the Hugging Face Hub",
        message=r"[Tt]oken is required|no token found|LocalTokenNotFoundError|You must (?:login|be "
        r"authenticated)|don't have the rights "
        r"to create|403 Forbidden: (?:You don't have|Authorization error)",
        packages=("huggingface_hub", "transformers", "datasets", "diffusers"),
        cause=(
            "{where} writes to the Hub or reads something private, but the job has no token with that permission: "
            "{message}"
        ),
        remedy=(
            "create a token with write permission, export HF_TOKEN in your shell, and launch with -e "
            '\'{{"launch_pass_environment": ["HF_TOKEN"]}}\' to pass it on; if you have no such token, set '
            "push_to_hub=False"
        ),
    ),
    FrameRule(
        id="tensorboard-missing",
        title="TensorBoard is not installed",
        message=r"TensorBoard logging requires TensorBoard|No module named 'tensorboard'|requires tensorboard to be "
        r"installed|"
        r"TensorBoardCallback requires",
        cause="{where} logs to TensorBoard, which is not installed in the job's environment.",
        remedy=(
            "add tensorboard to the job's requirements, then run ansible-playbook site.yml --tags python_env; or set "
            'report_to="none" (logger=False in Lightning)'
        ),
        over=("module-missing",),
    ),
    FrameRule(
        id="registry-name-unknown",
        title="A name in a configuration is not registered",
        message=r"KeyError: ['\"](?P<name>[\w.]{1,80}) is not in the (?P<registry>[\w:. ]{1,60}) registry",
        cause=(
            "The configuration names {name}, which no imported module registers as {registry} ({where}): the "
            "package or project file that defines it was not imported or is a different version, or the name is "
            "misspelled."
        ),
        remedy=(
            "set custom_imports = dict(imports=['MODULE'], allow_failed_imports=False) in the configuration, or "
            "install the package that defines it (mmdet, mmseg, mmpretrain) in the version that the project "
            "requires"
        ),
    ),
    FrameRule(
        id="extension-of-mmcv",
        title="mmcv was installed without its operations",
        message=r"No module named 'mmcv\._ext'|MMCV==(?P<have>[\w.]{1,20}) is used but incompatible\. Please install "
        r"(?P<want>[^\n]{1,60})",
        cause=(
            "{where}: {message}. mmcv is installed without its compiled operations (mmcv-lite), or in a version "
            "that is not compatible with mmdet, mmseg or another package."
        ),
        remedy=(
            "install the mmcv build for this torch and CUDA version, in the version that the message names: run `pip "
            "install -U openmim && mim install 'mmcv>=2.0.0,<2.2.0'` in the job's environment on all nodes"
        ),
        over=("module-missing",),
    ),
    FrameRule(
        id="cuda-versions-of-packages",
        title="Two packages are built for different CUDA versions",
        message=r"compiled with different CUDA versions|have different CUDA versions|has CUDA (?:V|v)ersion[:=]? "
        r"?[\d.]{2,6} and \w{4,20} has",
        cause="{where}: {message}",
        remedy=(
            "install all of them for one CUDA version: run ansible-playbook site.yml --tags python_env,pytorch "
            "to reinstall torch, torchvision and torchaudio together; install torch_scatter and others from "
            "https://data.pyg.org/whl/torch-VERSION+cuVERSION.html"
        ),
    ),
    FrameRule(
        id="module-hidden-by-file",
        title="A file in the project shadows a package",
        exceptions=("AttributeError", "ImportError"),
        message=r"partially initialized module '(?P<module>[\w.]{1,80})'[^\n]{0,200}(?:circular "
        r"import\)|\((?P<file>/[^\n)]{1,200})\))",
        cause=(
            "{where} imports {module}, which is still being imported: a file or directory in the project has the "
            "same name as a package ({module}.py), or two modules in the project import each other."
        ),
        remedy="rename the project's file if `python -c 'import {module}; print({module}.__file__)'` shows it instead "
        "of the package (and remove its __pycache__); otherwise move one import into the function that needs it",
        over=("import-name-missing", "torch-name-missing"),
    ),
    FrameRule(
        id="protobuf-mismatch",
        title="protobuf is not compatible with a package's generated code",
        message=r"Descriptors cannot (?:not )?be created directly|cannot import name 'runtime_version' from "
        r"'google\.protobuf'|"
        r"Detected incompatible Protobuf Gencode/Runtime|'FieldDescriptor' object has no attribute",
        cause=(
            "{where}: a package's generated code was built for a different version of protobuf than the one that is "
            "installed."
        ),
        remedy=(
            'put protobuf<=3.20.3 (for "Descriptors cannot be created") or protobuf>=5.26 (for "runtime_version") '
            "into the job's requirements, then run ansible-playbook site.yml --tags python_env; or upgrade the "
            "package in the traceback (onnx, tensorboard, wandb)"
        ),
        over=("import-name-missing",),
    ),
    FrameRule(
        id="metric-lock",
        title="A metric from the evaluate library is waiting for files from other ranks",
        message=r"Couldn't acquire lock on|Expected to find locked file",
        packages=("evaluate", "datasets"),
        cause=(
            "{where}: the ranks combine their parts of a metric through locked files in one cache, which does not "
            "work across nodes or on many network drives: {message}"
        ),
        remedy=(
            "use evaluate.load(NAME) without num_process and process_id, and gather the predictions yourself: "
            "accelerator.gather_for_metrics(...), then metric.compute on rank 0 only"
        ),
    ),
    FrameRule(
        id="table-broken",
        title="A line in a CSV file has a different number of fields",
        exceptions=("ParserError",),
        message=r"Error tokenizing data\. C error: (?P<what>[^\n]{1,120})",
        cause=(
            "{where}: a CSV file has a line that does not match the others ({what}): a field contains a "
            "separator or a quote, the separator is not a comma, or the file is cut off."
        ),
        remedy=(
            "look at that line on the node (sed -n NUMBERp FILE); use pd.read_csv(path, sep=..., quotechar=..., "
            "on_bad_lines='warn'); if the file is an incomplete copy, copy it again"
        ),
    ),
)
