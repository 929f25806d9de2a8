"""Partitions as keys."""

from __future__ import annotations

import pytest

from messages.vocabulary import PRIVATE, Partition

SESSION = "33333333-3333-4333-8333-333333333333"


@pytest.mark.parametrize("partition", [PRIVATE, Partition(SESSION)])
def test_a_partition_is_read_back_from_its_key(partition: Partition) -> None:
    assert Partition.parse(partition.key) == partition


def test_a_partition_knows_its_kind() -> None:
    assert (PRIVATE.kind, PRIVATE.key) == ("private", "private")
    assert (Partition(SESSION).kind, Partition(SESSION).key) == ("conversation", f"conversations/{SESSION}")


@pytest.mark.parametrize(
    "key",
    ["", "Private", "conversations", "conversations/", "conversations/x", f"conversations/{SESSION.replace('-', '')}",
     f"other/{SESSION}", f"conversations/{SESSION}/..", "conversations/{" + SESSION + "}", f"/{SESSION}"],
)  # fmt: skip
def test_any_other_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError):
        Partition.parse(key)
