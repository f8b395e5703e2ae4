"""The pages: one frame around what is different in each. They hold no data, so they are made once.

pages/frame.html    masthead, navigation, status; {{title}}, {{links}}, {{script}} and {{main}} are replaced
pages/<name>.html   what stands in <main>
static/<name>.js    what fills it
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace.errors import SetupError

PAGES_DIR: Final = Path(__file__).parent / "pages"
PAGES: Final = {
    "/": "live",
    "/topics": "topics",
    "/topics/{name}": "topic",
    "/pipelines": "pipelines",
    "/stores": "stores",
    "/event-store": "event-store",
    "/groups": "groups",
}
"""The path of each page, and its name."""
LINKED: Final = ("/", "/topics", "/pipelines", "/stores", "/event-store", "/groups")
TITLES: Final = {
    "live": "Live",
    "topics": "Topics",
    "topic": "Topic",
    "pipelines": "Pipelines",
    "stores": "Stores",
    "event-store": "Events",
    "groups": "Groups",
}


@cache
def page(name: str) -> str:
    """The whole text of a page."""
    frame, main = (PAGES_DIR.joinpath(f"{each}.html").read_text("utf-8") for each in ("frame", name))
    parts = {"title": TITLES[name], "links": _links(name), "script": name, "main": main}
    for part, text in parts.items():
        frame = frame.replace("{{" + part + "}}", text)
    return frame


def _links(current: str) -> str:
    section = "topics" if current == "topic" else current
    return "\n".join(_link(path, PAGES[path], is_current=PAGES[path] == section) for path in LINKED)


def _link(path: str, name: str, *, is_current: bool) -> str:
    current = ' aria-current="page"' if is_current else ""
    return f'      <a href="{path}"{current}>{TITLES[name]}</a>'


def plotly_dir() -> Path:
    """Where the chart library's package keeps its script. The package itself is not imported."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("the package plotly, which has the page's charts, is missing: pip install plotly")
    return Path(spec.submodule_search_locations[0]) / "package_data"
