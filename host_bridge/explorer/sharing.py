"""Stores & sharing: each agent with its store, every known store, and the three moves with what each will do.

A move is a form, then a page that names its consequences, then one POST. Nothing here makes a store or copies a record.

Source: stores-and-access.md (Stores, Manage stores from the Control UI).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from starlette.responses import Response

from host_bridge.cli.stores import USE
from host_bridge.explorer.site import Look
from messages.access import STORE_NAME_MAX_CHARS
from messages.errors import InvalidArgument, NotFound
from messages.json_types import JsonObject
from messages.operator import parse_operator_call

Move: TypeAlias = Literal["share", "join", "own"]
TITLES: Final[dict[Move, str]] = {"share": "Share this store", "join": "Use shared store", "own": "Use own store"}
AFTER: Final = {"share": "named", "join": "named", "own": "own"}
"""What an agent uses after a move: an address alone, which anybody can write, says nothing of what was done."""
_RETRIEVED: Final = "It cannot take back what an agent has already read."


@dataclass(frozen=True, slots=True)
class Wish:
    """A move as a person has filled it in so far."""

    move: Move
    agent: str
    name: str = ""
    label: str = ""
    others: tuple[str, ...] = ()
    store: str = ""
    """The id of an unassigned store that gets the name by joining it."""

    @property
    def complete(self) -> bool:
        return self.move == "own" or bool(self.name)

    def params(self) -> JsonObject:
        """As the method of the move takes it."""
        match self.move:
            case "share":
                label: JsonObject = {"label": self.label} if self.label else {}
                return {"agent": self.agent, "name": self.name, "agents": [*self.others], **label}
            case "join":
                store: JsonObject = {"store": self.store} if self.store else {}
                return {"agent": self.agent, "name": self.name, **store}
            case "own":
                return {"agent": self.agent}


async def stores(look: Look) -> Response:
    """Everybody's store, and every store, those that nobody uses too."""
    done, of = look.text("done"), look.text("of")
    uses = next((row.get("store") for row in look.agents if row["agent"] == of), None)
    return look.page(
        "stores.html",
        agents_=[{**row, "moves": moves_of(row, look.stores)} for row in look.agents],
        stores=look.stores,
        use=USE,
        moves=TITLES,
        done=done if uses is not None and uses == AFTER.get(done or "") else None,
        of=of,
    )


async def move(look: Look) -> Response:
    """The form of a move; with everything filled in, what it will do."""
    fields = look.request.query_params
    wish = _wish(look, dict(fields), tuple(fields.getlist("with")))
    if not wish.complete:
        others = [row for row in look.agents if row["agent"] != wish.agent]
        return look.page("move_form.html", wish=wish, title=TITLES[wish.move], others=others, named=named(look.stores),
                         name_max=STORE_NAME_MAX_CHARS, used=USE)  # fmt: skip
    parse_operator_call(f"access.stores.{wish.move}", wish.params(), peer=look.operator)
    return look.page("confirm.html", title=TITLES[wish.move], question=_question(wish),
                     consequences=consequences(wish, look.agents, look.stores), fields=_fields(wish),
                     action=look.link(look.path), back=look.link("/settings/stores"), dangerous=False)  # fmt: skip


async def moved(look: Look) -> Response:
    """Do what was confirmed."""
    fields = await look.form()
    wish = _wish(look, {name: values[-1] for name, values in fields.items()}, tuple(fields.get("with", ())))
    await look.ask(f"access.stores.{wish.move}", wish.params())
    return look.moved("/settings/stores", done=wish.move, of=wish.agent)


def moves_of(agent: JsonObject, listed: Sequence[JsonObject]) -> list[Move]:
    """What can be done for an agent."""
    moves: list[Move] = []
    if agent.get("store") == "own" and "vaultId" in agent:
        moves.append("share")
    if any(store.get("name") != agent.get("name") for store in named(listed)):
        moves.append("join")
    if agent.get("store") != "own":
        moves.append("own")
    return moves


def named(listed: Sequence[JsonObject]) -> list[JsonObject]:
    """The stores that have a name, and those of a name that the configuration no longer holds."""
    return [store for store in listed if store.get("name")]


def consequences(wish: Wish, agents: Sequence[JsonObject], listed: Sequence[JsonObject]) -> list[str]:
    """What the move will do and what it will not, a sentence each."""
    match wish.move:
        case "share":
            said = [
                f"The store of {wish.agent} is renamed to “{wish.name}”; it is not copied.",
                f"All agents that use it read and save the same records, also those of {wish.agent} so far.",
            ]
            for row in agents:
                if row["agent"] in wish.others:
                    using = f"the shared store “{row.get('name')}”" if row.get("store") == "named" else "its own store"
                    said.append(f"{row['agent']} now uses {using} and switches; nothing of that is moved or merged.")
            said.append(
                f"If {wish.agent} later chooses its own store, it gets a new, empty one. There is no hidden private "
                "copy."
            )
            return said
        case "join":
            return [
                f"{wish.agent} reads and saves in “{wish.name}” from now on, everything in it included.",
                f"Nothing from {wish.agent}'s current store is moved or merged; that store stays as it is.",
            ]
        case "own":
            if any(row["agent"] == wish.agent and row.get("store") == "own" for row in agents):
                return [f"{wish.agent} uses its own store already; nothing changes."]
            own = any(store.get("kind") == "isolated" and store.get("agents") == [wish.agent] for store in listed)
            where = "its previous own store" if own else "a new, empty store, which is created on its first use"
            return [
                f"{wish.agent} returns to {where}.",
                "Nothing from the shared store is copied or removed.",
                f"This stops future reads and saves of {wish.agent} there. {_RETRIEVED}",
            ]


def _question(wish: Wish) -> str:
    match wish.move:
        case "share":
            return f"Share the store of {wish.agent} as “{wish.name}”?"
        case "join":
            return f"Let {wish.agent} use “{wish.name}”?"
        case "own":
            return f"Let {wish.agent} use its own store?"


def _fields(wish: Wish) -> list[tuple[str, str]]:
    """Those of the confirming form."""
    fields = [("of", wish.agent), ("name", wish.name), ("label", wish.label), ("store", wish.store)]
    return [(name, value) for name, value in fields if value] + [("with", other) for other in wish.others]


def _wish(look: Look, fields: dict[str, str], others: tuple[str, ...]) -> Wish:
    """Raises ``NotFound`` for another move or an agent that is not there."""
    wanted = str(look.request.path_params["move"])
    agent = fields.get("of", "").strip()
    known = {str(row["agent"]) for row in look.agents}
    for move in TITLES:
        if move == wanted and agent in known:
            name, store = fields.get("name", "").strip(), fields.get("store", "").strip()
            if move == "join" and name:
                if all(row.get("name") != name for row in named(look.stores)):
                    raise NotFound("There is no shared store of that name; go back to Stores & sharing.", field="name")
                store = _unassigned(look.stores, name, store)
            unknown = sorted(set(others) - known)
            if unknown:
                raise InvalidArgument(f"There is no agent {unknown[0]} here.", field="with", reason="unknown")
            return Wish(move, agent, name, fields.get("label", "").strip(), others, store)
    raise NotFound("There is no such agent or move; go back to Stores & sharing.", field="of")


def _unassigned(listed: Sequence[JsonObject], name: str, store: str) -> str:
    """The id that a store which lost its entry is joined by."""
    for row in listed:
        if row.get("name") == name and row.get("use") == "unassigned":
            return str(row.get("vaultId"))
    return store
