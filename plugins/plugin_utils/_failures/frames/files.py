# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for files that are missing, or whose contents a library cannot read."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Files"
OPEN_FOR_WRITING = (
    r"open\([^\n]{0,200}['\"][wxa]b?\+?['\"]|torch\.save\(|\.savefig\(|\.to_(?:csv|json|parquet|pickle)\(|np\.savez?\w{0,12}\(|"
    r"(?:json|yaml|pickle)\.dump\(|FileHandler\(|SummaryWriter\(|os\.mkdir\(|\.mkdir\(|copyfile|shutil\.copy\w{0,4}\("
)
REMOVES = (
    r"\brmtree\(|os\.(?:unlink|remove|rmdir|rename|replace|renames|removedirs)\(|\.unlink\(|\.rename\(|\.replace\(\w|"
    r"shutil\.move\("
)
UNREADABLE = (
    r"(?i:cannot identify|truncat|corrupt|invalid|not an? |magic|header|signature|unexpected end|\bEOF\b|"
    r"end.of.(?:file|data|stream)|"
    r"decod|pars(?:e|ing)|malformed|broken|\bempty\b|could not (?:open|read|load)|can(?:not|'t) (?:open|read|load)|"
    r"(?:failed|unable) to (?:\w{1,20} )?(?:open|read|load)|error (?:opening|reading|loading)|no such file|unknown "
    r"format|"
    r"unsupported|not recogni[sz]ed|bad )"
)
LOOK_AT_IT = (
    "inspect the file on that node with `ls -l FILE`, `file FILE` and `head -c 200 FILE`; if it is only a few "
    "hundred bytes of text, it is a Git LFS pointer (run git lfs pull) or an error page. Copy or download the "
    "file again, on all nodes"
)
# Libraries, and the kinds of files that they read.
KINDS: dict[str, tuple[str, ...]] = {
    "image": ("PIL", "cv2", "torchvision", "imageio", "skimage", "tifffile", "turbojpeg", "kornia", "imagecodecs"),
    "video or audio file": (
        "av", "decord", "torchcodec", "eva", "moviepy", "soundfile", "librosa", "torchaudio", "audioread", "pydub"
    ),
    "table": ("pyarrow", "pandas", "polars", "fastparquet", "openpyxl", "datasets"),
    "file of arrays": ("h5py", "zarr", "numpy", "scipy", "nibabel", "netCDF4", "xarray", "pydicom", "lmdb"),
    "archive": ("webdataset", "tarfile", "zipfile", "wids", "streaming"),
    "model file": ("safetensors", "gguf", "onnx"),
    "tokenizer file": ("tokenizers", "sentencepiece", "tiktoken"),
    "configuration": ("yaml", "toml", "tomli", "ruamel"),
}  # fmt: skip
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="program-missing",
        title="The script starts a program that the node does not have",
        exceptions=("FileNotFoundError",),
        message=r"No such file or directory: (?P<name>'[^'\n]{1,200}')",
        source=r"subprocess\.|Popen\(|_execute_child|os\.exec|check_output\(|check_call\(",
        cause="{where} starts the program {name}, which is not installed on this node or is not on the job's PATH.",
        remedy=(
            "install it on all nodes (for system packages, add it to base_packages_extra in the inventory, then "
            "run ansible-playbook site.yml --tags base_packages), or give its full path; if the job runs in a "
            "container, the image must contain the program"
        ),
        over=("file-missing",),
    ),
    FrameRule(
        id="program-failed",
        title="A program that the script started failed",
        exceptions=("CalledProcessError",),
        message=r"Command (?P<name>.{1,200}?)'? (?:returned non-zero exit status|died with)",
        cause="{where} starts another program, which failed: {message}",
        remedy=(
            "look at the program's own output above the traceback in the log (ansible-playbook logs.yml), which "
            "says why it failed; exit status 127 means that the program is not installed, and 137 or SIGKILL "
            "usually means that memory ran out"
        ),
        certain=False,
    ),
    FrameRule(
        id="path-not-expanded",
        title="A path contains an unexpanded variable, or is a URL or None",
        exceptions=("FileNotFoundError", "NotADirectoryError"),
        message=r"'(?P<name>(?:[^'\n]{0,200}\$\{?\w{1,60}|~|https?:/|s3:/|gs:/|None(?:/|'))[^'\n]{0,200})",
        cause=(
            "{where} opens {name}, which is not a file path: it contains ~ or a variable that was not expanded, "
            "it is a URL, or the option for it was not set (None)."
        ),
        remedy=(
            "pass an absolute path; in the script, use os.path.expanduser and os.path.expandvars. Variables in "
            "launch_args are not expanded by a shell, so set them in launch_environment and read them in the script"
        ),
        over=("file-missing",),
    ),
    FrameRule(
        id="removal-raced",
        title="Several ranks remove or rename the same file",
        exceptions=("FileNotFoundError",),
        source=REMOVES,
        cause=(
            "{path} no longer existed when this rank tried to remove or rename it ({where}): several ranks or "
            "nodes clean up or rotate the same files, and another rank got there first (a race condition). In "
            "rare cases the path is wrong."
        ),
        remedy=(
            "let only one rank do this (rank 0 of the whole job on a shared drive, otherwise local rank 0 of each "
            "node), and let the others wait at a barrier; or ignore the missing file: shutil.rmtree(path, "
            "ignore_errors=True), Path.unlink(missing_ok=True)"
        ),
        certain=False,
        over=("file-missing",),
    ),
    FrameRule(
        id="directory-not-empty",
        title="A directory to be removed is not empty",
        exceptions=("OSError",),
        message=r"\[Errno 39\] Directory not empty",
        cause=(
            "Another rank or process is still writing to {path} while this rank removes or replaces it "
            "({where}); on a network drive, the cause can also be a file that is still open (.nfs...)."
        ),
        remedy=(
            "let only one rank remove it, after a barrier; close the files in it first; or use shutil.rmtree(path, "
            "ignore_errors=True)"
        ),
        certain=False,
    ),
    FrameRule(
        id="output-directory-missing",
        title="The directory for an output file does not exist",
        exceptions=("FileNotFoundError",),
        source=OPEN_FOR_WRITING,
        cause=(
            "{where} writes {path}, but its directory does not exist on this node: nothing created it here, or only "
            "rank 0 did, on another node."
        ),
        remedy=(
            "create the directory first, on every node: os.makedirs(os.path.dirname(path), exist_ok=True). Relative "
            "paths start at launch_working_directory"
        ),
        over=("file-missing",),
    ),
    FrameRule(
        id="path-is-directory",
        title="A directory is used as a file, or a file as a directory",
        exceptions=("IsADirectoryError", "NotADirectoryError"),
        operation=True,
        cause=(
            "{where} uses {path} as a file although it is a directory, or the other way around: an option "
            "expects a file path and got a directory (IsADirectoryError), or expects a directory and got a file "
            "(NotADirectoryError)."
        ),
        remedy=(
            "run ls -ld on the path on that node, and pass what the option expects; if the source of a mount or "
            "container volume is missing, an empty directory appears in its place"
        ),
    ),
    FrameRule(
        id="name-too-long",
        title="A file name is too long",
        message=r"\[Errno 36\] File name too long",
        cause=(
            "{where} uses a file name of more than 255 characters, such as a run name made up of all options, or "
            "text that was meant to be the file's content."
        ),
        remedy=(
            "set a shorter name for the run or the output; on encrypted drives, some caches allow fewer characters"
        ),
    ),
    FrameRule(
        id="unreadable-encoding",
        title="A file is read with the wrong encoding",
        exceptions=("UnicodeDecodeError", "UnicodeEncodeError"),
        operation=True,
        cause=(
            "{where}: {message}. If the message names 'ascii', the code itself asks for ASCII, as pickle.load does "
            "for a file that Python 2 wrote; if it names 'utf-8', the file is binary, compressed, or in another "
            "encoding."
        ),
        remedy=(
            "if the message names 'ascii', set the encoding in that call: pickle.load(file, encoding='latin1'), "
            "text.encode('utf-8'); otherwise use open(path, encoding=...), or check with `file` that the file is a "
            "text file, not an archive or a pointer"
        ),
    ),
    FrameRule(
        id="image-not-read",
        title="OpenCV read no image",
        message=r"![\w.]{0,20}\.empty\(\)",
        cause=(
            "{where}: OpenCV got an empty image, since cv2.imread returns None instead of raising an error when a "
            "file is missing or unreadable."
        ),
        remedy="print the path before imread and check it with os.path.exists on that node; copy the data to all nodes "
        "(ansible-playbook stage_data.yml), or skip broken images",
    ),
    FrameRule(
        id="file-not-on-node",
        title="A file does not exist on this node",
        exceptions=("FileNotFoundError",),
        message=r"'[^'\n]{0,300}'",
        source=r"\S",
        fallback=True,
        cause=(
            "{where} opens {path}, which does not exist on this node: the path is wrong (relative paths start at "
            "launch_working_directory), the file is only on other nodes, or another rank has not written it yet or "
            "has removed it."
        ),
        remedy=(
            "run `ls -l` on the path on each node. To copy the code to all nodes, run ansible-playbook site.yml "
            "--tags code; to copy a bucket, run ansible-playbook stage_data.yml. Files that the job itself "
            "writes must be on a shared drive, or be written on each node, with a barrier before other ranks "
            "read them"
        ),
        certain=False,
        over=("file-missing",),
    ),
    FrameRule(
        id="dataset-not-downloaded",
        title="A torchvision or torchaudio dataset is missing or does not match",
        packages=("torchvision", "torchaudio"),
        message=r"(?:(?i:dataset)[^\n]{0,40} not found|does ?n.t exist)[^\n]{0,200}download ?= ?True",
        raised_by="package",
        cause=(
            "{where} reads a dataset that is missing from its `root` directory on this node, or whose files are "
            "not from the release that {package} expects (it compares their checksums)."
        ),
        remedy=(
            "run `ls -lR` on the directory on that node; a relative root starts at launch_working_directory. "
            "Copy the dataset to all nodes (ansible-playbook stage_data.yml), or let one rank per node "
            "(LOCAL_RANK 0) download it (download=True) while the others wait at a barrier"
        ),
    ),
    *(
        FrameRule(
            id=f"unreadable-{kind.partition(' ')[0]}",
            title=f"A library cannot read a file: {kind}",
            packages=packages,
            message=UNREADABLE,
            raised_by="package",
            cause=(
                "{package} cannot read {path}, a file that {where} uses: {message}. The file is missing, "
                f"empty or cut off, or is not {'an' if kind[0] in 'aeio' else 'a'} {kind} in a format that "
                "{package} supports."
            ),
            remedy=LOOK_AT_IT,
            certain=False,
        )
        for kind, packages in KINDS.items()
    ),
    FrameRule(
        id="text-file-broken",
        title="A JSON, YAML or other text file has a syntax error",
        exceptions=("JSONDecodeError", "ScannerError", "ParserError", "TOMLDecodeError", "ParseError", "ComposerError"),
        operation=True,
        cause=(
            "A file or text that is read at {where} has a syntax error: {message}. It is empty, was cut off, is "
            "still being written by another rank, or was edited by hand."
        ),
        remedy=(
            "run `python -m json.tool FILE` (or yaml.safe_load) on that node to see the position of the error; if "
            "the file is an incomplete download or copy, remove it and copy it again"
        ),
        over=("json-error",),
    ),
)
