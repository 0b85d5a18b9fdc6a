"""The page's files, and the page that names them."""

import json
from importlib.resources import files
from typing import Any

SCRIPTS = ("fields.js", "drawing.js", "engine.js", "page.js")
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


def read_asset(name: str) -> str:
    """The text of a file of the page."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def embed_json(tree: Any) -> str:
    """A tree as text that may stand inside a `<script>`."""
    return json.dumps(tree, allow_nan=False).replace("<", "\\u003c")


def render_page(setup: dict[str, Any]) -> bytes:
    """The page, with links to its files."""
    links = "\n".join(f'<script src="{name}" defer></script>' for name in SCRIPTS)
    style = '<link rel="stylesheet" href="page.css">'
    return fill_page(style, links, setup).encode()


def fill_page(style: str, scripts: str, setup: dict[str, Any]) -> str:
    """The page's frame with what it stands on."""
    frame = read_asset("page.html")
    for mark, text in (("STYLE", style), ("SCRIPTS", scripts), ("SETUP", embed_json(setup))):
        before, after = frame.split(f"<!-- {mark} -->")
        frame = before + text + after
    return frame


ASSETS = {
    name: (read_asset(name).encode(), KINDS["." + name.rpartition(".")[2]])
    for name in (*SCRIPTS, "page.css")
}
