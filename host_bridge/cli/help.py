"""What ``knowledge --help`` and ``knowledge help COMMAND`` teach. Texts; their examples are run by a test."""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.manual import PAGES

OVERVIEW = """\
knowledge - a memory for AI agents: facts with their evidence, in Markdown that people can edit

  knowledge demo                     watch it do its main job, on a throw-away state directory
  knowledge mcp                      the server to put into an MCP client's configuration
  knowledge memory ...               an agent's small memory in a directory: remember, recall, context, facts, log
  knowledge call TOOL '{...}'        call one tool, as the agent would
  knowledge status                   is an owner running, how is it, and what should you know?
  knowledge inspect ...              look into a store: recent, search, one record, history, activity, vocabulary
  knowledge adopt PATH...            make pages of plain Markdown files that lie in the vault
  knowledge stores ...               who uses which store: list, share one, join one, go back to one's own
  knowledge conversation ...         which conversations read an agent's memory; export or erase one's own
  knowledge grants ...               the grants alone, as the host protocol calls them: list, set, remove
  knowledge audience ...             signed tokens that stand for a caller: mint, revoke, list
  knowledge doctor                   what is wrong, whatever is broken, and the command that mends it
  knowledge backup DEST              copy every store, verified, while agents go on
  knowledge repair                   mend stores: a lost database, missing files, a damaged index or .git
  knowledge restore SRC              put a backup into an empty state directory, or prove that it is sound
  knowledge store ...                decide about one store: move it, adopt its vault as it is, accept deletions
  knowledge maintenance run|status   look after the stores now, or see when that happens and what it found
  knowledge gate ...                 what the recall gate did: replay its log, find a threshold
  knowledge kb build|search          what people have reviewed: compile it into one file, and search it
  knowledge system-memory ...        what a network of agents observed: admit it, dispute it, promote it into review
  knowledge skills                   procedures for agents: list them, or copy them into a folder
  knowledge serve                    own the state directory in the foreground
  knowledge http ...                 keys of the HTTP door: make, rotate, revoke, list
  knowledge ui                       open the pages in a browser
  knowledge stop                     end the owner
  knowledge help COMMAND             options, examples and exit statuses of one command (also COMMAND --help)
  knowledge help TOOL                arguments of one tool, with an example; `knowledge help call` lists them
  knowledge --version

One process owns a state directory; every other command talks to it, and starts one in the background when there
is none. The state directory is --state-dir DIR, else $KNOWLEDGE_STATE_DIR, else $OPENCLAW_STATE_DIR, else ~/.knowledge.

First steps:
  knowledge call status
  knowledge call remember '{"requestId": "6f6e3f0e-52a5-4c33-8e7f-0d2f7c0f9a11", "attribution": "Ana, stand-up",
      "excerpt": "Ana: we ship on Friday.", "items": [{"text": "The team ships on Friday.", "kind": "commitment"}]}'
  knowledge call grep '{"query": "ships friday"}'

requestId is any fresh UUID: repeating a command with the same one saves nothing twice.
"""

# The exit statuses of each command beside those that all have.
_ENDS = {
    "adopt": "345",
    "audience": "345",
    "backup": "3456",
    "call": "345",
    "conversation": "345",
    "grants": "345",
    "demo": "",
    "doctor": "3456",
    "gate": "3",
    "http": "345",
    "inspect": "345",
    "kb": "34",
    "maintenance": "345",
    "mcp": "345",
    "memory": "345",
    "repair": "346",
    "restore": "34",
    "serve": "345",
    "skills": "3",
    "status": "345",
    "stop": "345",
    "store": "345",
    "stores": "345",
    "system-memory": "345",
    "ui": "345",
}


def show(command: str | None) -> int:
    """Print the overview, one command's page or one tool's."""
    if command is None:
        output.emit(OVERVIEW.rstrip())
        return exits.OK
    if command in PAGES:
        tools = f"\nTools (knowledge help TOOL has the arguments of one):\n{_tools()}\n" if command == "call" else ""
        output.emit(f"{PAGES[command]}{tools}\nExit status:\n{_statuses(command)}")
        return exits.OK
    return show_tool(command)


def show_tool(word: str) -> int:
    """Print the page of the tool that the word names."""
    from host_bridge.cli import tool_help  # the catalogue is more than a thin client may load

    name = tool_help.full_name(word)
    if name is None:
        output.complain(f"knowledge: there is no command and no tool {word!r}. Try: knowledge --help")
        return exits.USAGE
    output.emit(tool_help.page(name))
    return exits.OK


def _tools() -> str:
    from host_bridge.cli import tool_help

    return tool_help.tools()


def _statuses(command: str) -> str:
    """The rows of the table that the command can end with; 0, 1, 2 and 130 are everybody's."""
    rows = (exits.__doc__ or "").split("=\n")[1].splitlines()[:-1]
    kept = f"012{_ENDS[command]}"
    return "\n".join("  " + row for row in rows if row.startswith(("130", *kept)))
