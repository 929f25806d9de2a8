"""Bytes: vault files, records, ontology, journal, history, search, evidence, Git. Knows nothing of mailboxes."""
