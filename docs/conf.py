"""Sphinx builds the site from docs/, results/ and a few pages beside them: ``make docs``.

Pages are plain Markdown that also reads well without Sphinx. What is generated takes the place of a comment such as
``<!-- generated: settings -->``, by the function of that name in docs/generate.py.
What follows the name is its argument.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))
import generate

ROOT = Path(__file__).parents[1]

project = "hmrnn"
author = "The hmrnn developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "results/*.md",
    "*.md",
    "src/hmrnn/pretrained/bundled/*/README.md",
    "examples/*/README.md",
]
exclude_patterns = [".*", "build", "runs", "tests"]

html_theme = "furo"
html_title = "hmrnn"
html_copy_source = False
html_static_path = html_css_files = ["site.css"]

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the comments for generated text."""

    def generated(found: re.Match[str]) -> str:
        return getattr(generate, found[1])(*filter(None, [found[2]]))

    text = re.sub(r"<!-- generated: (\w+)(?: (.+))? -->", generated, source[0])
    if page == root_doc:
        text += generate.contents(text)
    source[0] = text


def tidy(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Names such as ``classes_`` are literal, not links, and names of arguments may take two lines."""
    text = re.sub(r"(?m)^( +(?:\w+, )*\w+,)\n +(?=\w+[,:])", r"\1 ", "\n".join(lines))
    lines[:] = re.sub(r"(?<![`\w])(\w+_)(?=[\s,.;)])", r"``\1``", text).split("\n")


def to_mathml(app: Sphinx, page: nodes.document) -> None:
    """Turn formulas into MathML, which browsers show without a script from elsewhere; blank lines part formulas."""
    for node in [*page.findall(nodes.math), *page.findall(nodes.math_block)]:
        block = isinstance(node, nodes.math_block)
        try:
            made = "".join(tex2mathml(part, as_block=block) for part in re.split(r"\n\s*\n", node.astext()))
        except MathError as error:
            logging.getLogger(__name__).warning("%s", error, location=node)
            continue
        node.replace_self(nodes.raw("", f'<div class="formula">{made}</div>' if block else made, format="html"))


def write_entrance(app: Sphinx, error: Exception | None) -> None:
    """Let index.html of the output lead to the first page."""
    if error is None and app.builder.format == "html":
        refresh = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">'
        Path(app.outdir, "index.html").write_text(f"<!doctype html><title>{project}</title>{refresh}\n")


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", tidy, priority=400)  # before napoleon
    app.connect("doctree-read", to_mathml)
    app.connect("build-finished", write_entrance)
