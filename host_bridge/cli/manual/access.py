"""The commands about who reaches what."""

from host_bridge.cli.manual.shared import STATE

PAGES = {
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
{STATE}

Examples:
  knowledge audience mint --agent main --for 12h
  knowledge audience mint --agent main --conversation chat:group:42 --session 3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d
  knowledge audience list --json

How it is used, in one line to `knowledge serve --stdio`:
  {{"jsonrpc": "2.0", "id": 1, "method": "tools.call", "params":
      {{"audience": "eyJ...", "tool": "knowledge_grep", "arguments": {{"query": "ships"}}}}}}
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
{STATE}

Examples:
  knowledge conversation grant --agent main chat:group:42 read
  knowledge conversation list
  knowledge conversation export --agent main 3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d ./chat
  knowledge conversation erase --agent main 3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d --dry-run
""",
    "grants": f"""\
knowledge grants list [--agent A]                       who reads the memory of agent A
knowledge grants set --agent A KEY read|read-save       let a conversation read it, or read and save
knowledge grants remove --agent A KEY                   take that back

The same as `knowledge conversation list`, `grant` and `revoke`, whose help says what a grant opens.

  --json                         one compact line
{STATE}

Examples:
  knowledge grants set --agent main chat:group:42 read
  knowledge grants list --json
""",
}
