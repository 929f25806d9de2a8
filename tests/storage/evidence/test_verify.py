"""Whether citations hold (decisions.md section 2; stores-and-access.md, Runtime and Limits)."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import Cancelled, StorageError
from storage.evidence import Verdict, VerdictCache, excerpt_path, unchanged, verify
from storage.evidence._passage import Passage
from storage.evidence.verify import FAULT_POINTS
from storage.faults import installed
from storage.files import Stamp
from storage.records import EvidenceCitation
from tests.kit.sources import long_after

REQUEST = "00000000-0000-4000-8000-000000000020"
PATH = excerpt_path(REQUEST)
TEXT = "one\r\ntwo has words\r\nthree\n\nfive 👍 ünï\n".encode()


class Partition:
    """A partition folder with one retained source."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / PATH
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(TEXT)
        self.fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.cache = VerdictCache(now_ns=long_after)

    def cite(
        self,
        start: int | None = None,
        end: int | None = None,
        quote: str | None = None,
        *,
        path: str = PATH,
        sha256: str | None = None,
    ) -> EvidenceCitation:
        digest = hashlib.sha256(self.file.read_bytes()).hexdigest() if sha256 is None else sha256
        return EvidenceCitation(path, digest, start_line=start, end_line=end, quote=quote)

    def verify(self, citation: EvidenceCitation, *, excerpt: bool = True) -> Verdict:
        return verify(citation, self.fd, self.cache, lambda: None, excerpt=excerpt)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    before = len(os.listdir("/proc/self/fd"))
    partition = Partition(tmp_path)
    yield partition
    os.close(partition.fd)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("start", "end", "quote", "excerpt"),
    [
        (None, None, None, "one\ntwo has words\nthree\n\nfive 👍 ünï"),
        (2, 2, "has words", "two has words"),
        (2, None, "two has words", "two has words"),
        (None, 3, "three", "three"),
        (2, 3, "words\nthree", "two has words\nthree"),
        (2, 3, "words\r\nthree", "two has words\nthree"),
        (4, 4, None, ""),
        (5, 5, "👍 ü", "five 👍 ünï"),
        (1, 5, "three\n\nfive", "one\ntwo has words\nthree\n\nfive 👍 ünï"),
        (None, None, "words\nthree", "one\ntwo has words\nthree\n\nfive 👍 ünï"),
    ],
)
def test_a_citation_holds_when_hash_lines_and_quote_agree(
    partition: Partition, start: int | None, end: int | None, quote: str | None, excerpt: str
) -> None:
    verdict = partition.verify(partition.cite(start, end, quote))
    assert (verdict.problem, verdict.excerpt, verdict.size) == (None, excerpt, len(TEXT))
    assert partition.verify(partition.cite(start, end, quote)) == verdict  # now from the cache


@pytest.mark.parametrize("lines", [(0, 1), (1, 6), (6, 6), (3, 2), (-1, 1), (5, 4), (10**12, 10**12)])
def test_lines_outside_the_source_are_a_line_range_problem(partition: Partition, lines: tuple[int, int]) -> None:
    verdict = partition.verify(partition.cite(*lines))
    assert verdict.problem == "line_range"
    assert "the source has 5" in verdict.message
    assert verdict.excerpt == ""


@pytest.mark.parametrize(
    ("start", "end", "quote"),
    [(1, 1, "two"), (3, 3, "two has words"), (2, 2, "words\nthree"), (None, None, "absent"), (5, 5, "👎")],
)
def test_a_quote_must_occur_inside_the_cited_lines(
    partition: Partition, start: int | None, end: int | None, quote: str
) -> None:
    verdict = partition.verify(partition.cite(start, end, quote))
    assert verdict.problem == "quote_mismatch"
    assert quote not in verdict.message


def test_an_empty_source_has_no_line_but_holds_as_a_whole(partition: Partition) -> None:
    partition.file.write_bytes(b"")
    assert partition.verify(partition.cite()).problem is None
    assert partition.verify(partition.cite(1, 1)).problem == "line_range"


def test_a_changed_source_is_a_hash_mismatch_even_with_size_and_mtime_restored(partition: Partition) -> None:
    citation = partition.cite()
    assert partition.verify(citation).problem is None
    status = partition.file.stat()
    partition.file.write_bytes(TEXT.replace(b"one", b"two", 1))
    os.utime(partition.file, ns=(status.st_atime_ns, status.st_mtime_ns))
    verdict = partition.verify(citation)
    assert (verdict.problem, verdict.excerpt) == ("hash_mismatch", "")
    partition.file.write_bytes(TEXT)
    assert partition.verify(citation).problem is None


def test_a_missing_source_is_missing_wherever_the_path_ends(partition: Partition) -> None:
    other = "00000000-0000-4000-8000-000000000021"
    for path in (f"artifacts/{REQUEST}/absent.txt", f"artifacts/{other}/excerpt.txt"):
        assert partition.verify(partition.cite(path=path)).problem == "missing"
    partition.file.unlink()
    partition.file.parent.rmdir()
    partition.file.parent.write_text("a file where the folder was")
    assert partition.verify(partition.cite(sha256="0" * 64)).problem == "missing"


@pytest.mark.parametrize(
    "path",
    ["", "artifacts", f"artifacts/{REQUEST}", f"artifacts/{REQUEST}/", f"artifacts/{REQUEST}/..",
     f"artifacts/{REQUEST}/../../../etc/passwd", f"artifacts/{REQUEST}/a/b", f"../artifacts/{REQUEST}/x",
     "/etc/passwd", f"/artifacts/{REQUEST}/x", "artifacts/not-a-uuid/x", "people/ada.md",
     f"artifacts/{REQUEST}/.kr-1.0.1",
     f"artifacts/{REQUEST}/a\0b", f"artifacts/{REQUEST}/" + "x" * 300, f"Artifacts/{REQUEST}/excerpt.txt"],
)  # fmt: skip
def test_a_path_that_is_no_retained_source_is_unsafe_and_nothing_is_opened(partition: Partition, path: str) -> None:
    passed: list[str] = []
    with installed(passed.append):
        assert partition.verify(partition.cite(path=path)).problem == "unsafe"
    assert passed == []


def test_symbolic_links_hard_links_fifos_and_folders_are_unsafe(partition: Partition, tmp_path: Path) -> None:
    folder = partition.file.parent
    (folder / "link.txt").symlink_to(partition.file)
    os.mkfifo(folder / "pipe.txt")
    (folder / "folder.txt").mkdir()
    for name in ("link.txt", "pipe.txt", "folder.txt"):
        assert partition.verify(partition.cite(path=f"artifacts/{REQUEST}/{name}")).problem == "unsafe"
    os.link(partition.file, tmp_path / "second")
    assert partition.verify(partition.cite()).problem == "unsafe"
    (tmp_path / "second").unlink()
    assert partition.verify(partition.cite()).problem is None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert partition.verify(partition.cite()).problem in ("unsafe", "missing")


def test_an_unchanged_source_is_hashed_once_and_read_again_only_for_its_excerpt(partition: Partition) -> None:
    def reads(citation: EvidenceCitation, *, excerpt: bool) -> int:
        passed: list[str] = []
        with installed(passed.append):
            partition.verify(citation, excerpt=excerpt)
        return passed.count("evidence.read")

    citation = partition.cite(2, 3)
    assert reads(citation, excerpt=False) == 2  # the piece and the end
    assert reads(citation, excerpt=False) == 0
    assert reads(citation, excerpt=True) == 1
    assert partition.verify(citation).excerpt == "two has words\nthree"


def test_a_large_source_is_read_again_only_up_to_its_cited_lines(partition: Partition) -> None:
    partition.file.write_bytes(b"first\n" + b"filler of some length\n" * 200_000)
    citation = partition.cite(1, 1)
    partition.verify(citation)
    passed: list[str] = []
    with installed(passed.append):
        assert partition.verify(citation).excerpt == "first"
    assert passed.count("evidence.read") == 1


def test_the_memory_used_does_not_grow_with_the_source_and_nothing_of_it_is_kept(partition: Partition) -> None:
    with partition.file.open("wb") as file:
        for _ in range(24):
            file.write(b"z" * (1 << 20))
    citations = [partition.cite(), partition.cite(quote="y"), partition.cite(1, 1, "z" * 100)]
    tracemalloc.start()
    try:
        problems = [partition.verify(citation).problem for citation in citations]
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problems == [None, "quote_mismatch", None]
    assert peak < 8 << 20
    assert kept < 64 << 10


def test_an_excerpt_is_clipped_at_four_thousand_units_and_never_inside_a_surrogate_pair(partition: Partition) -> None:
    for text, units in (("ab" * 3_000, 4_000), ("a" + "👍" * 3_000, 3_999), ("語" * 5_000, 4_000)):
        partition.file.write_text(text)
        excerpt = partition.verify(partition.cite(1, 1)).excerpt
        assert text.startswith(excerpt)
        assert len(excerpt.encode("utf-16-le")) // 2 == units


@pytest.mark.parametrize("data", [b"\xff\xfe\x00binary", b"text with a\0NUL", b"latin-1: \xe9"])
def test_a_binary_source_holds_but_has_no_excerpt(partition: Partition, data: bytes) -> None:
    partition.file.write_bytes(data)
    verdict = partition.verify(partition.cite())
    assert (verdict.problem, verdict.excerpt) == (None, "")


def test_work_can_be_given_up_between_pieces_and_leaves_no_verdict(partition: Partition) -> None:
    partition.file.write_bytes(b"x" * (3 << 20))
    calls = 0

    def stop_at_the_third() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Cancelled("the caller gave up")

    with pytest.raises(Cancelled):
        verify(partition.cite(), partition.fd, partition.cache, stop_at_the_third)
    assert len(partition.cache) == 0


def test_a_source_that_changes_while_it_is_read_is_read_again(partition: Partition) -> None:
    citation = partition.cite()
    edited = 0

    def edit(name: str) -> None:
        nonlocal edited
        if name == "evidence.read.after" and edited < 1:
            edited += 1
            os.utime(partition.file)

    with installed(edit):
        assert partition.verify(citation).problem is None

    def keep_editing(name: str) -> None:
        if name == "evidence.read.after":
            partition.file.write_bytes(TEXT)

    partition.cache = VerdictCache()
    with installed(keep_editing):
        verdict = partition.verify(citation)
    assert (verdict.problem, verdict.stamp) == ("hash_mismatch", None)
    assert len(partition.cache) == 0
    assert partition.verify(citation).problem is None


@pytest.mark.parametrize("point", ["evidence.folder", "evidence.open", "evidence.read", "evidence.stat"])
def test_a_failing_disk_is_a_storage_error_and_no_verdict_on_the_evidence(partition: Partition, point: str) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise OSError(5, "Input/output error")

    with installed(fail), pytest.raises(StorageError):
        partition.verify(partition.cite())
    assert len(partition.cache) == 0
    assert partition.verify(partition.cite()).problem is None


def test_a_verdict_can_be_checked_again_by_its_stamp_alone(partition: Partition, tmp_path: Path) -> None:
    citation = partition.cite()
    verdict = partition.verify(citation)
    passed: list[str] = []
    with installed(passed.append):
        assert unchanged(citation, verdict, partition.fd)
    assert "evidence.read" not in passed
    os.link(partition.file, tmp_path / "second")
    assert not unchanged(citation, verdict, partition.fd)
    (tmp_path / "second").unlink()
    assert not unchanged(citation, verdict, partition.fd)  # its ctime moved: it may have been written through the link
    verdict = partition.verify(citation)
    assert unchanged(citation, verdict, partition.fd)
    partition.file.unlink()
    assert not unchanged(citation, verdict, partition.fd)
    assert not unchanged(citation, partition.verify(citation), partition.fd)


def test_the_cache_keeps_no_more_than_its_limit_and_forgets_the_least_used(partition: Partition) -> None:
    partition.cache = VerdictCache(limit=2, now_ns=long_after)
    one, two, three = (partition.cite(line, line) for line in (1, 2, 3))
    verdict = partition.verify(one)
    for citation in (two, one, three):
        partition.verify(citation)
    assert len(partition.cache) == 2
    assert verdict.stamp is not None
    assert partition.cache.get(one, verdict.stamp) is not None
    assert partition.cache.get(two, verdict.stamp) is None


def test_each_part_of_a_citation_has_a_verdict_of_its_own(partition: Partition) -> None:
    assert partition.verify(partition.cite(1, 1, "one")).problem is None
    assert partition.verify(partition.cite(1, 1, "two")).problem == "quote_mismatch"
    assert partition.verify(partition.cite(2, 2, "two")).problem is None
    assert partition.verify(partition.cite(sha256="0" * 64)).problem == "hash_mismatch"


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"a", b"b", "é".encode(), b"ab", b"\r\n"]), max_size=30).map(b"".join),
    st.integers(1, 5),
    st.integers(0, 3),
    st.sampled_from(["a", "ab", "b\na", "\n", "é", "a\r\nb", "b\r", "aab"]),
    st.integers(1, 7),
)
def test_pieces_of_any_size_give_what_the_whole_text_gives(
    data: bytes, start: int, more: int, quote: str, piece: int
) -> None:
    passage = Passage(start, start + more, quote)
    for at in range(0, len(data), piece):
        passage.feed(data[at : at + piece])
    passage.finish()
    whole = data.replace(b"\r\n", b"\n")
    lines = whole.split(b"\n")[:-1] if whole.endswith(b"\n") or not whole else whole.split(b"\n")
    cited = b"".join(
        line + (b"\n" if number < len(lines) or whole.endswith(b"\n") else b"")
        for number, line in enumerate(lines, start=1)
        if start <= number <= start + more
    )
    assert passage.lines == len(lines)
    assert passage.excerpt() == cited.decode().removesuffix("\n")
    assert passage.quote_found == (quote.replace("\r\n", "\n").encode() in cited)


def test_every_point_that_verification_passes_is_declared(partition: Partition) -> None:
    passed: set[str] = set()
    with installed(passed.add):
        verdict = partition.verify(partition.cite())
        unchanged(partition.cite(), verdict, partition.fd)
    assert {name.removesuffix(".after") for name in passed} == {name for name, _ in FAULT_POINTS}


def test_a_rewrite_within_one_tick_of_the_clock_is_not_hidden_by_an_earlier_verdict(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both texts have one size, and on a file system with a coarse clock one stamp."""
    citation = partition.cite()
    coarse = Stamp.of(os.stat(partition.file))
    monkeypatch.setattr(Stamp, "of", lambda status: coarse)
    partition.cache = VerdictCache(now_ns=lambda: coarse.ctime_ns + 1_000_000)
    assert partition.verify(citation).problem is None
    partition.file.write_bytes(TEXT.swapcase())
    assert partition.verify(citation).problem == "hash_mismatch"


def test_a_verdict_is_kept_once_the_file_is_older_than_the_coarsest_tick(partition: Partition) -> None:
    citation = partition.cite()
    now = Stamp.of(os.stat(partition.file)).ctime_ns
    partition.cache = VerdictCache(now_ns=lambda: now)
    partition.verify(citation)
    assert len(partition.cache) == 0
    now += 2_000_000_000
    partition.verify(citation)
    assert len(partition.cache) == 1
    passed: list[str] = []
    with installed(passed.append):
        assert partition.verify(citation, excerpt=False).problem is None
    assert "evidence.read" not in passed


def test_what_a_fresh_look_found_takes_the_place_of_what_was_known(partition: Partition) -> None:
    citation = partition.cite()
    assert partition.verify(citation).problem is None
    stamp = Stamp.of(os.stat(partition.file))
    anew = VerdictCache(now_ns=long_after)
    anew.put(citation, Verdict("hash_mismatch", "other bytes", "", stamp.size, stamp), long_after())
    partition.cache.take_over(anew)
    assert partition.verify(citation).problem == "hash_mismatch"
