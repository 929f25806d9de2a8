"""The shapes hold in the database as well: rows and records are put in around the code (contract sections 2, 4, 11)."""

from __future__ import annotations

import uuid
from pathlib import Path

import apsw
import pytest

from messages.errors import KnowledgeError
from storage.state.connection import SqlValue
from storage.system_memory import rows
from storage.system_memory.database import evidence_text
from storage.system_memory.model import EvidenceReference
from tests.storage.system_memory.world import EVIDENCE, World, draft

REFS = evidence_text((EvidenceReference("url", "https://example.org", "sha256:11"),))
SYSTEM: dict[str, SqlValue] = {
    "account": "ann",
    "bucket": "system",
    "body": "The gateway-402 stance",
    "slug": "sys:gateway",
    "tier": "ledger",
    "as_of": "2026-09-20",
    "admission": "candidate",
    "evidence_refs": REFS,
}
OWN: dict[str, SqlValue] = {"account": "ann", "bucket": "user", "body": "likes tea"}


def put(world: World, table: str, values: dict[str, SqlValue]) -> str:
    """Insert a row on a connection of its own, as another program could."""
    row = {"id": str(uuid.uuid4()), "inserted_at": 1, **values}
    if table == "memory":
        row["updated_at"] = 1
    connection = apsw.Connection(str(world.path))
    try:
        connection.execute("PRAGMA foreign_keys=ON")
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))
    finally:
        connection.close()
    return str(row["id"])


def refused(world: World, table: str, values: dict[str, SqlValue]) -> None:
    with pytest.raises(apsw.ConstraintError):
        put(world, table, values)


def test_a_well_formed_row_of_each_bucket_is_taken(world: World) -> None:
    put(world, "memory", SYSTEM)
    put(world, "memory", OWN)
    put(world, "memory", {**OWN, "bucket": "learned", "source_ref": "chat:1"})
    put(world, "memory", {**SYSTEM, "stance": "gateway-402"})


@pytest.mark.parametrize(
    "change",
    [
        {"slug": None},
        {"slug": "gateway"},
        {"slug": "sys:"},
        {"slug": "sys:" + "x" * 197},
        {"slug": " sys:gateway"},
        {"tier": None},
        {"tier": "dark"},
        {"tier": "pulse"},
        {"as_of": None},
        {"as_of": "2026-02-30"},
        {"as_of": "2026-9-20"},
        {"as_of": "yesterday!"},
        {"admission": None},
        {"admission": "suspended"},
        {"evidence_refs": None},
        {"evidence_refs": "[]"},
        {"evidence_refs": "{}"},
        {"evidence_refs": "nonsense"},
        {"evidence_refs": '["x"]'},
        {"evidence_refs": '[{"kind": "url", "ref": "", "digest": "d"}]'},
        {"evidence_refs": '[{"kind": "url", "ref": "r", "digest": " "}]'},
        {"evidence_refs": '[{"kind": "url", "ref": "r"}]'},
        {"evidence_refs": '[{"kind": "rumour", "ref": "r", "digest": "d"}]'},
        {"evidence_refs": '[{"kind": null, "ref": "r", "digest": "d"}]'},
        {"evidence_refs": '[{"kind": "url", "ref": 7, "digest": "d"}]'},
        {"evidence_refs": '[{"kind": "url", "ref": "r", "digest": "d", "more": 1}]'},
        {"evidence_refs": "[" + ",".join(['{"kind": "url", "ref": "r", "digest": "d"}'] * 21) + "]"},
        {"entity": ""},
        {"entity": "x" * 201},
        {"stance": "Gateway-402", "body": "Gateway-402"},
        {"stance": "gateway 402", "body": "gateway 402"},
        {"stance": "gateway--402", "body": "gateway--402"},
        {"stance": "-gateway", "body": "-gateway x"},
        {"stance": "gateway-", "body": "x gateway-"},
        {"stance": "gateway/402", "body": "gateway/402"},
        {"stance": "g" * 201, "body": "g" * 201},
        {"stance": "another-stance"},
        {"stance": "gateway-402", "admission": "admitted"},
        {"body": ""},
        {"body": "x" * 2001},
        {"body": " padded"},
        {"body": "padded\u3000"},
        {"body": "nul\0"},
        {"account": ""},
        {"account": None},
        {"bucket": "other"},
        {"bucket": None},
        {"source_ref": ""},
        {"source_ref": "x" * 201},
        {"id": "short"},
        {"superseded_by": "00000000-0000-4000-8000-000000000020"},
    ],
    ids=str,
)
def test_a_system_row_that_breaks_its_shape_cannot_be_inserted_around_the_code(
    world: World, change: dict[str, SqlValue]
) -> None:
    refused(world, "memory", {**SYSTEM, **change})
    assert world.system.database.query("SELECT * FROM memory") == []


@pytest.mark.parametrize("field", ["slug", "entity", "tier", "as_of", "admission", "evidence_refs", "stance"])
@pytest.mark.parametrize("bucket", ["user", "learned"])
def test_a_field_of_system_rows_belongs_to_no_other_row(world: World, bucket: str, field: str) -> None:
    value = SYSTEM.get(field) or {"entity": "x", "stance": "tea"}[field]
    refused(world, "memory", {**OWN, "bucket": bucket, field: value})


def test_null_is_a_violation_and_never_unknown(world: World) -> None:
    for field in ("slug", "tier", "as_of", "admission", "evidence_refs"):
        refused(world, "memory", {**SYSTEM, field: None})


def test_whether_a_row_is_promoted_is_generated_from_its_stance(world: World) -> None:
    claim = put(world, "memory", SYSTEM)
    tombstone = put(world, "memory", {**SYSTEM, "stance": "gateway-402"})
    found: dict[str, int] = dict(world.system.database.query("SELECT id, promoted FROM memory"))
    assert found == {claim: 0, tombstone: 1}
    with pytest.raises(apsw.SQLError):
        put(world, "memory", {**SYSTEM, "promoted": 1})


def test_a_row_is_never_edited_and_never_supersedes_itself(world: World) -> None:
    claim = put(world, "memory", SYSTEM)
    for change in (
        "body = 'other'",
        "slug = 'sys:other'",
        "account = 'ben'",
        "stance = 'gateway-402'",
        "tier = 'glass'",
    ):
        with pytest.raises(apsw.ConstraintError, match="never_edited"):
            world.system.database._connection.execute(f"UPDATE memory SET {change}")
    with pytest.raises(apsw.ConstraintError):
        world.system.database._connection.execute("UPDATE memory SET superseded_by = id")
    assert claim


def test_a_replacement_has_the_slug_and_the_bucket_of_what_it_replaces(world: World) -> None:
    claim = put(world, "memory", SYSTEM)
    others = [
        put(world, "memory", {**SYSTEM, "slug": "sys:other"}),
        put(world, "memory", OWN),
    ]
    for other in others:
        with pytest.raises(apsw.ConstraintError, match="foreign_replacement"):
            world.system.database._connection.execute(
                "UPDATE memory SET superseded_by = ? WHERE id = ?", (other, claim)
            )
    mine, theirs = put(world, "memory", OWN), put(world, "memory", {**OWN, "account": "ben"})
    with pytest.raises(apsw.ConstraintError, match="foreign_replacement"):
        world.system.database._connection.execute("UPDATE memory SET superseded_by = ? WHERE id = ?", (theirs, mine))


def test_a_record_never_names_an_own_row_of_an_account_or_a_tombstone(world: World) -> None:
    own = put(world, "memory", OWN)
    tombstone = put(world, "memory", {**SYSTEM, "stance": "gateway-402"})
    for target in (own, tombstone, str(uuid.uuid4())):
        for bucket in ("system", "user"):
            for promoted in (0, 1):
                values: dict[str, SqlValue] = {
                    "memory_id": target,
                    "memory_bucket": bucket,
                    "memory_promoted": promoted,
                    "author": "stella",
                    "role": "admission",
                    "verdict": "admitted",
                    "ground": "looked",
                    "slug": f"adm:{target}",
                }
                refused(world, "record", values)


def record(target: str, **changes: SqlValue) -> dict[str, SqlValue]:
    return {
        "memory_id": target,
        "memory_bucket": "system",
        "memory_promoted": 0,
        "author": "stella",
        "role": "admission",
        "verdict": "admitted",
        "ground": "looked",
        "slug": f"adm:{target}",
        **changes,
    }


def test_a_refutation_names_a_challenge_of_the_same_row_and_nothing_else(world: World) -> None:
    one, other = put(world, "memory", SYSTEM), put(world, "memory", SYSTEM)
    admission = put(world, "record", record(one))
    challenge = put(world, "record", record(one, role="challenge", verdict=None, slug=f"chl:{one}"))

    def refutation(target: str, of: str | None, **changes: SqlValue) -> dict[str, SqlValue]:
        values = record(
            target, role="refutation", verdict=None, slug=f"ref:{of}", challenge_id=of, challenge_role="challenge"
        )
        return {**values, **changes}

    refused(world, "record", refutation(one, admission))
    refused(world, "record", refutation(one, admission, challenge_role="admission"))
    refused(world, "record", refutation(other, challenge))
    refused(world, "record", refutation(one, str(uuid.uuid4())))
    refused(world, "record", refutation(one, None))
    refused(world, "record", refutation(one, challenge, challenge_role=None))
    put(world, "record", refutation(one, challenge))


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": None},
        {"verdict": "suspended"},
        {"ground": ""},
        {"ground": "x" * 2001},
        {"ground": " padded "},
        {"slug": "adm:other"},
        {"evidence_refs": REFS},
        {"role": "note"},
        {"author": ""},
        {"role": "challenge"},
        {"role": "challenge", "verdict": None, "evidence_refs": "[]"},
    ],
    ids=str,
)
def test_a_record_that_breaks_its_shape_cannot_be_inserted_around_the_code(
    world: World, change: dict[str, SqlValue]
) -> None:
    refused(world, "record", record(put(world, "memory", SYSTEM), **change))


def test_nothing_updates_a_record(world: World) -> None:
    put(world, "record", record(put(world, "memory", SYSTEM)))
    with pytest.raises(apsw.ConstraintError, match="never_edited"):
        world.system.database._connection.execute("UPDATE record SET verdict = 'rejected'")


def test_foreign_keys_are_on_for_our_connection_and_tables_are_strict(world: World) -> None:
    assert world.system.database.query("PRAGMA foreign_keys") == [(1,)]
    tables = world.system.database.query(
        "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    )
    assert {name for name, strict in tables if not strict} <= {"sqlite_schema", "sqlite_sequence"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"slug": "gateway"}, "invalid_argument"),
        ({"slug": None}, "invalid_argument"),
        ({"slug": "sys:" + "x" * 197}, "limit_exceeded"),
        ({"body": " "}, "invalid_argument"),
        ({"body": "x" * 2001}, "limit_exceeded"),
        ({"body": 7}, "invalid_argument"),
        ({"body": "half \ud800"}, "invalid_argument"),
        ({"tier": "dark"}, "invalid_argument"),
        ({"tier": "pulse"}, "invalid_argument"),
        ({"as_of": "2026-02-30"}, "invalid_argument"),
        ({"as_of": "2026-09"}, "invalid_argument"),
        ({"evidence_refs": []}, "evidence_invalid"),
        ({"evidence_refs": None}, "evidence_invalid"),
        ({"evidence_refs": EVIDENCE * 21}, "evidence_invalid"),
        ({"evidence_refs": [{"kind": "url", "ref": "r", "digest": ""}]}, "evidence_invalid"),
        ({"evidence_refs": [{"kind": "rumour", "ref": "r", "digest": "d"}]}, "evidence_invalid"),
        ({"evidence_refs": ["x"]}, "evidence_invalid"),
        ({"entity": ""}, "invalid_argument"),
        ({"admission": "suspended"}, "invalid_argument"),
    ],
    ids=str,
)
def test_the_code_refuses_what_the_tables_would_refuse_and_writes_nothing(
    world: World, changes: dict[str, object], code: str
) -> None:
    given = {"slug": "sys:gateway", "body": "The gateway", **changes}
    with pytest.raises(KnowledgeError) as refusal:
        rows.observe(world.system, "ann", draft(**given))  # type: ignore[arg-type]
    assert refusal.value.code == code
    assert world.everything() == []


def test_every_problem_of_a_claim_is_named_at_once(world: World) -> None:
    with pytest.raises(KnowledgeError) as refusal:
        rows.observe(world.system, "ann", draft("gateway", "", tier="dark", as_of="soon", evidence_refs=[]))
    problems = refusal.value.fields["problems"]
    assert isinstance(problems, list)
    assert [problem["field"] for problem in problems if isinstance(problem, dict)] == [
        "slug",
        "body",
        "tier",
        "asOf",
        "evidenceRefs",
    ]


def test_evidence_is_kept_as_kind_ref_and_digest_alone_and_trimmed(world: World) -> None:
    row = world.observe(evidence_refs=[{"kind": "url", "ref": " r ", "digest": "\td\n", "more": "x"}])
    assert row.system is not None
    assert row.system.evidence_refs == (EvidenceReference("url", "r", "d"),)


def test_a_body_is_trimmed_and_counted_in_code_points(world: World) -> None:
    row = world.observe(body="  " + "\U0001f600" * 2000 + "\n")
    assert row.body == "\U0001f600" * 2000


def test_a_newer_format_is_refused_by_name_and_left_alone(world: World, tmp_path: Path) -> None:
    world.system.database.execute("PRAGMA user_version = 9")
    with pytest.raises(KnowledgeError) as refusal:
        world.reopen()
    assert refusal.value.fields["reason"] == "newer_format"
    world.system = World(tmp_path / "other.sqlite").system


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "system-memory.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE somebody (x)")
    connection.close()
    with pytest.raises(KnowledgeError) as refusal:
        World(path)
    assert refusal.value.fields["reason"] == "foreign"
