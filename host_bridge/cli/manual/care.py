"""The commands that keep stores whole."""

from host_bridge.cli.manual.shared import STATE

PAGES = {
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
{STATE}

Examples:
  knowledge backup ~/backups/monday
  knowledge backup --dry-run ~/backups/tuesday --json
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
{STATE}

Examples:
  knowledge doctor --json
  knowledge doctor --store 6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11
  knowledge doctor rebuild agent:main=6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11 --yes
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
{STATE}

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
{STATE}

Examples:
  knowledge restore --dry-run --state-dir ~/new ~/backups/monday
  knowledge restore --state-dir ~/new ~/backups/monday
""",
}
