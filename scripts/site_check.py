"""Checks the built documentation: no page loads anything from another host, and Markdown became what it looks like.

    python scripts/site_check.py SITE

Prints one line per finding; exits 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
"""Attributes that make a browser load something by itself; a link that a reader follows is none of them."""
OTHER_HOST = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)
CSS_URL = re.compile(r"""(?:url\(|@import)\s*['"]?([^'")\s;]+)""")
RAW_BLOCK = re.compile(r"^(?:[-*] |\d+\. |\|.*\|$|```)", re.MULTILINE)


class Page(HTMLParser):
    """Collects the assets of one page, and the text of its paragraphs."""

    def __init__(self) -> None:
        super().__init__()
        self.assets: list[str] = []
        self.paragraphs: list[str] = []
        self._open = 0
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.assets += [value for name, value in attrs if value and (tag, name) in LOADED]
        self.assets += [found for name, value in attrs if name == "style" for found in CSS_URL.findall(value or "")]
        self._open += tag == "p"
        self._code += tag == "code"
        if tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open -= tag == "p"
        self._code -= tag == "code"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.paragraphs[-1] += data.replace("\n", " ") if self._code else data


def findings(site: Path) -> Iterator[str]:
    """Yield what is wrong with a built site, a line each."""
    for file in sorted(site.rglob("*.html")):
        page = Page()
        page.feed(file.read_text(encoding="utf-8"))
        name = file.relative_to(site)
        yield from (f"{name} loads {asset}" for asset in page.assets if OTHER_HOST.match(asset))
        for text in page.paragraphs:
            if found := RAW_BLOCK.search(text):
                yield f"{name} shows Markdown as text: {text[found.start() : found.start() + 60].splitlines()[0]}"
    for file in sorted(site.rglob("*.css")):
        urls = CSS_URL.findall(file.read_text(encoding="utf-8"))
        yield from (f"{file.relative_to(site)} loads {url}" for url in urls if OTHER_HOST.match(url))


def main(arguments: Sequence[str]) -> int:
    found = list(findings(Path(arguments[0])))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
