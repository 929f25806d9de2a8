"""What an account does with its own rows (contract section 3)."""

from __future__ import annotations

import uuid

import pytest

from messages.errors import KnowledgeError
from storage.system_memory import records, rows
from storage.system_memory.model import LIVE_ROWS_MAX, account_view
from tests.storage.system_memory.world import STEWARD, World, draft


def refusal(code: str) -> pytest.RaisesExc[KnowledgeError]:
    return pytest.RaisesExc(KnowledgeError, check=lambda error: error.code == code)


def fill(world: World, account: str, number: int) -> list[str]:
    return [rows.create(world.system, account, body=f"row {place}").id for place in range(number)]


def test_a_row_is_of_the_bucket_user_unless_it_says_learned(world: World) -> None:
    assert rows.create(world.system, "ann", body="tea").bucket == "user"
    assert rows.create(world.system, "ann", body="tea", bucket="learned").bucket == "learned"
    for bucket in ("system", "other", 7):
        with refusal("invalid_argument"):
            rows.create(world.system, "ann", body="tea", bucket=bucket)


def test_a_row_is_shown_without_any_field_of_the_system_bucket(world: World) -> None:
    row = world.observe()
    assert set(account_view(row)) == {"id", "bucket", "body", "sourceRef", "supersededBy", "createdAt"}


def test_the_limit_is_200_live_rows_of_an_account_in_all_buckets_together(world: World) -> None:
    fill(world, "ann", LIVE_ROWS_MAX - 1)
    world.observe("ann")
    with refusal("quota_reached"):
        rows.create(world.system, "ann", body="one more")
    with refusal("quota_reached"):
        rows.observe(world.system, "ann", draft())
    rows.create(world.system, "ben", body="another account has its own")


def test_superseding_is_allowed_at_the_limit_and_links_old_to_new_in_the_same_transaction(world: World) -> None:
    ids = fill(world, "ann", LIVE_ROWS_MAX)
    later = rows.create(world.system, "ann", body="instead", supersedes=ids[0])
    assert rows.fetch(world.system, "ann", ids[0]).superseded_by == later.id
    assert later.live


def test_superseding_what_is_not_a_live_row_of_ones_own_is_supersedes_not_found(world: World) -> None:
    mine = rows.create(world.system, "ann", body="tea").id
    theirs = rows.create(world.system, "ben", body="coffee").id
    claim = world.observe("ann").id
    rows.create(world.system, "ann", body="green tea", supersedes=mine)
    for target in (theirs, mine, claim, str(uuid.uuid4()), "no id", 7, mine.upper()):
        before = world.everything()
        with refusal("supersedes_not_found"):
            rows.create(world.system, "ann", body="x", supersedes=target)
        assert world.everything() == before


def test_a_list_is_newest_first_live_only_unless_asked_and_by_bucket(world: World) -> None:
    first = rows.create(world.system, "ann", body="one")
    second = rows.create(world.system, "ann", body="two", bucket="learned")
    third = rows.create(world.system, "ann", body="three", supersedes=first.id)
    claim = world.observe("ann")
    rows.create(world.system, "ben", body="of another")
    listed = [row.id for row in rows.list_rows(world.system, "ann")]
    assert listed == [claim.id, third.id, second.id]
    everything = [row.id for row in rows.list_rows(world.system, "ann", include_superseded=True)]
    assert everything == [claim.id, third.id, second.id, first.id]
    assert [row.id for row in rows.list_rows(world.system, "ann", buckets=["learned"])] == [second.id]
    assert [row.id for row in rows.list_rows(world.system, "ann", limit=1)] == [claim.id]
    for wrong in (0, 201):
        with refusal("invalid_argument"):
            rows.list_rows(world.system, "ann", limit=wrong)


def test_a_row_of_another_account_is_absent_and_never_forbidden(world: World) -> None:
    theirs = rows.create(world.system, "ben", body="coffee").id
    said = set()
    for target in (theirs, str(uuid.uuid4()), "no id", 7, None):
        for read in (rows.fetch, rows.delete):
            with pytest.raises(KnowledgeError) as refused:
                read(world.system, "ann", target)
            said.add((refused.value.code, str(refused.value), tuple(refused.value.fields.items())))
    assert len(said) == 1
    assert next(iter(said))[0] == "not_found"
    assert rows.fetch(world.system, "ben", theirs).id == theirs


def test_a_deletion_is_real_takes_the_records_along_and_brings_back_what_was_superseded(world: World) -> None:
    row = world.admitted("ann")
    world.challenge(row)
    first = rows.create(world.system, "ann", body="one")
    second = rows.create(world.system, "ann", body="two", supersedes=first.id)
    rows.delete(world.system, "ann", row.id)
    assert world.system.database.query("SELECT count(*) FROM record") == [(0,)]
    assert world.status(row) == "candidate"
    rows.delete(world.system, "ann", second.id)
    assert rows.fetch(world.system, "ann", first.id).live


def test_a_row_that_is_not_live_can_be_fetched(world: World) -> None:
    first = rows.create(world.system, "ann", body="one")
    rows.create(world.system, "ann", body="two", supersedes=first.id)
    assert rows.fetch(world.system, "ann", first.id).superseded_by is not None


def test_erasing_an_account_deletes_its_rows_and_its_records_about_others(world: World) -> None:
    mine = world.admitted("ann")
    theirs = world.admitted("ben", "sys:other")
    world.challenge(theirs, "ann")
    assert world.status(theirs) == "suspended"
    assert rows.erase_account(world.system, "ann", "socket") == 1
    assert world.status(theirs) == "admitted"
    with refusal("not_found"):
        records.challenge(world.system, "ben", mine.id, ground="x")
    assert world.system.unaudited()[-1].subject == {"account": "ann", "rows": 1}
    assert world.system.unaudited()[-1].actor == "operator:local"


def test_every_statement_on_memories_names_the_account_or_the_bucket_system() -> None:
    """What reads or changes rows says whose, apart from the system bucket and counters of it."""
    import re
    from pathlib import Path

    import storage.system_memory

    folder = Path(storage.system_memory.__file__).parent
    checked = 0
    for module in folder.glob("*.py"):
        if module.name == "schema.py":
            continue
        text = " ".join(re.sub(r'"\s*\n\s*f?"', "", module.read_text()).split())
        for found in re.finditer(r"(?:FROM|UPDATE|DELETE FROM) memory\b(?! AS)", text):
            statement = text[found.start() : found.start() + 260]
            named = "account = ?" in statement or "bucket = 'system'" in statement
            by_id = module.name in ("database.py", "overview.py") and re.search(r"WHERE id = \?", statement)
            counts = "max(inserted_at)" in text[max(0, found.start() - 40) : found.start()]
            assert named or by_id or counts, (module.name, statement)
            checked += 1
    assert checked >= 12


def test_a_self_made_admission_is_the_authors_claim_and_read_by_nothing(world: World) -> None:
    row = rows.observe(world.system, "ann", draft(admission="admitted"))
    assert world.recall("ben", "gateway").rows == ()
    records.admit(world.system, STEWARD, row.id, verdict="admitted", ground="looked")
    assert [found.id for found, _ in world.recall("ben", "gateway").rows] == [row.id]


def test_two_rows_may_share_a_slug(world: World) -> None:
    assert world.observe("ann").id != world.observe("ben").id
