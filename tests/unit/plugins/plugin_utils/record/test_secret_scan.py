"""Secrets in code are detected before a copy is stored, without false alarms on ordinary code."""

from __future__ import annotations

import random
import string
import time
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.secret_scan import find_secret

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", 'password="hunter22"'),
        ("train.py", "HUB = 'hf_abcdefghijklmnopqrstuvwxyz'"),
        ("train.py", 'wandb.login(key="x", api_key="abc123def456")'),
        ("train.py", 'url = "https://me:pw12@host/simple"'),
        ("train.py", 'secret = "correct-horse"'),
        ("conf.yaml", "password: hunter22"),
        (".env", "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567"),
        (".env.local", "DB_PASSWORD=hunter22"),
        ("keys.txt", KEY),
        ("job.sbatch", "export DB_PASSWORD=hunter2xyz"),
        ("job.slurm", "export DB_PASSWORD=hunter2xyz"),
        ("job.bash", "DB_PASSWORD=hunter2xyz"),
        ("notes.txt", "password: hunter2xyz"),
        ("README.md", "password: hunter2xyz"),
        ("sample.env.example", "DB_PASSWORD=hunter2xyz"),
        ("train.ipynb", '"os.environ[\\"DB_PASSWORD\\"] = \\"hunter2xyz\\"\\n"'),
        ("train.ipynb", '"%env DB_PASSWORD=hunter2xyz\\n"'),
        ("train.py", 'os.environ["DB_PASSWORD"] = "hunter2xyz"'),
        ("train.py", "password = 'HUNTERTWO'"),
        ("train.py", "password='abc(def1'"),
        ("train.py", "password = 'correct horse battery'"),
        ("train.py", "password = '12345678'"),
        ("train.py", "# " + "\u00e9\u0130" * 9 + " password = 'hunter22'"),
        ("main.tf", 'db_password = "x9y8z7w6"'),
        ("Dockerfile", "ENV HF_TOKEN=abcdef123456"),
        ("train.py", f"wandb.login('{'a1' * 20}')"),
        ("netrc", "machine api.wandb.ai login user password 0123456789"),
    ],
)
def test_secret_is_located_with_its_line(name: str, text: str) -> None:
    assert find_secret(name, text.encode()) == 1
    assert find_secret(name, f"first = 1\nsecond = 2\n{text}".encode()) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", "token = tokenizer(text)"),
        ("train.py", "tokens = batch['tokens'].to(device)"),
        ("train.py", 'api_key=os.environ["API_KEY"]'),
        ("train.py", 'pad_token="[PAD]", bos_token="<s>"'),
        ("train.py", 'parser.add_argument("--api-key", default="")'),
        ("train.py", 'token: str = "access_token"'),
        ("train.py", 'max_tokens = "4096"'),
        ("conf.yaml", 'password: "{{ vault_password }}"'),
        ("conf.yaml", "password: ${DB_PASSWORD}"),
        ("conf.yaml", "tokenizer: mistral-7b"),
        ("train.py", 'url = "https://huggingface.co/datasets"'),
        ("clip.json", '"hf_tokenizer_name": "timm/ViT-B-16-SigLIP"'),
        ("clip.json", '"tiktoken_name": "cl100k_base"'),
        ("hf_configs.py", '"token_embeddings_attr": "embeddings"'),
        ("train.py", 'token = "HF_TOKEN"'),
        ("train.py", 'help = {"password": "the password of the database"}'),
        ("train.py", "password = f'{user}-{host}'"),
        ("train.ipynb", '"tokens = batch[0]\\n"'),
        ("README.md", "The token: generate one on the page of your account."),
        ("README.md", "api_key: string, required"),
        ("train.ipynb", '"max_tokens=4096\\n"'),
        (".github/workflows/tests.yml", "permissions:\n  id-token: write\n  # `id-token: write`, which PRs never get"),
    ],
)
def test_ordinary_code_is_not_treated_as_a_secret(name: str, text: str) -> None:
    assert find_secret(name, text.encode()) == 0


@pytest.mark.parametrize("kind", ["base64", "program", "numbers", "dots", "one word", "capitals"])
def test_large_file_is_searched_to_its_end_in_a_second(kind: str) -> None:
    choices = random.Random(1).choices(string.ascii_letters + string.digits + "+/", k=1 << 20)
    piece = {
        "base64": "".join(choices),
        "program": Path(__file__).read_text(),
        "numbers": "0.123, ",
        "dots": ".",
        "one word": "a",
        "capitals": "A" * 79 + "\n",
    }[kind]
    if kind == "program":
        piece = "\n".join(line for line in piece.splitlines() if '("' not in line and "KEY" not in line)
    text = (piece * ((8 << 20) // len(piece) + 1)).encode()
    begun = time.process_time()
    assert find_secret("train.py", text) == 0
    assert time.process_time() - begun < 3, "a second, on a machine that does nothing else"
    assert find_secret("train.py", text + b"\napi_key = 'sk-abcdefghijklmnopqrstuvwx'\n") == text.count(b"\n") + 2
