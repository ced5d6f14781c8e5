"""Secrets in code are found before a copy of it is kept, and ordinary code is not taken for one."""

from __future__ import annotations

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
        ("netrc", "machine api.wandb.ai login user password 0123456789"),
    ],
)
def test_secret_is_found_with_its_line(name: str, text: str) -> None:
    assert find_secret(name, text) == 1
    assert find_secret(name, f"first = 1\nsecond = 2\n{text}") == 3


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
    ],
)
def test_ordinary_code_is_not_taken_for_a_secret(name: str, text: str) -> None:
    assert find_secret(name, text) == 0
