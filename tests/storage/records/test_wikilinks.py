"""Ids written into wikilinks that were composed before the ids were known."""

from __future__ import annotations

import pytest

from storage.records.wikilinks import fill_wikilinks

IDS = {"alex": "0b8f", "acme": "5d0c"}


@pytest.mark.parametrize(
    ("body", "filled"),
    [
        ("See [[$alex|Alex]].", "See [[0b8f|Alex]]."),
        ("[[$alex]] at [[$acme|Acme]] and [[$alex|again]]", "[[0b8f]] at [[5d0c|Acme]] and [[0b8f|again]]"),
        ("😀 [[$alex|Ä]]\r\n", "😀 [[0b8f|Ä]]\r\n"),
        ("| a |\n|---|\n| [[$alex\\|A]] |", "| a |\n|---|\n| [[0b8f\\|A]] |"),
        ("`[[$alex|A]]`", "`[[$alex|A]]`"),
        ("```\n[[$alex|A]]\n```\n\n[[$alex|A]]", "```\n[[$alex|A]]\n```\n\n[[0b8f|A]]"),
        ("\\[[$alex|A]]", "\\[[$alex|A]]"),
        ("[[$alexander|A]]`", None),
        ("costs $alex [[other|x]]", "costs $alex [[other|x]]"),
        ("`[[$nobody]]`", "`[[$nobody]]`"),
        ("", ""),
    ],
)
def test_a_ref_is_filled_in_wikilinks_and_nowhere_else(body: str, filled: str | None) -> None:
    if filled is None:
        with pytest.raises(KeyError):
            fill_wikilinks(body, IDS)
    else:
        assert fill_wikilinks(body, IDS) == filled
