"""What went wrong in comparable systems, as far as one store and its tools go: each input, its right outcome.

Guarded: data loss and races, locks and repair, parsing and names, search. Everything is real; one thread at a desk
unless the case is about several.
"""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from messages.errors import DeletionsRefused, InvalidArgument, OpenElsewhere, StaleFence, StorageError
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from storage import faults
from storage.index_feed import IndexFeed
from tests.kit.store import (
    GROUP_PARTITION,
    MAIN,
    Desk,
    items_of,
    open_bridge,
    page_file,
    remembering,
    request_id,
    write_note,
    write_notes,
)


def rows(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def hits(desk: Desk, query: str, **more: JsonValue) -> list[JsonValue]:
    return [hit["id"] for hit in rows(desk.call("grep", {"query": query, **more})["hits"])]


def edit(desk: Desk, record_id: JsonValue, body: str, **more: JsonValue) -> JsonObject:
    """A save of a page as it stands now, with another body."""
    found = desk.record(record_id)
    fences: JsonObject = {"id": record_id, "expectedRevision": found["revision"], "expectedHash": found["hash"]}
    return desk.call("save_page", {**fences, "title": found["title"], "type": found["type"], "body": body, **more})


@contextmanager
def failing(point: str, code: int) -> Iterator[None]:
    def handler(passed: str) -> None:
        if passed == point:
            raise OSError(code, "as a full or read-only disk says")

    with faults.installed(handler):
        yield


# --- data loss and races --------------------------------------------------------------------------------------------


def test_20_saves_by_20_threads_at_once_are_20_claims(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        failed: list[BaseException] = []

        def save(number: int) -> None:
            try:
                bridge.call(
                    "knowledge_remember",
                    {**remembering(f"Fact number {number}."), "requestId": request_id(number)},
                    MAIN,
                )
            except BaseException as error:  # noqa: BLE001 - shown by the assertion below
                failed.append(error)

        threads = [threading.Thread(target=save, args=(number,)) for number in range(1, 21)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failed == []
        assert bridge.call("knowledge_grep", {"query": "fact"}, MAIN)["total"] == 20


def test_a_create_over_an_existing_title_is_refused_with_the_current_revision_and_hash(desk: Desk) -> None:
    page = desk.page("Garden Pilot", body="first")
    again = desk.page("garden  PILOT", body="second")
    assert again["state"] == "rejected"
    assert again["existing"] == {key: page[key] for key in ("id", "revision", "hash")} | {"title": "Garden Pilot"}
    assert desk.record(page["id"])["body"] == "first\n"


def test_a_file_written_during_a_full_scan_survives_it_and_is_found(desk: Desk) -> None:
    write_notes(desk.folder(), ((f"people/p{n}.md", page_file(f"p{n}", f"Person {n}")) for n in range(300)))
    late: list[Path] = []

    def write_late(point: str) -> None:
        if point == "edits.read" and not late:
            late.append(write_note(desk.folder(), "people/late.md", page_file("late", "Late")))

    with faults.installed(write_late):
        desk.call("records", {"limit": 1})
    assert late[0].read_text() == page_file("late", "Late")
    assert desk.call("records", {"limit": 1})["total"] == 301
    assert desk.call("lookup", {"query": "Late"})["state"] == "found"


def test_an_emptied_vault_is_refused_and_neither_catalogue_nor_index_is_dropped(desk: Desk) -> None:
    write_notes(desk.folder(), ((f"people/p{n}.md", page_file(f"p{n}", f"Person {n}")) for n in range(30)))
    assert len(hits(desk, "person", limit=50)) == 30
    (desk.folder() / "people").rename(desk.layout.root / "unmounted")
    (desk.folder() / "people").mkdir()
    for _ in range(2):
        assert isinstance(desk.fails("grep", {"query": "person"}), DeletionsRefused)
        desk.close()
    (desk.folder() / "people").rmdir()
    (desk.layout.root / "unmounted").rename(desk.folder() / "people")
    assert len(hits(desk, "person", limit=50)) == 30


def test_a_page_moved_by_hand_and_then_saved_by_id_is_one_page_in_its_new_place(desk: Desk) -> None:
    page = desk.page("Plan", body="before")
    old = desk.path_of(str(page["id"]))
    new = desk.folder() / "elsewhere" / "my plan.md"
    new.parent.mkdir()
    old.rename(new)
    edit(desk, page["id"], "after")
    assert not old.exists()
    assert desk.path_of(str(page["id"])) == new
    assert "after" in new.read_text()
    assert desk.call("records")["total"] == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("point", ["stage.file.open", "stage.file.write", "manifest.stage.write"])
def test_a_save_on_a_full_or_read_only_disk_fails_at_once_and_the_old_text_stands(
    desk: Desk, point: str, code: int
) -> None:
    page = desk.page("Plan", body="old")
    path = desk.path_of(str(page["id"]))
    before = path.read_bytes()
    with failing(point, code), pytest.raises(StorageError):
        edit(desk, page["id"], "new")
    assert path.read_bytes() == before
    assert desk.record(page["id"])["body"] == "old\n"
    assert edit(desk, page["id"], "new")["revision"] == 2


def test_a_page_that_an_editor_has_open_for_writing_is_not_saved_over(desk: Desk) -> None:
    page = desk.page("Plan", body="old")
    path = desk.path_of(str(page["id"]))
    with path.open("a") as editor:
        with pytest.raises(OpenElsewhere):
            edit(desk, page["id"], "agent")
        editor.write("typed by a person\n")
    assert "typed by a person" in path.read_text()
    assert edit(desk, page["id"], "agent")["revision"] == 2


def test_a_save_with_the_fences_of_before_an_outside_edit_is_refused_and_both_texts_exist(desk: Desk) -> None:
    page = desk.page("Plan", body="old")
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text() + "typed by a person\n")
    stale: JsonObject = {"id": page["id"], "expectedRevision": page["revision"], "expectedHash": page["hash"]}
    error = desk.fails("save_page", {**stale, "title": "Plan", "type": "project", "body": "agent"})
    assert isinstance(error, StaleFence)
    assert "typed by a person" in path.read_text()


def test_a_deletion_in_one_partition_leaves_the_other_alone(desk: Desk) -> None:
    ours = desk.call("save_page", {"title": "Same", "type": "project", "body": "private"})
    desk.call("save_page", {"title": "Same", "type": "project", "body": "shared"}, partition=GROUP_PARTITION)
    desk.path_of(str(ours["id"])).unlink()
    assert desk.call("lookup", {"query": "Same"})["state"] == "missing"
    assert desk.call("lookup", {"query": "Same"}, partition=GROUP_PARTITION)["state"] == "found"


def test_what_was_deleted_is_not_searchable_in_the_very_next_answer(desk: Desk) -> None:
    page = desk.page("Plan", body="zucchini")
    assert hits(desk, "zucchini") == [page["id"]]
    desk.path_of(str(page["id"])).unlink()
    assert hits(desk, "zucchini") == []


def test_the_very_first_page_of_100_bytes_is_searchable(desk: Desk) -> None:
    page = desk.page("Tiny", body="z" * 60 + " zucchini")
    assert hits(desk, "zucchini") == [page["id"]]


def test_a_later_value_replaces_the_earlier_one_which_stays_in_history(desk: Desk) -> None:
    page = desk.page("Plan", body="ships in May")
    edit(desk, page["id"], "ships in June")
    assert hits(desk, "May") == []
    found = rows(desk.call("history", {"id": page["id"]})["rows"])
    texts = [str(desk.call("revision", {"id": page["id"], "sequence": row["sequence"]})["content"]) for row in found]
    assert ["June" in text for text in texts] == [True, False]
    assert ["May" in text for text in texts] == [False, True]


# --- locks and repair -----------------------------------------------------------------------------------------------


def test_a_reader_with_an_open_cursor_never_makes_a_save_fail(desk: Desk) -> None:
    desk.page("One")
    reader = apsw.Connection(str(desk.layout.state_database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        reader.execute("BEGIN")
        cursor = reader.execute("SELECT path FROM file")
        next(cursor)
        for number in range(5):
            desk.page(f"Page {number}")
        assert desk.call("records")["total"] == 6
    finally:
        reader.close(True)


@pytest.mark.parametrize("how", ["overwritten", "truncated", "deleted", "empty"])
def test_a_damaged_search_file_is_made_anew_and_never_gives_zero_hits(desk: Desk, how: str) -> None:
    page = desk.page("Plan", body="zucchini")
    assert hits(desk, "zucchini") == [page["id"]]
    desk.close()
    path = desk.layout.search_index(PRIVATE)
    data = path.read_bytes()
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes({"overwritten": b"x" * 100 + data[100:], "truncated": data[:500], "empty": b""}[how])
    index = desk.index(PRIVATE)
    if index.needs_rebuild:
        index.reset()
    assert hits(desk, "zucchini") == [page["id"]]


def test_an_index_that_fails_while_it_is_read_says_so_and_never_zero_hits(desk: Desk) -> None:
    page = desk.page("Plan", body="zucchini")
    desk.index_problem = "the keyword index cannot be read"
    answer = desk.call("grep", {"query": "zucchini"})
    assert answer["total"] is None
    desk.index_problem = None
    assert hits(desk, "zucchini") == [page["id"]]


def test_a_search_alone_on_a_new_store_needs_no_write_lock_of_anybody(desk: Desk) -> None:
    desk.page("Plan")
    feed = IndexFeed(desk.layout.state_database)
    try:
        assert hits(desk, "plan")
        assert feed.after(PRIVATE, 0).changes
    finally:
        feed.close()


# --- parsing and names ----------------------------------------------------------------------------------------------


def test_tags_stay_a_list_in_the_file_when_they_are_replaced(desk: Desk) -> None:
    page = desk.page("Plan", tags=["one"])
    edit(desk, page["id"], "x", tags=["two", "three, four"])
    text = desk.path_of(str(page["id"])).read_text()
    assert 'tags: ["two", "three, four"]' in text
    assert desk.record(page["id"])["tags"] == ["two", "three, four"]


@pytest.mark.parametrize(
    "body",
    [
        "# 待整理\n\n- 第一\n",
        "---\n\nnot a frontmatter\n\n---\nkey: value\n",
        "text --- text\n --- \n",
        "- [x] done\n- [ ] open\n",
        "- depends on the [[X]]\n- [[A|b]] [[#c]]\n",
        "```yaml\n---\nid: no\n---\n```\n",
        "\n\n\nthree empty lines first\n",
        "tabs\tand trailing  \nspaces \n",
        "emoji 👩‍👩‍👧 𝒳 e\u0301 é\n",
    ],
)
def test_a_body_comes_back_exactly_and_an_appended_line_changes_nothing_else(desk: Desk, body: str) -> None:
    page = desk.page("Plan", body=body)
    assert desk.record(page["id"])["body"] == body
    found = desk.record(page["id"])
    end = len(body.encode("utf-16-le")) // 2
    desk.call(
        "edit_body",
        {
            "requestId": request_id(77),
            "id": page["id"],
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "expectedVaultId": desk.session.vault_id,
            "expectedOntologyFingerprint": desk.session.partition(PRIVATE).ontology.fingerprint,
            "start": end,
            "end": end,
            "replacement": "appended\n",
            "reason": "one more line",
        },
    )
    assert desk.record(page["id"])["body"] == f"{body}appended\n"
    desk.close()
    assert desk.record(page["id"])["body"] == f"{body}appended\n"


@pytest.mark.parametrize("title", ["a\nb", "a\tb", "a\0b", "a\ud800b", "", "   ", "t" * 300])
def test_a_title_that_is_not_one_line_of_text_is_refused_by_field(desk: Desk, title: str) -> None:
    error = desk.fails("save_page", {"title": title, "type": "project", "body": "b"})
    assert error.fields["field"] == "title"
    assert not list(desk.folder().rglob("*.md"))


def test_a_lone_surrogate_anywhere_in_the_arguments_is_refused_and_nothing_is_stored(desk: Desk) -> None:
    hostile: list[JsonObject] = [{"body": "x\udfff"}, {"tags": ["ok", "\ud800"]}, {"aliases": ["\udc00"]}]
    for arguments in hostile:
        error = desk.fails("save_page", {"title": "T", "type": "project", "body": "x", **arguments})
        assert isinstance(error, InvalidArgument)
    assert desk.call("records")["total"] == 0


def test_names_that_look_alike_in_one_folder_are_three_pages(desk: Desk) -> None:
    for index, name in enumerate(("a b", "a-b", "a_b")):
        write_note(desk.folder(), f"projects/{name}.md", page_file(f"p{index}", name))
    for index, name in enumerate(("a b", "a-b", "a_b")):
        found = rows(desk.call("lookup", {"query": name})["hits"])
        assert [row["id"] for row in found] == [f"p{index}"]
    made = desk.page("A b", type="concept")
    assert len({desk.path_of(f"p{index}") for index in range(3)} | {desk.path_of(str(made["id"]))}) == 4


def test_titles_that_make_the_same_file_name_are_two_files(desk: Desk) -> None:
    first, second = desk.page("Release Plan"), desk.page("release-plan")
    paths = [desk.path_of(str(page["id"])) for page in (first, second)]
    assert paths[0] != paths[1]
    assert paths[0].name.casefold() != paths[1].name.casefold()
    assert [desk.record(page["id"])["title"] for page in (first, second)] == ["Release Plan", "release-plan"]


def test_a_record_without_any_date_of_its_own_is_listed_and_found(desk: Desk) -> None:
    text = "".join(
        line for line in page_file("p", "Undated").splitlines(keepends=True) if not line.startswith(("recorded", "upd"))
    )
    write_note(desk.folder(), "p.md", text)
    assert desk.record("p")["title"] == "Undated"
    assert desk.call("records", {"lifecycle": "all"})["total"] == 1
    assert {finding.field for finding in desk.partition().diagnostics(10)[0]} == {"recorded_at", "updated_at"}


# --- search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [6_000, 40_000, 1_000_000])
def test_a_word_at_the_end_of_a_long_body_is_found(desk: Desk, size: int) -> None:
    write_note(desk.folder(), "long.md", page_file("long", "Long", body="filler " * (size // 7) + "zucchini\n"))
    assert hits(desk, "zucchini") == ["long"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the ticket jira-summary is open", "jira-summary"),
        ("it lies in C:\\XYZ\\ there", "C:\\XYZ\\"),
        ("we run v2.8.3 now", "v2.8.3"),
        ("due 2026-08-31 at noon", "2026-08-31"),
        ("call knowledge_save_page()", "knowledge_save_page"),
        ("mail ann@example.org", "ann@example.org"),
        ("встреча в пятницу", "пятницу"),
        ("η συνάντηση", "συνάντηση"),
        ("פגישה ביום שישי", "פגישה"),
        ("اجتماع يوم الجمعة", "اجتماع"),
        ("ประชุมวันศุกร์", "ประชุม"),
        ("शुक्रवार को बैठक", "बैठक"),
        ("花園計畫在星期五發布", "星期五"),
        ("金曜日にリリース", "リリース"),
    ],
)
def test_a_word_of_any_script_or_shape_is_found_and_alone(desk: Desk, text: str, query: str) -> None:
    page = desk.page("Wanted", body=text)
    desk.page("Other", body="nothing of the kind, v2.9.1, a summary of jira, C, 2026-09-30")
    assert hits(desk, query) == [page["id"]]


def test_a_filter_is_applied_before_the_limit(desk: Desk) -> None:
    wanted = desk.page("Rare", type="person", body="zucchini " + "filler " * 200)
    for number in range(30):
        desk.page(f"Common {number}", type="concept", body="zucchini zucchini")
    assert hits(desk, "zucchini", type="person", limit=1) == [wanted["id"]]
    assert desk.call("grep", {"query": "zucchini", "type": "person", "limit": 1})["total"] == 1


def test_an_unknown_type_or_kind_is_refused_and_not_rewritten(desk: Desk) -> None:
    desk.page("Plan")
    assert isinstance(desk.fails("grep", {"query": "plan", "kind": "unicorn"}), InvalidArgument)
    assert desk.call("grep", {"query": "plan", "type": "unicorn"})["total"] == 0
    error = desk.fails("save_page", {"title": "T", "type": "unicorn", "body": "b"})
    assert error.fields["field"] == "type"


def test_pages_and_claims_do_not_starve_each_other(desk: Desk) -> None:
    for number in range(12):
        desk.page(f"Zucchini {number}", body="zucchini " * 10)
    [claim] = items_of(desk.remember("The zucchini harvest is in July."))
    assert hits(desk, "zucchini", kind="claim") == [claim["id"]]
    found = hits(desk, "zucchini", limit=13)
    assert claim["id"] in found
    assert len(found) == 13


def test_two_pages_of_one_name_are_both_told(desk: Desk) -> None:
    first = desk.page("Mercury", type="concept")
    second = desk.page("Mercury", type="project")
    answer = desk.call("lookup", {"query": "mercury"})
    assert answer["state"] == "ambiguous"
    assert {row["id"] for row in rows(answer["hits"])} == {first["id"], second["id"]}


def test_the_default_reads_of_a_big_store_stay_within_their_budget(desk: Desk) -> None:
    for number in range(60):
        text = page_file(f"p{number}", f"Zucchini {number}", body="zucchini " * 9_000)
        write_note(desk.folder(), f"people/p{number}.md", text)
    reads: list[tuple[str, JsonObject]] = [
        ("records", {"limit": 100}),
        ("grep", {"query": "zucchini"}),
        ("record", {"id": "p1"}),
    ]
    for tool, arguments in reads:
        answer = desk.call(tool, arguments)
        assert len(json.dumps(answer, ensure_ascii=False).encode()) <= 26 * 1024, tool
