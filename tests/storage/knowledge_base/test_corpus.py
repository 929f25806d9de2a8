"""``kb.json``: its bytes, and what is refused when it is read back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from messages.errors import InvalidArgument, LimitExceeded, NotFound, StorageError
from messages.json_types import JsonObject
from storage import faults
from storage.knowledge_base import corpus as module
from storage.knowledge_base.corpus import Corpus, compile_corpus, decode, load_corpus
from storage.knowledge_base.folder import write_file
from tests.storage.knowledge_base.kit import folder, problems, stance, written


@pytest.fixture
def built(tmp_path: Path) -> Corpus:
    docs = folder(tmp_path / "docs", {"b.md": "# B\n\nOn é.", "a.md": "# A"})
    (tmp_path / "stances.json").write_bytes(written(stance("z"), stance("a")))
    return compile_corpus(str(tmp_path / "stances.json"), str(docs)).corpus


def changed(corpus: Corpus, change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(corpus.encode())
    change(value)
    return json.dumps(value, indent=1).encode()


def refused(data: bytes) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        decode(data, "kb.json")
    return caught.value


def test_the_file_has_version_one_and_stances_first_with_id_and_digest_then_docs(built: Corpus) -> None:
    value = json.loads(built.encode())
    assert list(value) == ["version", "entries"]
    assert value["version"] == 1
    assert [(entry["kind"], entry.get("id")) for entry in value["entries"]] == [
        ("stance", "z"), ("stance", "a"), ("doc", None), ("doc", None),
    ]  # fmt: skip
    assert value["entries"][0] == {"kind": "stance", **stance("z"), "digest": built.stances[0].digest}
    assert value["entries"][3] == {
        "kind": "doc", "title": "B", "source": "b.md", "headings": [], "summary": "On é.", "tags": [],
    }  # fmt: skip


def test_the_same_inputs_give_the_same_bytes_whatever_order_the_disk_has(built: Corpus, tmp_path: Path) -> None:
    docs = folder(tmp_path / "again", {"a.md": "# A", "b.md": "# B\n\nOn é."})
    (docs / "a.md").touch()
    os.utime(docs / "b.md", (0, 0))
    again = compile_corpus(str(tmp_path / "stances.json"), str(docs)).corpus
    assert again.encode() == built.encode()


def test_what_was_compiled_is_read_back_equal(built: Corpus) -> None:
    assert decode(built.encode(), "kb.json") == built
    assert decode(built.encode(), "kb.json").encode() == built.encode()
    assert decode(Corpus((), ()).encode(), "kb.json") == Corpus((), ())


def test_a_stance_is_found_by_exactly_its_id_with_the_digest(built: Corpus) -> None:
    found = decode(built.encode(), "kb.json").stance("z")
    assert found is not None
    assert found.digest == built.stances[0].digest
    for other in ("Z", "z ", "", "b.md"):
        assert built.stance(other) is None


def test_a_newer_version_is_refused_by_name(built: Corpus) -> None:
    error = refused(changed(built, lambda value: value.update(version=2, entries={"new": "shape"})))
    assert error.fields["reason"] == "newer_version"
    assert "version 2" in error.message


@pytest.mark.parametrize("version", [None, 0, -1, True, 1.5, "1"])
def test_a_version_that_is_none_is_refused(built: Corpus, version: object) -> None:
    error = refused(changed(built, lambda value: value.update(version=version)))
    assert (error.fields["reason"], error.fields["file"]) == ("invalid", "kb.json")


@pytest.mark.parametrize("key", ["title", "questions", "state", "answer", "sources", "date", "id", "digest"])
def test_a_stance_whose_digest_does_not_match_it_is_refused(built: Corpus, key: str) -> None:
    old = json.loads(built.encode())["entries"][0][key]
    new = ["x"] if isinstance(old, list) else "2026-08-26" if key == "date" else "other"
    error = refused(changed(built, lambda value: value["entries"][0].update({key: new})))
    assert error.fields["reason"] == "digest_mismatch"
    [(entry, line, _)] = problems(error)
    assert (entry, line) == ("other" if key == "id" else "z", 4)


def test_a_stance_without_a_digest_is_refused(built: Corpus) -> None:
    error = refused(changed(built, lambda value: value["entries"][1].pop("digest")))
    assert error.fields["reason"] == "digest_mismatch"


def test_a_stance_that_breaks_the_schema_is_refused_though_its_digest_fits(built: Corpus) -> None:
    error = refused(changed(built, lambda value: value["entries"].append(value["entries"][0])))
    assert [message for _, _, message in problems(error)] == ["the id is taken by the stance on line 4; each id once"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "memory"}, "`kind`"), ({"kind": None}, "`kind`"), ({"title": 7}, "`title`"),
        ({"tags": "x"}, "`tags`"), ({"headings": [1]}, "`headings`"), ({"extra": 1}, '"extra"'),
        ({"title": " "}, "`title`"),
        ({"title": "T\n- U (stance, live; reviewed 2026-08-25): x"}, "`title`"), ({"source": "b\n.md"}, "`source`"),
    ],
)  # fmt: skip
def test_a_document_of_another_shape_is_refused_by_name(built: Corpus, change: JsonObject, told: str) -> None:
    error = refused(changed(built, lambda value: value["entries"][3].update(change)))
    [(entry, _, message)] = problems(error)
    assert entry == ("[3]" if "kind" in change or "source" in change else "b.md")
    assert told in message


def test_half_a_surrogate_pair_in_a_compiled_file_is_a_problem_with_its_line(built: Corpus) -> None:
    error = refused(changed(built, lambda value: value["entries"][0].update(answer="\ud800")))
    [(_, _, message)] = problems(error)
    assert "cannot be stored" in message


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "entries": {}}', b'{"version": 1, "entries": [7]}',
        b'{"version": 1, "entries": [], "x": 1}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_knowledge_base_is_refused(data: bytes) -> None:
    assert refused(data).fields["reason"] == "invalid"


def test_missing_files_folders_and_sizes_are_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match=r"none\.json"):
        load_corpus(str(tmp_path / "none.json"))
    with pytest.raises(NotFound, match="is no file"):
        load_corpus(str(tmp_path))
    monkeypatch.setattr(module, "CORPUS_MAX_BYTES", 10)
    (tmp_path / "kb.json").write_bytes(b" " * 11)
    with pytest.raises(LimitExceeded, match=r"kb\.json is larger than 10 bytes"):
        load_corpus(str(tmp_path / "kb.json"))


def written_points(path: Path) -> list[str]:
    passed: list[str] = []
    with faults.installed(passed.append):
        write_file(str(path), b"x")
    return [name for name in passed if not name.endswith(".after")]


def test_a_write_that_fails_at_any_step_leaves_what_was_there_or_the_new_bytes_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "kb.json"
    steps = written_points(target)
    assert steps[-2:] == ["kb.write.place", "kb.write.sync"]
    for number in range(len(steps)):
        target.write_bytes(b"old")
        left = iter(range(len(steps)))

        def fail(name: str, left: Iterator[int] = left, number: int = number) -> None:
            if not name.endswith(".after") and next(left, None) == number:
                raise OSError(28, "No space left on device")

        with faults.installed(fail), pytest.raises(StorageError, match="No space left"):
            write_file(str(target), b"new")
        assert target.read_bytes() == (b"new" if number == len(steps) - 1 else b"old"), steps[number]
        assert os.listdir(tmp_path) == ["kb.json"]
