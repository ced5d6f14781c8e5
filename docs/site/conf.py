"""Sphinx configuration for the tree that tests/make_site.py assembles: make docs"""

from __future__ import annotations

project = "muster.training"
author = "muster contributors"
project_copyright = "muster contributors"

extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx.ext.intersphinx"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["_static"]
nitpicky = True

# Labels of Ansible's manual that the reference uses, from a file next to this one. Nothing is downloaded.
intersphinx_mapping = {"ansible": ("https://docs.ansible.com/ansible/latest/", "ansible.inv")}
intersphinx_disabled_reftypes: list[str] = []

# Heading anchors are the same as in the repository's pages.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block"]
# Nothing is suppressed: a page that is missing from all tables of contents is an error.
suppress_warnings: list[str] = []

html_theme = "furo"
html_title = "muster.training"
html_static_path = ["_static"]
html_css_files = ["muster.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "text"
pygments_style = "tango"
pygments_dark_style = "monokai"
