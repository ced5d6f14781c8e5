"""Pages generated from the code match the code."""

from __future__ import annotations

import re

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import IDS
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import RULES as EVIDENCE
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.registry import RULES
from tests.make_pages import DOCS, PAGES, code, prose, unseen_row


@pytest.mark.one_core
@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "make pages writes it again"


@pytest.mark.one_core
def test_page_lists_each_entry_and_each_id_once() -> None:
    page = (DOCS / "what_went_wrong.md").read_text(encoding="utf-8")
    assert re.findall(r"^- `([\w-]+)`", page, re.MULTILINE) == [
        *(entry.id for entry in CATALOGUE),
        *(rule.id for rule in RULES),
        *(rule.id for rule in EVIDENCE),
    ]
    assert re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE) == sorted(IDS)
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    assert len(titles) == len(set(titles)), "two headings share an address"


@pytest.mark.one_core
def test_entry_text_is_escaped_and_commands_become_code() -> None:
    assert code("a `b`") == "`` a `b` ``"
    assert prose("NCCL_* <N/A> [x] `a*b`") == "NCCL_\\* \\<N/A> \\[x] `a*b`"
    assert prose('ansible-playbook site.yml --tags a,b -e x=1.2, or -e \'{"a": "*"}\'.') == (
        '`./muster site --tags a,b -e x=1.2`, or `-e \'{"a": "*"}\'`.'
    )


@pytest.mark.one_core
def test_set_that_has_not_been_worked_on_has_no_later_figures() -> None:
    measured = {"measured": "2026-11-28", "unseen": {"right": 3, "partly": 1, "silent": 0, "wrong": 2}}
    assert unseen_row(1, measured) == "| 1 | 2026-11-28 | 6 | 3 | 1 | 0 | 2 | - | - |\n"


@pytest.mark.one_core
@pytest.mark.parametrize(
    "step", ["`nvidia-smi > log.txt`", "a logbook (.md) of", "`tensorboard dev upload", "`scp -r "]
)
def test_guide_step_links_to_the_section_that_replaces_it(step: str) -> None:
    (row,) = [
        line for line in (DOCS / "coming_from_guides.md").read_text().splitlines() if line.startswith(f"| {step}")
    ]
    page, _hash, location = re.findall(r"\]\(([^)]+)\)", row)[-1].partition("#")
    headings = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE)
    assert not location or location in [
        re.sub(r"[^a-z0-9-]", "", title.lower().replace(" ", "-")) for title in headings
    ]
