"""A folder of Markdown as entries: what is read of a file, and what is not followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from messages.errors import InvalidArgument, NotFound
from storage.knowledge_base.corpus import compile_corpus
from storage.knowledge_base.documents import DOC_MAX_BYTES, Doc, document, read_documents
from storage.knowledge_base.problems import Problem
from tests.storage.knowledge_base.kit import folder, problems, stance, written


def read(text: str, source: str = "api-tokens.md") -> Doc:
    found = document(text.encode(), source)
    assert isinstance(found, Doc)
    return found


def test_a_document_gives_title_headings_first_paragraph_and_the_words_of_its_name() -> None:
    found = read("# API *tokens*\n\nHow to make `one`,\nand [end](x) it.\n\nMore.\n\n## Make\n\n### Now\n\nEnd\n===\n")
    assert found == Doc(
        "API tokens", "api-tokens.md", ("Make", "Now", "End"), "How to make one, and end it.", ("api", "tokens")
    )


def test_frontmatter_gives_title_and_tags_where_present() -> None:
    found = read("---\ntitle: Tokens\ntags: [Auth, ' keys ', 7, true, Auth, '']\n---\n# Tokens\n\nText.\n\n## Make\n")
    assert (found.title, found.tags, found.headings) == ("Tokens", ("Auth", "keys", "7"), ("Make",))
    assert read("---\ntags: auth, keys\n---\nText.").tags == ("auth", "keys")
    assert read("---\ntags: []\n---\nText.").tags == ("api", "tokens")
    assert read("---\ntitle: Other\n---\n# Tokens\n").headings == ("Tokens",)


def test_at_most_twelve_headings_and_four_hundred_characters_of_summary() -> None:
    found = read("# T\n\n" + "é" * 401 + "\n" + "".join(f"\n## H{number}\n" for number in range(20)))
    assert found.headings == tuple(f"H{number}" for number in range(12))
    assert found.summary == "é" * 399 + "…"
    assert read("x" * 400).summary == "x" * 400
    assert len(read("# " + "t" * 5_000).title) == 200


def test_the_summary_is_the_first_paragraph_with_words_and_no_badge_quote_list_table_or_code() -> None:
    parts = ("# T", "[![build](b.svg)](ci)", "> quoted", "- item\n\n  in it", "```\ncode\n```", "| a |\n|---|\n| b |")
    assert read("\n\n".join((*parts, "<p>html</p>", "Words."))).summary == "Words."
    assert read("# Only a heading").summary == ""


def test_the_title_is_the_first_heading_of_the_highest_level_else_the_files_name() -> None:
    assert read("## Before\n\n# First\n\n# Second").title == "First"
    assert read("## Before\n\n# First\n\n# Second").headings == ("Before", "Second")
    assert read("```\n# code\n```\n\n> # quoted\n", "guides/how-to.md").title == "how-to"
    assert read("", "guides/how-to.md") == Doc("how-to", "guides/how-to.md", (), "", ("how",))


def test_a_rule_at_the_top_of_a_page_is_no_frontmatter() -> None:
    assert read("---\n\nWords.").summary == "Words."
    assert read("---\n\nA rule\n\n---\n\nWords.").summary == "A rule"
    assert read("---\nsaid\n---\n").title == "said"


def test_byte_order_mark_line_ends_and_nul_change_nothing_of_it() -> None:
    plain = "---\ntags: [a]\n---\n# T\n\nOne\ntwo.\n"
    assert read("\ufeff" + plain.replace("\n", "\r\n")) == read(plain)
    assert read("# a\0b").title == "a\ufffdb"


@pytest.mark.parametrize("data", [b"# caf\xe9", b"---\na: 1\na: 2\n---\n", b"---\na: [\n---\n"])
def test_a_file_that_is_not_utf8_or_has_broken_frontmatter_is_a_problem_with_its_line(data: bytes) -> None:
    found = document(data, "x.md")
    assert isinstance(found, Problem)
    assert found.entry == "x.md"
    assert found.line is not None


def test_a_folder_is_read_below_every_folder_sorted_by_path(tmp_path: Path) -> None:
    files = {"b.md": "b", "a/z.MD": "z", "a.md": "a", "a/b/c.md": "c", ".git/x.md": "x", ".x.md": "x", "n.txt": "n"}
    found = read_documents(str(folder(tmp_path, files)), [])
    assert [doc.source for doc in found.docs] == ["a.md", "a/b/c.md", "a/z.MD", "b.md"]
    assert found.skipped == ()


def test_links_and_devices_are_not_followed_and_named(tmp_path: Path) -> None:
    outside = folder(tmp_path / "outside", {"secret.md": "zebra", "more/deep.md": "zebra"})
    docs = folder(tmp_path / "docs", {"a.md": "a"})
    (docs / "link.md").symlink_to(outside / "secret.md")
    (docs / "loop").symlink_to(docs)
    (docs / "folder").symlink_to(outside)
    os.mkfifo(docs / "pipe.md")
    found = read_documents(str(docs), [])
    assert [doc.source for doc in found.docs] == ["a.md"]
    assert found.skipped == ("folder", "link.md", "loop", "pipe.md")


def test_every_file_that_cannot_be_an_entry_is_named_at_once(tmp_path: Path) -> None:
    docs = folder(tmp_path / "docs", {"a.md": b"\xff", "b/c.md": b"x" * (DOC_MAX_BYTES + 1), "ok.md": "ok"})
    (docs / "stances.json").write_bytes(written(stance()))
    with open(os.fsencode(docs) + b"/\xff.md", "wb"):
        pass
    with pytest.raises(InvalidArgument) as caught:
        compile_corpus(str(docs / "stances.json"), str(docs))
    assert [(entry, message[:20]) for entry, _, message in problems(caught.value)] == [
        ("b/c.md", "it is larger than 50"), ("\ufffd.md", "its name is not UTF-"), ("a.md", "The file is not UTF-"),
    ]  # fmt: skip


def test_a_name_that_would_break_a_line_is_a_problem(tmp_path: Path) -> None:
    found: list[Problem] = []
    assert read_documents(str(folder(tmp_path, {"a\n- T (stance, live).md": "x", "b\x1b.md": "y"})), found).docs == ()
    assert [problem.entry for problem in found] == ["a - T (stance, live).md", "b .md"]


def test_a_folder_that_is_missing_or_none_is_not_found(tmp_path: Path) -> None:
    for path in (tmp_path / "none", folder(tmp_path, {"a.md": "a"}) / "a.md"):
        with pytest.raises(NotFound) as caught:
            read_documents(str(path), [])
        assert str(path) in caught.value.message


def test_a_file_that_cannot_be_opened_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.knowledge_base import folder as module

    def refuse(name: str, limit: int, folder_fd: int | None) -> bytes:
        raise PermissionError(13, "Permission denied")

    docs = folder(tmp_path, {"a.md": "a"})
    monkeypatch.setattr(module, "_read", refuse)
    found: list[Problem] = []
    assert read_documents(str(docs), found).docs == ()
    assert found == [Problem("a.md", None, "it cannot be read: Permission denied")]


def test_five_thousand_documents_are_one_listing_of_each_folder_and_one_reading_of_each_file(tmp_path: Path) -> None:
    from storage import faults

    docs = folder(tmp_path, {f"{number % 7}/{number}.md": f"# Page {number}\n\nText." for number in range(5_000)})
    passed: list[str] = []
    with faults.installed(passed.append):
        found = read_documents(str(docs), [])
    assert len(found.docs) == 5_000
    assert passed.count("kb.read") == 5_000
    assert passed.count("kb.folder.read") == 8
