"""One look at a page: who looks at whose store, what is asked, and how the answer becomes HTML.

Every view is a function of a :class:`Look`; what it raises becomes a page that says what happened and what to do. All
of it runs on the event loop of the HTTP door and waits for nothing but answers.

Source: stores-and-access.md (Manage stores, Caller authority); knowledge-more-facts.md section 8.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qs, quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from host_bridge.cli.status_words import counted
from host_bridge.explorer import words
from host_bridge.explorer.markdown import plain
from host_bridge.http.console import Console
from messages.errors import FailedClosed, InvalidArgument, KnowledgeError, NotFound, SnapshotChanged, Unavailable
from messages.json_types import JsonObject, JsonValue
from messages.operator import Operator
from messages.vocabulary import DEADLINE_DEFAULT_MS

HERE: Final = Path(__file__).parent
ASSETS: Final = HERE / "static"
THEMES: Final = ("light", "dark")
THEME_COOKIE: Final = "knowledge_theme"
FIELDS_MAX: Final = 2_000
FIRST_REQUEST: Final = "1a9c6d5e-0b7f-4c3d-9a52-6f1f0c8e7b44"
"""The request id of the command that makes a store: always this one, so that repeating it saves nothing twice."""

_STATUS: Final = {"denied": 403, "not_found": 404, "ambiguous": 409, "invalid_argument": 400, "limit_exceeded": 400}
_PLACES: Final = (
    ("/", "Activity & issues"), ("/recent", "Recent"), ("/browse", "Browse"), ("/search", "Search"),
    ("/timeline", "Timeline"), ("/due", "Due"),
)  # fmt: skip
_SETTINGS: Final = (
    ("/settings/stores", "Stores & sharing"), ("/settings/conversations", "Conversation access"),
    ("/settings/vocabulary", "Vocabulary"), ("/settings/vault", "Vault status"),
    ("/settings/maintenance", "Maintenance"),
)  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Look:
    """One request of one operator."""

    request: Request
    console: Console
    operator: Operator
    templates: jinja2.Environment
    agents: Sequence[JsonObject] = ()
    stores: Sequence[JsonObject] = ()
    refusal: JsonObject | None = None
    """Why what is shown may not be all, where an answer said so."""
    status_code: int = 200
    withheld: int = 0
    """Files that no answer covers, as the last one told."""

    # --- what was asked for ----------------------------------------------------------------------------

    @property
    def chosen(self) -> str | None:
        """The agent that the address names."""
        return self.text("agent")

    @property
    def agent(self) -> str:
        """Whose store is shown: the named agent's, else the first's that the operator sees; ``""`` without any."""
        return self.chosen or (str(self.agents[0]["agent"]) if self.agents else "")

    def text(self, name: str) -> str | None:
        """A field of the address; ``None`` for an empty one."""
        return self.request.query_params.get(name, "").strip() or None

    def whole(self, name: str, default: int = 0) -> int:
        """A field that is a whole number; ``default`` for anything else."""
        given = whole(self.text(name) or "")
        return default if given is None else given

    @property
    def path(self) -> str:
        return self.request.url.path

    @property
    def posted(self) -> bool:
        return self.request.method == "POST"

    # --- asking ------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: JsonObject | None = None) -> JsonObject:
        """The answer about the chosen agent's store; members of ``params`` that are ``None`` are left out."""
        given: JsonObject = {name: value for name, value in (params or {}).items() if value is not None}
        if self.chosen is not None and "agent" not in given:
            given["agent"] = self.chosen
        found = await self.console.ask(self.request, method, {"deadlineMs": DEADLINE_DEFAULT_MS, **given})
        refusal, coverage = found.get("refusal"), found.get("coverage")
        if isinstance(refusal, dict):
            self.refusal = refusal
        if isinstance(coverage, dict):
            self.withheld = sum(value for value in coverage.values() if isinstance(value, int))
        return found

    async def form(self) -> dict[str, list[str]]:
        """The fields of a POST, each with its values in order. The door has bounded its size and checked its token."""
        try:
            return parse_qs((await self.request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            raise InvalidArgument("This form cannot be read; open its page again.", field="form") from None

    # --- answering ---------------------------------------------------------------------------------------

    def link(self, path: str, /, **fields: JsonValue) -> str:
        """An address of the explorer about the same agent; fields that are ``None`` or empty are left out."""
        given = {name.rstrip("_"): str(value) for name, value in fields.items() if value not in (None, "", False)}
        if self.chosen is not None:
            given.setdefault("agent", self.chosen)
        return quote(path) + (f"?{urlencode(given)}" if given else "")

    def again(self, **changed: JsonValue) -> str:
        """This address with some fields changed; after a POST, which no link repeats, the place that it belongs to."""
        if self.posted:
            return self.link(place_of(self.path))
        return self.link(self.path, **{**dict(self.request.query_params), **changed})

    def moved(self, path: str, /, **fields: JsonValue) -> Response:
        """Go there with a GET."""
        return RedirectResponse(self.link(path, **fields), 303)

    def page(self, template: str, /, **values: object) -> Response:
        """The page; every value that is not :class:`Markup` is escaped."""
        shown = self.templates.get_template(template).render(look=self, **chrome(self.request), **values)
        return HTMLResponse(shown, self.status_code, headers={"Cache-Control": "no-store"})

    @property
    def csrf(self) -> Markup:
        """The hidden field that every form sends back."""
        return Markup('<input type="hidden" name="csrf" value="{}">').format(self.console.csrf(self.request))

    def may(self, scope: str) -> bool:
        """Whether the operator has a scope (``admin``, ``write``, ``read``)."""
        match scope:
            case "admin":
                return self.operator.may("operator.admin")
            case "write":
                return self.operator.may("operator.write")
            case _:
                return self.operator.may("operator.read")


def no_store(look: Look) -> Response:
    """The page of an agent that has no store yet, with a command that makes one."""
    said = "The club meets on Mondays."
    arguments = {"requestId": FIRST_REQUEST, "attribution": "me", "excerpt": said,
                 "items": [{"text": said, "kind": "fact"}]}  # fmt: skip
    whose = ["--agent", look.agent] if look.agent else []
    command = shlex.join(["knowledge", "call", "remember", json.dumps(arguments), *whose])
    return look.page("no_store.html", command=command)


View: TypeAlias = Callable[[Look], Awaitable[Response]]


class Site:
    """The explorer's routes on one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._templates = _templates()

    def route(self, path: str, view: View, *, post: bool = False) -> Route:
        """A view at a path. A POST changes something and is never answered to a GET."""

        async def answer(request: Request) -> Response:
            operator = self._console.operator(request)
            if operator is None:
                shown = self._templates.get_template("signed_out.html").render(**chrome(request))
                return HTMLResponse(shown, 401, headers={"Cache-Control": "no-store"})
            look = Look(request, self._console, operator, self._templates)
            try:
                if post:
                    await request.body()  # before anything is asked: asking listens for the client's leaving
                await _take_in(look)
                return await view(look)
            except KnowledgeError as error:
                return _told(look, error)

        return Route(path, answer, methods=["POST"] if post else ["GET"], name=f"{view.__module__}.{view.__name__}")


def chrome(request: Request) -> dict[str, object]:
    """What stands around every page."""
    theme = request.cookies.get(THEME_COOKIE, "")
    return {
        "theme": theme if theme in THEMES else "auto",
        "places": _PLACES,
        "settings": _SETTINGS,
        "here": request.url.path,
        "place": place_of(request.url.path),
        "version": _version(),
    }


def place_of(path: str) -> str:
    """The place of the navigation that a page belongs to, and which needs nothing but an agent to be shown."""
    for place, _ in (*_PLACES, *_SETTINGS):
        if path == place or (place != "/" and path.startswith(f"{place}/")):
            return place
    return "/recent"


async def nowhere(look: Look) -> Response:
    """What is at no other route."""
    raise NotFound("No page has this address; the navigation leads to those that there are.")


async def _take_in(look: Look) -> None:
    """The agents and stores that the operator sees. A lost registry is told by the page itself."""
    try:
        found = await look.ask("access.stores.list")
    except Unavailable:
        return
    look.agents, look.stores = rows(found, "agents"), rows(found, "stores")


def whole(text: str) -> int | None:
    """A whole number of at most 15 digits; ``None`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def rows(found: JsonObject, name: str) -> list[JsonObject]:
    """The objects in a list of an answer."""
    listed = found.get(name)
    return [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []


def member(found: JsonObject, name: str) -> JsonObject:
    """An object in an answer; an empty one where there is none."""
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _told(look: Look, error: KnowledgeError) -> Response:
    """What was refused, as a page."""
    if isinstance(error, SnapshotChanged):
        return RedirectResponse(look.again(offset=None, snapshot=None, changed=1), 303)
    if isinstance(error, NotFound) and error.fields.get("field") == "agent":
        return no_store(look)
    look.status_code = _STATUS.get(error.code, 503 if isinstance(error, Unavailable | FailedClosed) else 500)
    logger.info("a page was refused", extra={"code": error.code, "status": look.status_code})
    wrong = isinstance(error, InvalidArgument)
    return look.page("refused.html", error=error, wrong=wrong)


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for filter_ in (
        words.harmless, words.moment, words.instant, words.next_day, words.listing, words.size, words.amount,
        words.short, words.spaced, words.state_words, words.marked, plain,
    ):  # fmt: skip
        made.filters[filter_.__name__] = filter_
    made.filters["counted"] = counted
    return made


@cache
def _version() -> str:
    """Changes with the assets, so that a browser may keep them."""
    digest = hashlib.sha256()
    for path in sorted(ASSETS.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
