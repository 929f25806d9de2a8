"""What ``knowledge --help`` and ``knowledge help COMMAND`` teach. Texts; their examples are run by a test."""

from __future__ import annotations

from host_bridge.cli import exits, output

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

_CALLER = """\
  --agent A                      act as the owner of agent A (default: the first agent of the configuration)
  --conversation KEY --session UUID
                                 act as that conversation instead of the owner"""
_STATE = "  --state-dir DIR                the state directory"

COMMANDS = {
    "adopt": f"""\
knowledge adopt PATH... - make pages of plain Markdown files that lie in the vault

Each file gets the envelope that a record needs: an id, a title (its first heading, else its name) and a type (by its
folder, else note). Every byte of its text stays; a frontmatter keeps its keys and comments. All files or none. PATH is
a file of the agent's private folder, or a path below that folder as `knowledge status` shows it. For a whole vault
that does not fit its database there is another command: `knowledge store adopt`.

  --type T                       the page type, instead of the one that the folder suggests
  --agent A                      whose vault (default: the first agent of the configuration)
  --json                         the receipt on one line
{_STATE}

Example:
  knowledge adopt notes/reading-list.md people/ada.md
""",
    "audience": f"""\
knowledge audience mint --agent A [--for TIME] ...   a signed token that stands for a caller
knowledge audience revoke ID                         end a token before its time
knowledge audience list [--agent A] [--limit N]      the tokens that have not expired, and those that were revoked

A token is for a program that speaks for a caller and is not trusted to name one: it gives exactly that caller's access,
until it expires, is revoked, or its run ends. Over JSON-RPC it stands in the place of the `audience`, as shown below.
It is good for this state directory only. `mint` prints the token alone on stdout; it is kept nowhere, and nothing shows
it again.
When `revoke` answers, nothing under the token is saved or answered any more. `knowledge stores audit` has both.

  --agent A                      the owner of agent A (list: only the tokens of A)
  --conversation KEY --session UUID
                                 that conversation of the agent instead of the owner
  --for TIME                     how long, at most 30d: 45m, 12h, 7d (default 1h)
  --run R --account A            the run whose end ends the token; the account that it acts for
  --sandboxed                    a caller that must reach nothing
  --root JSON                    the audience that delegated to this one, as an object of the host protocol
  --json                         one compact line
{_STATE}

Examples:
  knowledge audience mint --agent main --for 12h
  knowledge audience mint --agent main --conversation chat:group:42 --session 3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d
  knowledge audience list --json

How it is used, in one line to `knowledge serve --stdio`:
  {{"jsonrpc": "2.0", "id": 1, "method": "tools.call", "params":
      {{"audience": "eyJ...", "tool": "knowledge_grep", "arguments": {{"query": "ships"}}}}}}
""",
    "backup": f"""\
knowledge backup DEST                 copy every store, while agents go on, into the new folder DEST
knowledge backup --store ID DEST      copy one store, with its agents' grants

Each store is copied at one generation: database, Markdown files, originals, conversations, whatever else lies in the
vault, and the registry and knowledge.yaml. DEST appears when it is whole; people can read it, and backup.json has the
SHA-256 of every file. Not in it: keyword indexes and .git, which are built again. Ctrl-C ends this command, not the
backup.

  --all                          every store, which is the default
  --dry-run                      say what it would hold, and whether there is room; write nothing
  --json                         one compact line
{_STATE}

Examples:
  knowledge backup ~/backups/monday
  knowledge backup --dry-run ~/backups/tuesday --json
""",
    "call": f"""\
knowledge call TOOL [JSON] - call one tool and print its answer

TOOL is a tool's name, with or without `knowledge_`. JSON is one object with its arguments; `-` reads it from stdin;
left out it is {{}}.

{_CALLER}
  --deadline-ms N                give up after N milliseconds (1 to 600000, default 30000)
  --json                         one compact line; failures as {{"error": {{...}}}} on stderr
{_STATE}

Examples:
  knowledge call status --json
  knowledge call lookup '{{"query": "Lighthouse"}}'
  echo '{{"query": "budget"}}' | knowledge call grep -
""",
    "conversation": f"""\
knowledge conversation list [--agent A]                       who reads the memory of agent A
knowledge conversation grant --agent A KEY read|read-save     let a conversation read it, or read and save
knowledge conversation revoke --agent A KEY                   take that back
knowledge conversation export --agent A SESSION DIR           write what a conversation itself holds into a new folder
knowledge conversation erase --agent A SESSION --dry-run|--yes   leave nothing of it in the store

A group or channel has a memory of its own. A grant opens the agent's private one to the conversation with that session
key, and to every session whose key goes on after it with a colon; the most specific grant counts. It holds at once. A
grant that is taken back stops what follows; it cannot take back what was read.

export: SESSION is the conversation's UUID, the name of its folder below conversations/ in the vault (`knowledge
status` shows where that lies), not its key. DIR gets its files
as they are, its history with every text, and SHA256SUMS; it must not exist yet. The store waits meanwhile.
erase: its records, revisions, evidence, receipts and index go, and cannot be brought back; nothing else does, nor
what it saved under a grant, which lies in the private memory. The local Git history is made anew without it:
--discard-git where it also holds commits of your own, which are lost. Backups and exports are yours to delete. A
crash on the way is finished when the store is next opened.

  --json                         one compact line
{_STATE}

Examples:
  knowledge conversation grant --agent main chat:group:42 read
  knowledge conversation list
  knowledge conversation export --agent main 3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d ./chat
  knowledge conversation erase --agent main 3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d --dry-run
""",
    "demo": f"""\
knowledge demo - do the main job on two weeks of a small project's chat, a meeting and a folder of notes

It starts an owner of its own in a folder that goes away again, fills a memory, searches it, edits a page behind its
back, kills the owner in the middle of a write and shows what came back. It needs no model and no network.

  --json                         print one JSON object instead of the story
  --plain                        no colours and no progress, as in a pipe
{_STATE}, which must be new; the result stays there

Example:
  knowledge demo --state-dir ./demo
""",
    "doctor": f"""\
knowledge doctor [--store ID]             what is wrong, and the command that mends it
knowledge doctor rebuild WORD... --yes    make a lost registry anew from the stores that are on disk

Looking reads only, starts no owner, and works whatever is broken: configuration, registry, a database, a folder
that is gone. Where an owner runs, it is asked, and names stores that it took out of service. --store ID looks at one
store in all its parts: every file against catalogue and history, the keyword indexes, Git (when no owner runs). Without
it no note is read: one that is gone or cut short, or damage of Git, is found with --store only.

The registry says whose each store is; when registry.sqlite is missing, emptied or damaged
while stores exist, nothing is served, and putting it back from a backup is best. Without one, `rebuild` makes a new
one; the stores do not say whose they are, so you do, one WORD a store (who wrote in it is shown to help):

  agent:NAME=ID                  the store is agent NAME's own
  store:NAME=ID                  it is the named store NAME of the configuration
  nobody=ID                      it is known and unassigned
  place=PATH                     a store that does not lie in the state directory; name its ID too

  --json                         one compact line
{_STATE}

Examples:
  knowledge doctor --json
  knowledge doctor --store 6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11
  knowledge doctor rebuild agent:main=6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11 --yes
""",
    "gate": f"""\
knowledge gate replay [LOG]               what the recall gate did, and what other thresholds would have injected
knowledge gate tune LABELS [LOG]          precision and recall of each threshold, from turns that you labelled

The gate logs one line a user turn, ids and scores only. LOG is a log with such lines, text or JSON; left out, the
owner's. In `shadow` mode nothing is injected, so a threshold can be found before anybody sees its effect. Lines that
are cut are named on stderr and left out.

tune: LABELS is a text file, columns apart by tabs, named by its first line: turn (the turn's id, `turn` in the
owner's log), page (a record's id), relevant (1: the page helps to answer the turn's message, 0: it does not). Label
every page of a turn that was scored, and relevant ones that were not: these count as missed. Suggested is the lowest
threshold that reaches the precision.

  --precision P                  tune: how many of the injected pages shall be relevant (default 0.8)
  --json                         one compact line, complete
{_STATE}

Examples:
  knowledge gate replay
  knowledge gate replay gate.log --json
  knowledge gate tune labels.tsv --precision 0.9
""",
    "grants": f"""\
knowledge grants list [--agent A]                       who reads the memory of agent A
knowledge grants set --agent A KEY read|read-save       let a conversation read it, or read and save
knowledge grants remove --agent A KEY                   take that back

The same as `knowledge conversation list`, `grant` and `revoke`, whose help says what a grant opens.

  --json                         one compact line
{_STATE}

Examples:
  knowledge grants set --agent main chat:group:42 read
  knowledge grants list --json
""",
    "inspect": f"""\
knowledge inspect recent                what was updated last
knowledge inspect records               browse everything, by type, tag, state and dates
knowledge inspect tags                  the tags to browse by, most used first
knowledge inspect search QUERY          ranked words, with excerpts
knowledge inspect lookup NAME           an exact id, title or alias
knowledge inspect record ID             one record whole: text, fields, state, evidence, where it lies
knowledge inspect connections ID        relationships, claims with their evidence, links and backlinks
knowledge inspect timeline              current records by a date
knowledge inspect history [ID]          revisions of the store or of one record, edits by hand included
knowledge inspect vocabulary [NAME]     types and labels, with how many records each has
knowledge inspect activity              publications, what is unfinished, Git, and the first findings
knowledge inspect diagnostics           which files cannot be read as records, and why

It saves nothing and creates no store. In words it shows a part; --json gives the complete answer.

  --kind K --type T --tag T      only these (recent, records, search, lookup)
  --lifecycle L                  active (default), superseded, all; recent and records also withdrawn, merged,
                                 expired, invalid, fixture
  --since D --until D            only in this interval, by --time-field occurred, recorded, updated or due
  --match TEXT --origin O        records: part of an id, title or alias; source, user_belief or agent_inference
  --order O --descending         records: recorded, updated or title; timeline: asc or desc
  --mode M                       search: all, any or phrase
  --path FILE                    record: which of several files with one id
  --direction D --historical     connections: only this direction; superseded records too
  --subject P --owner P          timeline: only about this page, only owned by it; --claim-kind K
  --view V                       vocabulary: catalog, definitions, sources or diagnostics
  --limit N --offset N           how many, and from where; activity: --before SEQUENCE; record: --max-chars N,
                                 --evidence-offset N
  --agent A                      whose store (default: the first agent of the configuration)
  --json                         one compact line, complete
{_STATE}

Examples:
  knowledge inspect recent
  knowledge inspect search "budget" --type project --json
  knowledge inspect records --lifecycle invalid
""",
    "kb": f"""\
knowledge kb build STANCES DOCS -o FILE    compile reviewed stances and a folder of Markdown into one file
knowledge kb search FILE QUERY             what in it speaks to a question, the best first

STANCES is stances.json: an array of positions that people have reviewed, each with id (lower-case words joined by
hyphens), title, questions, state, answer, sources and date (of the review). Every problem of it is listed at once, with
the stance and the line. DOCS is a folder; each .md file below it gives its title, headings, first paragraph and tags.
Links in it are not followed. FILE is replaced as a whole; the same input gives the same bytes. It holds each stance's
digest, which a promotion names: `build` and `search` show it with --json.

A word of the question with three or more bytes counts 3 where a title or one of a stance's questions has it, 2 in a
state, a heading or a tag, 1 in an answer or a first paragraph. A question without such a word is refused.

  -o FILE, --output FILE         build: the file to write
  --limit N                      search: at most so many, from 1 to 10 (default 3)
  --note                         search: the note for a model instead, of at most two with a score of 5 or more
  --json                         one compact line
{_STATE} (not needed here)

Examples:
  knowledge kb build stances.json docs/ -o kb.json
  knowledge kb search kb.json "Can agents be paid yet?" --limit 5
  knowledge kb search kb.json "Can agents be paid yet?" --note
""",
    "maintenance": f"""\
knowledge maintenance run [--agent A]     look after every store now, or after the store of one agent
knowledge maintenance status              the schedule, the next and the last run, and each store's last result

A run links claims whose page exists by now, verifies every evidence file against its hash, compares the files with
history, checks database, keyword index and Git, and lists likely duplicate pages, sources that nobody cites, and how
much room is left. It removes nothing, asks no model, and lets every other request go first. With writesEnabled: false
it only checks. It also runs by itself, as the configuration says (maintenance: {{every: 24h, at: "03:30"}}); a time
that was missed because no owner ran is made up for. Ctrl-C ends this command, not the run.

  --agent A                      run: only the store of agent A
  --json                         one compact line
{_STATE}

Examples:
  knowledge maintenance run
  knowledge maintenance status --json

Exit status of `run`: 0 when every store was looked after, whatever was found; else that of the first that was not.
""",
    "mcp": f"""\
knowledge mcp - speak MCP on stdin and stdout

For the configuration of an MCP client. It copies bytes to the owner, which speaks the protocol; any number may run at
once. When the owner dies it starts another and goes on.

{_CALLER}
  --profile P                    which tools are offered: core (default; search, read, remember, pages), read (all that
                                 save nothing), full (all), or simple (knowledge_grep and knowledge_remember alone)
{_STATE}

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
{_STATE}, of the import

An import that was interrupted goes on when it is run again, and a repeat doubles nothing.

Examples:
  knowledge memory remember "Prefers dark mode" --category preferences --persistent
  knowledge memory recall "editor preferences"
  knowledge memory context --dir ~/agents/ana/memory
""",
    "repair": f"""\
knowledge repair [--store ID] [PART...]      mend what is wrong with the stores; without PART only that
knowledge repair --dry-run                   say what it would do; change nothing

It is the owner meanwhile: an idle background owner makes room, a busy one is named (end it with `knowledge stop`).
PART makes a part anew whatever it looks like: catalogue, files, index, git, and with --store ID also database.

database    a state.sqlite that is lost or damaged is set aside, and built anew from the vault, when you say --yes: what
            that cannot bring back is listed (history, receipts, approvals). A backup is better where there is one.
catalogue   the rows that lists and lookups read, from the files
files       files that are missing, or hold only the beginning of their text, from history; an edit of yours is taken
            over and never replaced. With `files` every shortened file counts as damaged, without it only a broken one.
index       keyword indexes that are damaged, or all
git         a .git that is missing or damaged, from history; the old one is set aside

  --yes                          build a lost database anew
  --json                         one compact line
{_STATE}

Examples:
  knowledge repair --dry-run
  knowledge repair files
""",
    "restore": f"""\
knowledge restore SRC - put the backup in the folder SRC into an empty state directory

Every byte is verified before anything is in place, and a file that differs, is missing or is one too many is refused by
name. Records, history and receipts are those of the backup. A knowledge.yaml that is there already stays. To replace a
state directory, move its `knowledge` folder away first; nothing is ever overwritten.

  --dry-run                      verify everything; write nothing. While your own state directory is in use, name a
                                 new one: --state-dir ~/new
  --json                         one compact line
{_STATE}

Examples:
  knowledge restore --dry-run --state-dir ~/new ~/backups/monday
  knowledge restore --state-dir ~/new ~/backups/monday
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
{_STATE}

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
{_STATE} (not needed here)

Examples:
  knowledge skills --json
  knowledge skills export ~/.claude/skills knowledge-recall knowledge-capture
""",
    "status": f"""\
knowledge status - is an owner running, how is it, and what should you know?

It starts and creates nothing. Of a running owner it says in about a dozen lines whether all is well, where the store
of an agent lies and what it holds, what recovery did, which files cannot be read as records, and what you can do.

  --agent A                      whose store (default: the first agent of the configuration)
  --live                         start an owner when there is none
  --verbose                      also more of the findings, and every part of the runtime with its counts
  --json                         one compact line, complete
{_STATE}

Example:
  knowledge status --json
""",
    "store": f"""\
knowledge store accept-deletions [--agent A]   record a loss of files that was refused because it was most of them
knowledge store adopt [--agent A] --yes        take the vault as it is, when it and the database disagree
knowledge store relocate ID PATH               move a store's folder; PATH must not exist yet
knowledge store release ID                     put a store back into service that was taken out of it

These decide about one store that is there. Which agent uses which store: `knowledge stores`.

accept-deletions: when most of a partition is gone at once (a disk that is not mounted, an emptied folder), nothing is
recorded until you say so. Putting the files back needs no command.
adopt: for a store that says vault_older_than_database, database_older_than_vault, checkpoint_conflict or
manifest_missing. Restoring the half that matches is the other way. Nothing that history holds is lost. To make
pages of plain Markdown files: `knowledge adopt`.
relocate: by rename on one disk, else as a copy that is compared with its original before that goes. `knowledge status`
shows the ID. For a folder that you moved by hand, name the place where it lies now.
release: a store that crashed again and again, or whose database is damaged, is out of service. `knowledge doctor` says
why; mend that first.

  --json                         one compact line
{_STATE}

Examples:
  knowledge store accept-deletions
  knowledge store adopt --yes
  knowledge store relocate 6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11 /data/knowledge-store
""",
    "stores": f"""\
knowledge stores list                                     every agent with its store, and every store
knowledge stores show WORD                                one store, by its id, its name or its agent
knowledge stores share --agent A NAME [AGENT...]          name A's own store and let other agents use it too
knowledge stores join --agent A NAME [--store ID]         let A use a named store
knowledge stores own --agent A                            let A use its own store again, or a new one
knowledge stores audit [--limit N]                        who bound, moved and granted what, and when

These decide who uses a store. To move, release or mend one: `knowledge store`, `knowledge repair`.

share: the store is renamed, not copied; A has no other copy of it. Agents of another named store switch to this one.
join: nothing moves; A's own store stays as it is. A store that was taken out of the configuration is joined by its
name; one that has no name at all by --store ID, which gives it the name.
own: nothing is copied or removed. After `share`, that is a new empty store, created when A first uses it.
All three edit the `stores` of knowledge.yaml, nothing else of it, and take effect at once.

  --label TEXT                   share: what people call the store
  --json                         one compact line
{_STATE}

Examples:
  knowledge stores list
  knowledge stores share --agent main --label Family family research
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
{_STATE}

Examples:
  knowledge ui --print-url
  knowledge ui --print-url --read-only --json
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
{_STATE}

Examples:
  knowledge http key --rotate
  knowledge http list --json
""",
    "stop": f"""\
knowledge stop - end the owner: running calls may finish, then it closes its databases

Nothing to stop is no failure. Clients that stay connected start another when they next need one.

  --json                         one compact line
{_STATE}

Example:
  knowledge stop
""",
    "system-memory": f"""\
knowledge system-memory observe --account A --slug S --body B --tier T --as-of D --evidence E...
knowledge system-memory challenge ID --account A --ground G [--evidence E...]
knowledge system-memory admit ID --steward A --verdict admitted|rejected --ground G
knowledge system-memory refute CHALLENGE --steward A --ground G
knowledge system-memory supersede ID --account A|--steward A --slug S --body B --tier T --as-of D --evidence E...
knowledge system-memory promote ID --steward A --stance STANCE --slug S --evidence E...
knowledge system-memory status [ID]                how many claims of each status there are, or the status of one
knowledge system-memory ready                      the claims that have stabilised enough to be reviewed into a stance
knowledge system-memory show [ID]                  the newest claims, or one with every record about it
knowledge system-memory erase --account A --yes    delete all that an account wrote, for good

A claim is what an account observed and can evidence. It is recalled to agents (systemMemory.systemBucketEnabled) while
a steward's admission stands and no challenge with evidence is open. It is never edited: a later claim on the same slug
supersedes it, and once people have reviewed it, a promotion drains it into a stance of the knowledge base
(`knowledge kb`). Stewards are those of systemMemory.stewards in knowledge.yaml; whoever runs this command on the
owner's machine may act for them. What stewards do is in `knowledge stores audit`.

  --slug sys:NAME                what the claim is about; a correction and a promotion name the same one
  --tier ledger|glass            whether a record proves it, or it can be looked at
  --as-of YYYY-MM-DD             the day on which it was observed true (promote: today)
  --evidence KIND:REF:DIGEST     KIND receipt, memory or url; give it again for each, 20 at most
  --entity NAME                  whom or what it concerns
  --ground TEXT                  why, in a sentence
  --limit N                      show: how many claims (1 to 200, default 50)
  --json                         one compact line
{_STATE}

Examples:
  knowledge system-memory status
  knowledge system-memory show --limit 5
  knowledge system-memory ready --json
""",
}


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
    if command in COMMANDS:
        tools = f"\nTools (knowledge help TOOL has the arguments of one):\n{_tools()}\n" if command == "call" else ""
        output.emit(f"{COMMANDS[command]}{tools}\nExit status:\n{_statuses(command)}")
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
