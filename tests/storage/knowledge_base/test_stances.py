"""``stances.json``: what is accepted, what is refused with which line, and what the digest covers."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import InvalidArgument
from messages.json_types import JsonValue
from storage.knowledge_base import located_json
from storage.knowledge_base.located_json import Located, Unreadable
from storage.knowledge_base.stances import KEYS, parse
from tests.storage.knowledge_base.kit import problems, stance, written


def refused(data: bytes) -> list[tuple[str, int | None, str]]:
    with pytest.raises(InvalidArgument) as caught:
        parse(data, "stances.json")
    assert caught.value.message.startswith("stances.json has ")
    return problems(caught.value)


def test_a_sound_file_gives_its_stances_in_their_order() -> None:
    found = parse(written(stance("b"), stance("a", questions=[], sources=[])), "s")
    assert [one.id for one in found] == ["b", "a"]
    lists = {"questions": ("Can agents be paid yet?",), "sources": ("docs/ledger.md",)}
    assert found[0].to_json() == {**stance("b"), **lists}
    assert (found[1].questions, found[1].sources) == ((), ())


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_line_ends_of_every_kind_and_a_byte_order_mark_are_read_and_lines_counted(newline: bytes) -> None:
    sound = written(stance("one"), stance("two")).replace(b"\n", newline)
    assert [one.id for one in parse(b"\xef\xbb\xbf" + sound, "s")] == ["one", "two"]
    broken = written(stance("one"), stance("two", date="2026-02-30")).replace(b"\n", newline)
    assert refused(b"\xef\xbb\xbf" + broken) == [("two", 3, "`date` must be a day that exists, as YYYY-MM-DD")]


@pytest.mark.parametrize(
    "stance_id",
    [
        "Paid-agents", "paid agents", "paid--agents", "-paid", "paid-", "paid/agents", "paid_agents", "pä", "a\n",
        201 * "a",
    ],
)
def test_an_id_that_is_no_lower_case_words_joined_by_single_hyphens_is_refused_by_position(stance_id: str) -> None:
    [(entry, line, message)] = refused(written(stance("first"), stance(stance_id)))
    assert (entry, line) == ("[1]", 3)
    assert message.startswith("`id` must be words of a-z and 0-9")


@pytest.mark.parametrize(
    "text", ["2026-02-29", "2026-13-01", "2026-1-01", "20260101", "2026-01-01T00", "٢٠٢٦-٠١-٠١", "0000-01-01"]
)
def test_a_date_that_is_no_real_day_is_refused(text: str) -> None:
    assert [line for _, line, _ in refused(written(stance(date=text)))] == [2]


def test_an_id_stands_once_even_where_both_stand_on_one_line() -> None:
    assert refused(written(stance("a"), stance("b"), stance("a"))) == [
        ("a", 4, "the id is taken by the stance on line 2; each id once")
    ]
    one_line = json.dumps([stance("a"), stance("a")]).encode()
    assert len(refused(one_line)) == 1


def test_an_id_that_differs_only_by_case_is_refused_since_upper_case_is_no_id() -> None:
    assert [entry for entry, _, _ in refused(written(stance("a"), stance("A")))] == ["[1]"]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_missing_is_named(key: str) -> None:
    without = {name: value for name, value in stance().items() if name != key}
    expected = "[0]" if key == "id" else "paid-agents"
    assert refused(written(without)) == [(expected, 2, f"`{key}` is missing")]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [None, 7, True, {}, "", " \t", "\u200b", [""], [3], [None]])
def test_a_value_of_the_wrong_kind_or_blank_is_refused(key: str, value: JsonValue) -> None:
    [(_, line, message)] = refused(written({**stance(), key: value}))
    assert line == 2
    assert f"`{key}" in message


def test_a_key_that_nothing_reads_is_refused_by_name() -> None:
    [(entry, line, message)] = refused(written(stance(answr="x")))
    assert (entry, line) == ("paid-agents", 2)
    assert '"answr"' in message


def test_a_title_and_a_state_are_one_line_and_an_answer_may_have_more() -> None:
    assert parse(written(stance(answer="One.\n\nTwo.")), "s")[0].answer == "One.\n\nTwo."
    found = refused(written(stance(title="a\nb", state="c\u2028d")))
    assert [message for _, _, message in found] == ["`title` must be one line", "`state` must be one line"]


def test_all_problems_are_reported_at_once_in_the_order_of_their_lines() -> None:
    data = b"""[
  {"id": "a", "id": "b", "title": "", "questions": "x",
   "state": "live",
   "answer": "x", "sources": [],
   "date": "soon"},
  7,
  {"id": "c"}
]"""
    found = refused(data)
    assert [line for _, line, _ in found] == sorted(line or 0 for _, line, _ in found)
    assert [(entry, line) for entry, line, _ in found] == [
        ("", 2), ("a", 2), ("a", 2), ("a", 5), ("[1]", 6), *[("c", 7)] * 6,
    ]  # fmt: skip


def test_a_refusal_shows_the_first_problems_and_has_them_all() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(written(*(stance(f"s{number}", date="x") for number in range(500))), "s")
    assert len(problems(caught.value)) == 500
    assert caught.value.message.count("\n") == 21
    assert caught.value.message.endswith("and 480 more")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"\n\n{", 3),
        (b"[\n1,\n]", 3),
        (b'[{"a": 1,\n}]', 2),
        (b"[1 2]", 1),
        (b"[]\n[]", 2),
        (b"[\nNaN]", 2),
        (b"[\n-Infinity]", 2),
        (b'[\n"a\nb"]', 2),
        (b"[\n'a']", 2),
        (b"[,]", 1),
        (b'{"a" 1}', 1),
        (b"{1: 2}", 1),
        (b'[\n"\\x"]', 2),
        (b"[\n// no\n]", 2),
        (b"[" * 100_000, 1),
        (b'{"a":' * 100_000, 1),
        (b"[\n" + b"9" * 5_000 + b"]", 2),
        (b"[\n\xff]", 2),
        (b"\xff\xfe[\x00]\x00", 1),
    ],
)
def test_hostile_or_broken_json_is_one_problem_with_its_line(data: bytes, line: int) -> None:
    assert [found for _, found, _ in refused(data)] == [line]


def test_a_nul_and_half_a_surrogate_pair_are_refused_where_they_stand() -> None:
    found = refused(b'[\n' + json.dumps(stance(answer="a\0b", title="\ud800")).encode() + b"\n]")
    assert [line for _, line, _ in found] == [2, 2]
    assert all("cannot be stored" in message for _, _, message in found)


def test_a_problem_never_repeats_what_an_answer_says() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(written(stance(answer=["zebra crossing"], date="zebra")), "s")
    assert "zebra" not in caught.value.message + json.dumps(caught.value.fields)


def test_the_root_must_be_an_array() -> None:
    assert refused(b'{"stances": []}') == [("", 1, "the file must be an array of stances")]
    assert parse(b"[]", "s") == ()


def test_the_digest_is_that_of_the_seven_keys_in_canonical_json() -> None:
    [found] = parse(written(stance(title='A "quote" é', answer="a\n\tb/c\u007f")), "s")
    text = (
        '{"answer":"a\\n\\tb/c\u007f","date":"2026-08-25","id":"paid-agents","questions":["Can agents be paid yet?"],'
        '"sources":["docs/ledger.md"],"state":"planned","title":"A \\"quote\\" é"}'
    )
    assert found.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_layout_and_order_of_keys_change_no_digest() -> None:
    [one] = parse(written(stance()), "s")
    turned = dict(reversed(stance().items()))
    [other] = parse(json.dumps([turned], indent=7).encode("utf-8-sig"), "s")
    assert one.digest == other.digest


@pytest.mark.parametrize("key", KEYS)
def test_a_change_of_any_key_changes_the_digest(key: str) -> None:
    value: JsonValue = ["Another?"] if key in ("questions", "sources") else "2026-08-26" if key == "date" else "another"
    [one], [other] = parse(written(stance()), "s"), parse(written({**stance(), key: value}), "s")
    assert one.digest != other.digest


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def plain(located: Located) -> object:
    value = located.value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(member.value) for key, member in value.items()}
    return value


@given(_JSON, st.sampled_from([None, 0, 3]))
def test_what_the_standard_reader_reads_is_read_the_same(value: object, indent: int | None) -> None:
    assert plain(located_json.parse(json.dumps(value, indent=indent))[0]) == value


@given(st.text(alphabet='[]{},:"\\ \n01eE.-+truefalsn\u00e9'))
def test_what_the_standard_reader_refuses_is_refused(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    except ValueError:
        with pytest.raises(Unreadable):
            located_json.parse(text)
    else:
        located_json.parse(text)


def test_every_value_and_name_knows_its_line() -> None:
    root, troubles = located_json.parse('\n{"a": [1,\r\n 2,\r{}],\n"b":\n\n"x"}')
    assert troubles == ()
    assert isinstance(root.value, dict)
    items = root.value["a"].value.value
    assert isinstance(items, tuple)
    assert (root.line, root.value["a"].line, [item.line for item in items]) == (2, 2, [2, 3, 4])
    assert (root.value["b"].line, root.value["b"].value.line) == (5, 7)
