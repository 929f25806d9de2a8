"""The commands that serve agents, hosts and browsers."""

from host_bridge.cli.manual.shared import CALLER, STATE

PAGES = {
    "call": f"""\
knowledge call TOOL [JSON] - call one tool and print its answer

TOOL is a tool's name, with or without `knowledge_`. JSON is one object with its arguments; `-` reads it from stdin;
left out it is {{}}.

{CALLER}
  --deadline-ms N                give up after N milliseconds (1 to 600000, default 30000)
  --json                         one compact line; failures as {{"error": {{...}}}} on stderr
{STATE}

Examples:
  knowledge call status --json
  knowledge call lookup '{{"query": "Lighthouse"}}'
  echo '{{"query": "budget"}}' | knowledge call grep -
""",
    "demo": f"""\
knowledge demo - do the main job on two weeks of a small project's chat, a meeting and a folder of notes

It starts an owner of its own in a folder that goes away again, fills a memory, searches it, edits a page behind its
back, kills the owner in the middle of a write and shows what came back. It needs no model and no network.

  --json                         print one JSON object instead of the story
  --plain                        no colours and no progress, as in a pipe
{STATE}, which must be new; the result stays there

Example:
  knowledge demo --state-dir ./demo
""",
    "http": f"""\
knowledge http key [--rotate]            the host's key for the HTTP door
knowledge http operator ID [--rotate]    the key of a configured operator
knowledge http revoke ID | --host        end a key
knowledge http list                      who has a key, and since when

A key is printed once, alone on stdout; only its hash is kept. It is sent as `Authorization: Bearer KEY`. The host's key
may name any caller: give programs that speak for one caller a token instead (`knowledge help audience`). An operator's
key has the scopes and agents that `operators` in the configuration says now, and never calls tools.

  --rotate                       there is a key already: make another, and end that one at once
  --json                         one compact line
{STATE}

Examples:
  knowledge http key --rotate
  knowledge http list --json
""",
    "mcp": f"""\
knowledge mcp - speak MCP on stdin and stdout

For the configuration of an MCP client. It copies bytes to the owner, which speaks the protocol; any number may run at
once. When the owner dies it starts another and goes on.

{CALLER}
  --profile P                    which tools are offered: core (default; search, read, remember, pages), read (all that
                                 save nothing), full (all), or simple (knowledge_grep and knowledge_remember alone)
{STATE}

Example (most clients):
  {{"mcpServers": {{"knowledge": {{"command": "/absolute/path/to/knowledge", "args": ["mcp"]}}}}}}

Beside tools it offers resources to attach, knowledge://index and knowledge://page/{{id}}, and the prompts recall and
save_session, where the profile has their tools. The index is that of the session's start.

With --simple it offers two other tools alone, remember and recall, on one directory, and needs no owner (`knowledge
help memory`). What is remembered so is stripped of what could pass for structure of a prompt.

  --simple                       remember and recall alone
  --memory-dir DIR               their directory (default: $KNOWLEDGE_MEMORY_DIR, else ./agent_memory)
""",
    "memory": f"""\
knowledge memory remember TEXT      keep a note; `-` reads it from stdin
knowledge memory recall [QUERY]     what is about these words, the best first; without words the most important
knowledge memory context            what an agent's prompt should hold: persistent facts, then recent notes
knowledge memory facts              the persistent facts, by category
knowledge memory log                what was remembered lately, the oldest first; a star marks what is persistent
knowledge memory prune              remove old daily logs, with the notes of those days that are not persistent
knowledge memory clear              forget everything
knowledge memory import             take its facts and notes into a store: claims with evidence, pages for categories

An agent's small memory: one directory with MEMORY.md, which people edit, and a log for each day. It is the one that
KnowledgeMemory in Python and `knowledge mcp --simple` use, all at once if need be; only `import` needs an owner.

  --dir DIR                      the directory (default: $KNOWLEDGE_MEMORY_DIR, else ./agent_memory)
  --category C --persistent      remember: file it under C; keep it for good, in MEMORY.md too
  --importance N --ttl-days N    remember: from 0 to 1 (default 0.5); forget it after so many days
  --limit N                      recall (default 5), log (default 50): at most so many
  --ranking R                    recall: bm25 (default), or tokens, which counts words that occur anywhere
  --days N                       log (default 7), prune (default 30): so many days before today
  --entries N --max-chars N      context: so many recent notes (default 50); so long as a whole
  --logs                         clear: only the logs and what is not persistent
  --yes                          clear: do not ask
  --dry-run --facts-only         import: only say what it would do; leave the notes of the logs out
  --agent A                      import: into whose store (default: the first agent of the configuration)
  --json                         one compact line
{STATE}, of the import

An import that was interrupted goes on when it is run again, and a repeat doubles nothing.

Examples:
  knowledge memory remember "Prefers dark mode" --category preferences --persistent
  knowledge memory recall "editor preferences"
  knowledge memory context --dir ~/agents/ana/memory
""",
    "serve": f"""\
knowledge serve - own the state directory in the foreground, until Ctrl-C, SIGTERM or `knowledge stop`

It takes over from an idle background owner; from a busy one it does not, and says who it is. Its log is
knowledge/owner.log in the state directory. Ended by Ctrl-C, SIGTERM or `knowledge stop`, its exit status is 0.

  --http HOST:PORT               also serve HTTP there (port 0: a free one, which stderr names). Without it, where
                                 `http.listen` is written in the configuration. Keys: `knowledge help http`
  --insecure-bind                with --http: plain text on an address that other machines reach
  --stdio                        also speak the host protocol (knowledge-host/1) on stdin and stdout: one JSON-RPC
                                 object a line. Ends when stdin does. When another owner is busy, it serves this host;
                                 else the log, warnings and the recall gate's lines, goes to stderr.
{STATE}

Examples:
  knowledge serve
  knowledge serve --http 127.0.0.1:8765
  echo '{{"jsonrpc": "2.0", "id": 1, "method": "tools.list", "params": {{"format": "mcp"}}}}' | knowledge serve --stdio
""",
    "skills": f"""\
knowledge skills                        list the procedures for agents that come with this package
knowledge skills export DIR [NAME...]   copy them, or some of them, to DIR/<name>/SKILL.md

Each skill is a short text that an agent's host can load: how to answer from memory, to save, to read documents and
meetings in, to keep one page a person, to correct, to follow a changing source, and to let the host do that regularly.
Export writes all files or none: it stops at a file that is there and differs.

  --overwrite                    export: replace files that are there
  --json                         one compact line
{STATE} (not needed here)

Examples:
  knowledge skills --json
  knowledge skills export ~/.claude/skills knowledge-recall knowledge-capture
""",
    "stop": f"""\
knowledge stop - end the owner: running calls may finish, then it closes its databases

Nothing to stop is no failure. Clients that stay connected start another when they next need one.

  --json                         one compact line
{STATE}

Example:
  knowledge stop
""",
    "ui": f"""\
knowledge ui - open the pages in a browser

The owner serves them on this machine alone, at a free port unless it serves HTTP already. The link works once, within
five minutes, and becomes a cookie of the browser; the session ends after two hours without a page, or twelve in all.

  --print-url                    print the link instead of starting a browser
  --read-only                    a session that changes nothing
  --plain-host                   a link to 127.0.0.1, for a browser that does not know that names below localhost are
                                 this machine; then any server of this machine that it visits can use the session
  --json                         one compact line
{STATE}

Examples:
  knowledge ui --print-url
  knowledge ui --print-url --read-only --json
""",
}
