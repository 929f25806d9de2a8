"""Hypothesis strategies shared by the tests of record files."""

from __future__ import annotations

from hypothesis import strategies as st

from messages.json_types import JsonValue

# Characters on which readers part: line breaks old and new, marks, controls, pairs, quotes, YAML's indicators.
HOSTILE = (
    "\x00\x01\t\x7f\x80\x85\x9f\xa0\u200b\u200d\u2028\u2029\ufeff\ufffe\uffff😀𐍈é\u0301日'\"\\:#-?[]{},&*!|>%@`~ \n\r/"
)

texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.text(st.sampled_from(HOSTILE + "abu0d8f1eE.+_="), max_size=12),
    st.sampled_from(
        ["", "null", "true", "Yes", "no", "on", "012", "0o17", "0x1F", "1_000", "1e3", ".5", "1.", "-0", ".inf", ".NaN",
         "2026-09-20", "12:30:45", "~", "<<", "=", "---", "...", "a: b", "a #b", "- a", "\\ud83d", "\\u2028", "é"]
    ),
)  # fmt: skip

keys = st.one_of(st.sampled_from(["title", "a", "b", "null", "true", "1", "<<", "a b", "é", "-", "", "x" * 130]), texts)

numbers = st.one_of(
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)

leaves: st.SearchStrategy[JsonValue] = st.one_of(texts, numbers)


def _around(inner: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    return st.one_of(inner, st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3))


values = _around(_around(_around(leaves)))

frontmatters: st.SearchStrategy[dict[str, JsonValue]] = st.dictionaries(keys, values, min_size=1, max_size=6)
