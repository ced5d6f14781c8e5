"""Secrets of any form are removed from text; ordinary text stays unchanged."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.redact import REMOVED, redact, redact_values

LETTERS = (string.ascii_letters + string.digits) * 4
HEXADECIMAL = "0123456789abcdef" * 4
# Joined here, so that no scanner reports secrets in this file.
SECRETS = {
    "AWS key": "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "temporary AWS key": "AS" + "IA" + "ABCDEFGHIJKLMNOP",
    "Hugging Face": "hf" + "_" + LETTERS[:34],
    "GitHub": "gh" + "p_" + LETTERS[:36],
    "GitHub, fine-grained": "github" + "_pat_" + LETTERS[:60],
    "GitLab": "gl" + "pat-" + LETTERS[:20],
    "OpenAI": "s" + "k-proj-" + LETTERS[:40],
    "Slack": "xo" + "xb-" + "1234567890-" + LETTERS[:20],
    "Google": "AI" + "za" + LETTERS[:35],
    "NVIDIA": "nv" + "api-" + LETTERS[:40],
    "PyPI": "py" + "pi-" + LETTERS[:60],
    "JSON web token": "ey" + "J" + LETTERS[:30] + "." + LETTERS[:40] + "." + LETTERS[:20],
    "SSH key": "-----BEGIN OPENSSH PRIVATE" + " KEY-----\n" + LETTERS + "\n-----END OPENSSH PRIVATE KEY-----",
}
ASSIGNED_SECRET = LETTERS[7:27]
ASSIGNMENTS = [
    "WANDB_API_KEY={}",
    "export AWS_SECRET_ACCESS_KEY={}",
    'aws_session_token = "{}"',
    "password: {}",
    "'db_password': '{}'",
    '{{"apiKey": "{}"}}',
    "Authorization: Bearer {}",
    "--hf-token {}",
    "--api_key={}",
    "https://user:{}@example.org/data",
    "s3://bucket/x?X-Amz-Signature={}&x=1",
    "https://account.blob.core.windows.net/c?sv=2024&sig={}",
    "MY_SECRET={}",
    "machine api.wandb.ai password {}".replace("password ", "password: "),
]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("text", ["{}", "using {} for the upload", '["--x", "{}"]', "a={}"])
def test_token_of_a_known_form_is_removed(secret: str, text: str) -> None:
    cleaned = redact(text.format(secret))
    assert REMOVED in cleaned and secret not in cleaned and secret[12:30] not in cleaned


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_value_of_a_secret_name_is_removed(text: str) -> None:
    cleaned = redact(text.format(ASSIGNED_SECRET))
    assert REMOVED in cleaned and ASSIGNED_SECRET not in cleaned
    assert redact(cleaned) == cleaned


def test_known_value_is_removed_everywhere() -> None:
    assert redact("connecting with tr0ub4dor!", ["tr0ub4dor!", "on"]) == f"connecting with {REMOVED}"


@pytest.mark.parametrize(
    "text",
    [
        "step 20 loss 0.31 tokens_per_second: 81000 max_tokens=2048",
        "ValueError: num_tokens: 4096 does not divide the batch",
        "eos_token: </s>, pad_token_id=0, tokenizer_name: gpt2",
        "--tokenizer meta-llama/Llama-3 --max-new-tokens 100",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "Loading checkpoint shards: 100%|####| 2/2 [00:09<00:00,  4.5s/it]",
        "torch.save(net.state_dict(), os.path.join(save_dir, 'params.pth'))",
        "hf_transfer is installed, ghp_ and sk-learn are not",
        "token: null, use_token=true",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_values_of_secret_keys_are_removed_from_documents() -> None:
    document = {"api_key": ASSIGNED_SECRET, "n": 3, "list": [f"TOKEN={ASSIGNED_SECRET}", None], "max_tokens": "2048"}
    assert redact_values(document, redact) == {
        "api_key": REMOVED,
        "n": 3,
        "list": [f"TOKEN={REMOVED}", None],
        "max_tokens": "2048",
    }
    nested: object = ASSIGNED_SECRET
    for _level in range(200):
        nested = [nested]
    assert ASSIGNED_SECRET not in str(redact_values(nested, redact))


@given(st.text(max_size=200))
def test_any_text_is_handled_without_error(text: str) -> None:
    redact(text, [text[:20]])


@pytest.mark.parametrize(
    "piece", ["password", "token", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaaaaa.", "a://b:", "token="]
)
def test_hostile_text_takes_little_time(piece: str) -> None:
    begun = time.process_time()
    redact((piece * 64_000)[:64_000])
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    "text",
    [
        "NEPTUNE_API_TOKEN=abcdef123456",
        "NGC_TOKEN=abcdef123456",
        "USER_TOKEN=abcdef123456",
        "machine api.wandb.ai login user password abcdef123456",
        "machine api.wandb.ai\n  login user\n  password abcdef123456",
        "MYSQL_PWD=abcdef123456",
        "https://abcdef123456@github.com/me/project",
        "https://hooks.slack.com/services/T0/B0/abcdef123456",
        '{\\"password\\": \\"abcdef123456\\"}',
    ],
)
def test_secrets_in_further_formats_are_removed(text: str) -> None:
    assert "abcdef123456" not in redact(text)


@pytest.mark.parametrize(
    "text", ["max_new_tokens=128", "pad_token=<pad>", "tokenizer_name: gpt2-medium", "tokens_per_second=1234.5"]
)
def test_ordinary_names_are_unchanged(text: str) -> None:
    assert redact(text) == text
