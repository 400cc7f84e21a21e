"""What MkDocs does besides rendering the Markdown files of this folder.

- Adds to the reference what `reference_pages.py` makes from the code.
- Adds the notebooks, with the outputs that they hold, and the README files of the benchmark and of the campaigns.
- Lists the decisions, by the titles of their files.
- Turns links to files that the site does not have into plain text: they are in the repository.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference_pages import MARK, PARTS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
# Pages from elsewhere in the repository, and where the site has them.
BROUGHT = {
    "fastflight_benchmark/README.md": "internals/benchmark.md",
    "tests/campaigns/README.md": "internals/campaigns.md",
}
NOTEBOOKS = ("notebook", "live")
DECISIONS = "internals/decisions.md"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = {path: with_part(DOCS / path, part) for path, part in PARTS.items()}
    made |= {path: (ROOT / source).read_text(encoding="utf-8") for source, path in BROUGHT.items()}
    made |= {f"{name}.md": rendered(DOCS / f"{name}.ipynb") for name in NOTEBOOKS}
    made[DECISIONS] = (DOCS / DECISIONS).read_text(encoding="utf-8") + decisions()
    for path, text in made.items():
        if (written := files.get_file_from_path(path)) is not None:
            files.remove(written)
        files.append(File.generated(config, path, content=text))
    return files


def with_part(page: Path, part: Callable[[], str]) -> str:
    """Return a page with the part that is made from the code in its place."""
    text = page.read_text(encoding="utf-8")
    if MARK not in text:
        raise ValueError(f"{page.name} has no line {MARK}")
    return text.replace(MARK, part())


def on_page_markdown(markdown: str, *, page: Page, files: Files, config: MkDocsConfig) -> str:
    """Have each link lead to a page of the site, or be plain text."""
    source = {path: where for where, path in BROUGHT.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def led(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        within = BROUGHT.get(path) or path.removeprefix("docs/")
        if within.endswith(".ipynb") and page.file.src_uri != f"{Path(within).stem}.md":
            within = f"{within.removesuffix('.ipynb')}.md"
        for there in (within, f"{within}/README.md", DECISIONS if within == "decisions" else within):
            if files.get_file_from_path(there) is not None:
                return f"[{text}]({posixpath.relpath(there, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        # MkDocs reports a broken link to a page. Other files of the repository are not part of the site.
        return text if (ROOT / path).exists() and not path.endswith(".md") else found[0]

    return LINK.sub(led, markdown)


def decisions() -> str:
    """Return a list of the decisions: number and title, as the first lines of the files have them."""
    lines = []
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0]
        lines.append(f"- `{path.name[:4]}` [{re.sub(r'^# *[0-9]*[.:]? *', '', title)}](../decisions/{path.name})")
    return "\n" + "\n".join(lines) + "\n"


def rendered(notebook: Path) -> str:
    """Return a notebook as Markdown: its texts, its code, and the outputs that it holds."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = ["".join(cells[0]["source"]), f"[Download this notebook]({notebook.name})"]
    for cell in cells[1:]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            parts.extend(shown(output))
    return "\n\n".join(parts) + "\n"


def shown(output: dict[str, Any]) -> Iterator[str]:
    """Yield an output of a cell: a table or a picture where there is one, else text."""
    data = output.get("data", {})
    if "image/png" in data:
        yield f'<img alt="plot" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    elif "text/html" in data:
        html = "".join(data["text/html"])
        html = re.sub(r"<style.*?</style>|\n\s*", "", html, flags=re.DOTALL)
        yield html.replace('<table border="1" class="dataframe">', "<table>")  # as all tables of the site
    elif text := "".join(output.get("text", data.get("text/plain", ""))):
        yield f"```text\n{text.rstrip()}\n```"
