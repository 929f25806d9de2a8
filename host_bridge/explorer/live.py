"""What keeps an open page current, and what a page looks like: change hints as a stream, and the choice of a theme.

A hint says that something changed and never what. Source: tools.md (Live state).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from os import PathLike, stat_result

from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from host_bridge.explorer.site import THEME_COOKIE, THEMES, Look
from messages.errors import KnowledgeError
from messages.json_types import JsonObject

YEAR_SECONDS = 365 * 24 * 3_600


class Assets(StaticFiles):
    """The style and the modules; a browser asks each time whether its copy is still the same."""

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


async def hints(look: Look) -> Response:
    """The hints about the chosen agent's store. It ends with the session or the right to read."""
    return _Hints(look.console.events(look.request, look.chosen))


class _Hints(Response):
    """Server-sent events for as long as the console tells. Not a streaming response of Starlette's: that one listens
    for the client's leaving too, and would take the message that ends the console's stream."""

    media_type = "text/event-stream"

    def __init__(self, stream: AsyncIterator[JsonObject]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(data: str, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data.encode(), "more_body": more})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await put("retry: 2000\n\n")
        try:
            async for event in self._stream:
                await put(_event(str(event.get("type")), {"partition": event.get("partition")}))
        except KnowledgeError as error:
            await put(_event("refused", {"code": error.code}))
        await put("", more=False)


def _event(name: str, data: JsonObject) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def theme(look: Look) -> Response:
    """Keep the chosen theme in a cookie of this browser, and go back."""
    fields = await look.form()
    chosen, back = (fields.get(name, [""])[-1] for name in ("theme", "back"))
    answer = RedirectResponse(back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/", 303)
    if chosen in THEMES:
        answer.set_cookie(THEME_COOKIE, chosen, max_age=YEAR_SECONDS, httponly=True, samesite="strict")
    else:
        answer.delete_cookie(THEME_COOKIE, httponly=True, samesite="strict")
    return answer
