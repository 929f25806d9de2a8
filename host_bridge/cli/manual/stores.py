"""The commands about stores and what lies in them."""

from host_bridge.cli.manual.shared import STATE

PAGES = {
    "adopt": f"""\
knowledge adopt PATH... - make pages of plain Markdown files that lie in the vault

Each file gets the envelope that a record needs: an id, a title (its first heading, else its name) and a type (by its
folder, else note). Every byte of its text stays; a frontmatter keeps its keys and comments. All files or none. PATH is
a file of the agent's private folder, or a path below that folder as `knowledge status` shows it. For a whole vault
that does not fit its database there is another command: `knowledge store adopt`.

  --type T                       the page type, instead of the one that the folder suggests
  --agent A                      whose vault (default: the first agent of the configuration)
  --json                         the receipt on one line
{STATE}

Example:
  knowledge adopt notes/reading-list.md people/ada.md
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
{STATE}

Examples:
  knowledge inspect recent
  knowledge inspect search "budget" --type project --json
  knowledge inspect records --lifecycle invalid
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
{STATE}

Examples:
  knowledge maintenance run
  knowledge maintenance status --json

Exit status of `run`: 0 when every store was looked after, whatever was found; else that of the first that was not.
""",
    "status": f"""\
knowledge status - is an owner running, how is it, and what should you know?

It starts and creates nothing. Of a running owner it says in about a dozen lines whether all is well, where the store
of an agent lies and what it holds, what recovery did, which files cannot be read as records, and what you can do.

  --agent A                      whose store (default: the first agent of the configuration)
  --live                         start an owner when there is none
  --verbose                      also more of the findings, and every part of the runtime with its counts
  --json                         one compact line, complete
{STATE}

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
{STATE}

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
{STATE}

Examples:
  knowledge stores list
  knowledge stores share --agent main --label Family family research
""",
}
