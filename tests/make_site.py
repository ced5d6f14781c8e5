"""Assemble the sources of the documentation site for Sphinx: make docs

    python -m tests.make_site REFERENCE TREE

TREE mirrors the repository: its Markdown pages at their paths, so that links between them work, and other files that
they link to. README.md is the first page. REFERENCE has antsibull-docs' pages of the plugins and roles.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
"""The target of a link or of a picture."""
# Markdown files that are not pages: a file that a test stages, and the end of the site's first page.
NOT_PAGES = {"extensions/molecule/data/files/README.md", "docs/site/contents.md"}
KINDS = {
    "roles": ("Roles", ("role",)),
    "modules": ("Modules", ("module",)),
    "plugins": ("Inventories, filters, lookups and the callback", ("inventory", "filter", "lookup", "callback")),
}
"""Pages in the reference: the title, and the kinds of plugins listed."""
# Labels from Ansible's own manual that the reference uses: kind, page with anchor, and title.
ANSIBLES = {
    "action_plugins": ("std:label", "plugins/action.html#action-plugins", "Action plugins"),
    "ansible_collections.ansible.builtin.constructed_inventory": (
        "std:label",
        "collections/ansible/builtin/constructed_inventory.html",
        "ansible.builtin.constructed",
    ),
    "ansible_configuration_settings": (
        "std:label",
        "reference_appendices/config.html#ansible-configuration-settings",
        "Ansible Configuration Settings",
    ),
    "callback_plugins": ("std:label", "plugins/callback.html#callback-plugins", "Callback plugins"),
    "common_return_values": (
        "std:label",
        "reference_appendices/common_return_values.html#common-return-values",
        "Return Values",
    ),
    **{
        f"ansible_collections.amazon.aws.{name}_module": (
            "std:label",
            f"collections/amazon/aws/{name}_module.html",
            f"amazon.aws.{name}",
        )
        for name in ("ec2_instance", "ec2_placement_group", "ec2_security_group")
    },
    **{
        name: ("std:envvar", f"reference_appendices/config.html#envvar-{name}", "-")
        for name in (
            "ANSIBLE_CACHE_PLUGIN",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION",
            "ANSIBLE_CACHE_PLUGIN_PREFIX",
            "ANSIBLE_CACHE_PLUGIN_TIMEOUT",
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS",
            "ANSIBLE_SHOW_CUSTOM_STATS",
        )
    },
}


def markdown_pages() -> list[str]:
    """Return the Markdown pages in the repository by path."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(set(listed) - NOT_PAGES)


def is_foreign(target: str) -> bool:
    """Return whether a link's target is a URL, or an anchor on the same page."""
    return target.startswith(("http://", "https://", "#", "mailto:"))


def in_the_tree(page: str, target: str) -> str:
    """Return a link's target on the site: README.md is its first page, and defaults of roles are in the reference."""
    if is_foreign(target):
        return target
    path, mark, anchor = target.partition("#")
    role = re.fullmatch(r"roles/(\w+)/README\.md", page)
    if role and path == "defaults/main.yml":
        return f"../../reference/{role[1]}_role.rst"
    if (CHECKOUT / page).parent.joinpath(path).resolve() == CHECKOUT / "README.md":
        path = path.replace("README.md", "index.md")
    return path + mark + anchor


def as_page_of_the_site(page: str, text: str) -> str:
    """Return a page from the repository with its links adapted to the site."""
    return LINK.sub(lambda match: in_the_tree(page, match[0]), text)


def linked_files(page: str, text: str) -> set[Path]:
    """Return the files, other than pages, that a page links to or shows."""
    targets = {in_the_tree(page, target).partition("#")[0] for target in LINK.findall(text) if not is_foreign(target)}
    paths = {(CHECKOUT / page).parent.joinpath(target).resolve() for target in targets if target}
    return {path for path in paths if path.suffix not in (".md", ".rst")}


def inventory_of_ansible() -> bytes:
    """Return ANSIBLES as a Sphinx inventory (version 2), which Sphinx reads to link to other sites."""
    rows = "".join(
        f"{name} {kind} -1 {location} {title}\n" for name, (kind, location, title) in sorted(ANSIBLES.items())
    )
    head = (
        "# Sphinx inventory version 2\n# Project: Ansible\n# Version: latest\n# All that follows is packed by zlib.\n"
    )
    return head.encode() + zlib.compress(rows.encode())


def as_reference(text: str) -> str:
    """Return a page from antsibull-docs without its table of contents, which the theme shows, and its note about
    Galaxy.

    The collection is installed as README.md says; it is not on Galaxy.
    """
    text = re.sub(r"(?m)^\.\. contents::\n(?:   .*\n)*", "", text)
    note = re.search(r"(?m)^\.\. note::\n(?:    .*\n|\n)*", text)
    if note and "galaxy.ansible.com" in note[0]:
        name = re.search(r"specify: (:code:`[^`]*`)", note[0])
        text = text.replace(note[0], f"In playbooks and templates: {name[1]}\n\n" if name else "")
    return text


def list_of(kinds: tuple[str, ...], title: str, names: list[str], manuals: set[str]) -> str:
    """Return a reference page that lists the plugins of some kinds; for roles, also their manuals."""
    entries = []
    for kind in kinds:
        for name in sorted(name.removesuffix(f"_{kind}") for name in names if name.endswith(f"_{kind}")):
            if kind == "role" and name in manuals:
                entries.append(f"{name} <../roles/{name}/README>")
            entries.append(f"{name}: {'variables' if kind == 'role' else kind} <{name}_{kind}>")
    return "\n".join([f"# {title}", "", "```{toctree}", ":maxdepth: 1", *entries, "```", ""])


def make_tree(reference: Path, tree: Path) -> None:
    """Recreate the tree; `reference` contains the pages from antsibull-docs."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(reference, tree / "reference")
    site = CHECKOUT / "docs" / "site"
    pages = markdown_pages()
    for page in pages:
        text = (CHECKOUT / page).read_text(encoding="utf-8")
        page_path = tree / ("index.md" if page == "README.md" else page)
        page_path.parent.mkdir(parents=True, exist_ok=True)
        more = (site / "contents.md").read_text(encoding="utf-8") if page == "README.md" else ""
        page_path.write_text(as_page_of_the_site(page, text) + more, encoding="utf-8")
        for file in linked_files(page, text):
            copy = tree / file.relative_to(CHECKOUT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    for path in (tree / "reference").glob("*.rst"):
        path.write_text(as_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
    names = [path.stem for path in reference.glob("*.rst")]
    manuals = {page.split("/")[1] for page in pages if page.startswith("roles/")}
    for name, (title, kinds) in KINDS.items():
        (tree / "reference" / f"{name}.md").write_text(list_of(kinds, title, names, manuals), encoding="utf-8")
    (tree / "_static").mkdir()
    shutil.copyfile(site / "muster.css", tree / "_static" / "muster.css")
    shutil.copyfile(site / "conf.py", tree / "conf.py")
    (tree / "ansible.inv").write_bytes(inventory_of_ansible())


if __name__ == "__main__":
    make_tree(Path(sys.argv[1]), Path(sys.argv[2]))
