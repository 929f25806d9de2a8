"""What keeps an open page current, and what a page looks like: change hints as a stream, and the choice of a theme.

A hint says that something changed and never what. Source: tools.md (Live state).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from starlette.responses import RedirectResponse, Response, StreamingResponse

from host_bridge.explorer.site import THEME_COOKIE, THEMES, Look
from messages.errors import KnowledgeError
from messages.json_types import JsonObject

YEAR_SECONDS = 365 * 24 * 3_600


async def hints(look: Look) -> Response:
    """The hints about the chosen agent's store. It ends with the session or the right to read."""
    stream = look.console.events(look.request, look.chosen)
    return StreamingResponse(
        _sent(stream), media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )


async def _sent(stream: AsyncIterator[JsonObject]) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    try:
        async for event in stream:
            yield f"event: {event.get('type')}\ndata: {json.dumps({'partition': event.get('partition')})}\n\n"
    except KnowledgeError as error:
        yield f"event: refused\ndata: {json.dumps({'code': error.code})}\n\n"


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
