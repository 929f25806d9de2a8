"""A reader without a script: pages as they come from the server, read by what a person sees of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlencode

from starlette.testclient import TestClient

from tests.host_bridge.explorer.console import BridgeConsole, application

VOID: Final = frozenset(("area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"))


@dataclass
class Element:
    """One element with its attributes and all text inside."""

    name: str
    attributes: dict[str, str]
    text: str = ""


class Page(HTMLParser):
    """A parsed page. ``unbalanced`` are end tags that close nothing that is open."""

    def __init__(self, status: int, html: str, address: str) -> None:
        super().__init__()
        self.status = status
        self.html = html
        self.address = address
        self.elements: list[Element] = []
        self.unbalanced: list[str] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1].name == tag:
            self._open.pop()
        else:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, name: str, **attributes: str) -> list[Element]:
        """The elements of a name with these attributes (``class_`` for one of its classes)."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            one
            for one in self.elements
            if one.name == name
            and all(
                value in one.attributes.get(key, "").split() if key == "class" else one.attributes.get(key) == value
                for key, value in wanted.items()
            )
        ]

    def one(self, name: str, **attributes: str) -> Element:
        found = self.all(name, **attributes)
        assert len(found) == 1, (name, attributes, [one.attributes for one in found])
        return found[0]

    @property
    def text(self) -> str:
        """What the main part says, white space folded."""
        return " ".join(self.one("main").text.split())

    @property
    def title(self) -> str:
        return " ".join(self.one("h1").text.split())

    def link(self, text: str) -> str:
        """Where the one link of this text leads."""
        found = {one.attributes.get("href", "") for one in self.all("a") if " ".join(one.text.split()) == text}
        assert len(found) == 1, (text, found)
        return found.pop()

    def links(self) -> list[str]:
        return [one.attributes.get("href", "") for one in self.all("a")]


@dataclass
class Reader:
    """Goes from page to page."""

    console: BridgeConsole
    _client: TestClient | None = field(default=None, repr=False)

    @property
    def client(self) -> TestClient:
        if self._client is None:
            self._client = TestClient(application(self.console), base_url="http://127.0.0.1", follow_redirects=False)
        return self._client

    def get(self, path: str, *, status: int | None = 200, **fields: str) -> Page:
        """The page at a path, redirects followed; fails on another status unless ``None``."""
        address = f"{path}{'&' if '?' in path else '?'}{urlencode(fields)}" if fields else path
        answer = self.client.get(address)
        while answer.status_code == 303:
            address = answer.headers["location"]
            answer = self.client.get(address)
        assert status is None or answer.status_code == status, (answer.status_code, re.sub(r"\s+", " ", answer.text))
        return Page(answer.status_code, answer.text, address)

    def post(self, path: str, fields: list[tuple[str, str]], *, token: str | None = None) -> tuple[int, str]:
        """Status and where it leads; with the session's token unless another one is given."""
        sent = [*fields, ("csrf", self.console.token if token is None else token)]
        answer = self.client.post(
            path, content=urlencode(sent), headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        return answer.status_code, answer.headers.get("location", "")

    def submit(self, page: Page) -> Page:
        """Send the page's one POST form of its main part as it stands, and follow."""
        form = next(one for one in page.all("form") if one.attributes.get("method") == "post"
                    and not one.attributes["action"].startswith(("/theme", "/session/")))  # fmt: skip
        at = page.elements.index(form)
        inputs = [one.attributes for one in page.elements[at:] if one.name == "input"]
        fields = [(one["name"], one.get("value", "")) for one in inputs if one["name"] != "csrf"]
        status, where = self.post(form.attributes["action"], fields)
        assert status == 303, (status, where)
        return self.get(where)
