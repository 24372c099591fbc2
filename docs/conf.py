"""Configuration of Sphinx for the site (`make docs`), which is built without a network."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import matplotlib
from docutils import nodes
from sphinx_gallery.sorting import ExplicitOrder

import dualgap

matplotlib.use("Agg")
os.environ["DASK_LOGGING__DISTRIBUTED"] = "error"

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "dualgap"
author = "the dualgap authors"
copyright = author
version = release = dualgap.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns: list[str] = []
templates_path = ["_templates"]
nitpicky = False
default_role = "py:obj"  # a link if the name exists, else code

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"dualgap {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "_static" / "scorer.js")
html_copy_source = True  # Each page has a link to its source.
# The copy button leaves out prompts and output.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_show_sphinx = False
# The built pages load everything from _static, including MathJax (sphinx-mathjax-offline).
mathjax_options = {"defer": "defer"}

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # docstrings state types and shapes
autodoc_inherit_docstrings = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
# Docstrings are checked by scripts/check_docs.py.

TUTORIALS = [
    "gap",
    "many_classes",
    "top_k",
    "costs",
    "choosing_c",
    "tagging",
    "alignment",
    "shells",
    "recommending",
    "out_of_core",
    "cluster",
    "own_loss",
    "own_oracle",
    "segmentation",
]

sphinx_gallery_conf = {
    "examples_dirs": [str(ROOT / "examples")],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": ExplicitOrder([*(f"{name}.py" for name in TUTORIALS), "*"]),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "copyfile_regex": r"",
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
    "plot_gallery": os.environ.get("DOCS_PLOTS", "1") == "1",
}


def of_others(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip methods of scikit-learn, whose docstrings refer to pages that do not exist here."""
    function = getattr(member, "__func__", member)
    ours = getattr(function, "__module__", None) or "dualgap"
    return True if not ours.startswith("dualgap") or name.endswith("_request") else None


def tutorials(app: Any, page: str, source: list[str]) -> None:
    """Redirect links to scripts in `examples`, which work on GitHub, to the tutorials."""
    up = "../" * page.count("/")
    source[0] = re.sub(r"\((?:\.\./)+examples/(\w+)\.py\)", rf"({up}tutorials/\1.rst)", source[0])


def cell_lengths(app: Any, doctree: nodes.document) -> None:
    """Mark short and long cells of tables, whose widths on narrow screens site.css sets."""
    for cell in doctree.findall(nodes.entry):
        length = len(cell.astext())
        cell["classes"] += ["short"] * (length <= 24) + ["long"] * (length > 150)


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx's events."""
    app.connect("source-read", tutorials)
    app.connect("doctree-read", cell_lengths)
    app.connect("autodoc-skip-member", of_others)
