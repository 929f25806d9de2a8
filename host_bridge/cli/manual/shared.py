"""Options that many commands have, as their pages show them."""

CALLER = """\
  --agent A                      act as the owner of agent A (default: the first agent of the configuration)
  --conversation KEY --session UUID
                                 act as that conversation instead of the owner"""
STATE = "  --state-dir DIR                the state directory"
