"""Variables as written to DeepSpeed's own file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template


def render(template: str, **variables: Any) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(template))


def test_variables_are_written_one_per_line() -> None:
    variables = {"NCCL_DEBUG": "INFO", "N": 4, "P": "/a:/b", "EMPTY": ""}
    text = render("{{ variables | muster.training.deepspeed_env }}", variables=variables)
    assert text == "NCCL_DEBUG=INFO\nN=4\nP=/a:/b\nEMPTY=\n"
    assert render("{{ {} | muster.training.deepspeed_env }}") == ""


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"A": "a b"}, "A contains a character that DeepSpeed quotes"),
        ({"A": "$HOME"}, "A contains a character"),
        ({"A": "a\nB=c"}, "A contains a character"),
        ({"A": "%h"}, "A contains a character"),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, "NCCL_SOCKET_IFNAME contains a character"),
        ({"A": "é"}, "A contains a character"),
        ({"A B": "c"}, "'A B' is not a valid variable name"),
        ({"A": True}, "A is true or false: use a string"),
        ({"A": None}, "A is NoneType: use a string"),
    ],
)
def test_values_that_deepspeed_would_change_are_refused(variables: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleError) as caught:
        render("{{ variables | muster.training.deepspeed_env }}", variables={**variables, "GOOD": "1"})
    assert message in str(caught.value) and "GOOD" not in str(caught.value)
