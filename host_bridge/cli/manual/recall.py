"""The commands about recall, observations and what was reviewed."""

from host_bridge.cli.manual.shared import STATE

PAGES = {
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
{STATE}

Examples:
  knowledge gate replay
  knowledge gate replay gate.log --json
  knowledge gate tune labels.tsv --precision 0.9
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
{STATE} (not needed here)

Examples:
  knowledge kb build stances.json docs/ -o kb.json
  knowledge kb search kb.json "Can agents be paid yet?" --limit 5
  knowledge kb search kb.json "Can agents be paid yet?" --note
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
{STATE}

Examples:
  knowledge system-memory status
  knowledge system-memory show --limit 5
  knowledge system-memory ready --json
""",
}
