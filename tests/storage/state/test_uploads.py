"""The rows of attached sources are found by their indexes, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from messages.vocabulary import PRIVATE
from storage.state import uploads
from storage.state.connection import Database
from storage.state.uploads import Upload
from tests.kit.sources import upload_id
from tests.kit.store import GROUP_PARTITION, Desk


def upload(number: int, **more: object) -> Upload:
    given: dict[str, object] = {
        "request_id": upload_id(number), "operation": "attach", "payload_hash": "0" * 64, "actor": "main",
        "filename": "a.txt", "media_type": None, "attribution": "Alex", **more,
    }  # fmt: skip
    return Upload(**given)  # type: ignore[arg-type]


LOOKS: dict[str, Callable[[Database], object]] = {
    "find": lambda db: uploads.find(db, PRIVATE, upload_id(7)),
    "descriptors": lambda db: uploads.descriptors(db, PRIVATE, "p", "7"),
    "retained": lambda db: uploads.retained(db, PRIVATE, "7"),
}


@pytest.mark.parametrize("look", sorted(LOOKS))
def test_a_look_steps_as_many_rows_among_a_thousand_uploads_as_among_ten(desk: Desk, look: str) -> None:
    db = desk.session.publisher.db

    def steps() -> int:
        passed = 0

        def count() -> bool:
            nonlocal passed
            passed += 1
            return False

        db._connection.set_progress_handler(count, 1)
        try:
            LOOKS[look](db)
        finally:
            db._connection.set_progress_handler(None)
        return passed

    found = []
    for numbers in (range(10), range(10, 1_000)):
        with desk.session.publisher.transaction(full=False, point="upload"):
            for number in numbers:
                uploads.put(db, PRIVATE, upload(number, sha256=str(number), path="p", size=1))
        found.append(steps())
    assert found[0] == found[1]


def test_a_retained_upload_is_never_changed_and_belongs_to_its_partition(desk: Desk) -> None:
    db = desk.session.publisher.db
    kept = upload(1, sha256="1", path="p", size=1, received=1)
    with desk.session.publisher.transaction(full=False, point="upload"):
        uploads.put(db, PRIVATE, upload(1, received=1))
        uploads.put(db, PRIVATE, kept)
        uploads.put(db, PRIVATE, upload(1, sha256="2", path="q", size=2, received=2))
    assert uploads.find(db, PRIVATE, upload_id(1)) == kept
    assert uploads.find(db, GROUP_PARTITION, upload_id(1)) is None
    assert uploads.retained(db, GROUP_PARTITION, "1") == []
    assert uploads.descriptors(db, GROUP_PARTITION, "p", "1") == []
