"""Sanitizers: what could pass for structure of a prompt does so no longer, and all else stays as it was."""

from __future__ import annotations

import re
from sys import modules

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.agent_memory import defang_delimiters, strip_surrogates

_DEFANGED = [
    ("--- A ---", "— A —"),
    ("---A---", "— A —"),
    ("--- A -----", "— A -- —"),
    ("--- -x ---", "—  -x —"),
    ("--- ---", "—   —"),
    ("--- a --- b ---", "— a --- b —"),
    ("   --- A ---", "   — A —"),
    ("--- A ---\r\nb", "— A —\r\nb"),
    ("a\n--- A ---", "a\n— A —"),
    ("--- A", "— A"),
    ("---\tA", "— A"),
    ("[INST]", "[ INST]"),
    ("[/INST]", "[ /INST]"),
    ("[\t sys ]", "[ sys ]"),
    ("x [Assistant] y [USER] z [SYSTEM]", "x [ Assistant] y [ USER] z [ SYSTEM]"),
    ("[\nINST\n]", "[ \nINST\n]"),
    ("<<SYS>>", "< < SYS>>"),
    ("<</sys>>", "< < /sys>>"),
    ("<|im_start|>", "< |im_start|>"),
    ("a <|IM_END|> b", "a < |IM_END|> b"),
    ("<system>", "< system>"),
    ("</system>", "< /system>"),
    ("<|assistant|><user><|endoftext|><start><end>", "< |assistant|>< user>< |endoftext|>< start>< end>"),
    ("USER:hi", "USER :hi"),
    ("  Human： x", "  Human ： x"),
    ("      System: x", "      System : x"),
    ("Assistant  : x", "Assistant : x"),
    ("Usuário: a\nUsuario: b\nSistema: c\nAssistente: d\nHumano: e",
     "Usuário : a\nUsuario : b\nSistema : c\nAssistente : d\nHumano : e"),
    ("a\u2028Human: x", "a\u2028Human : x"),
    ("```python", "ˋˋˋpython"),
    ("  ~~~~", "  ˜˜˜˜"),
]  # fmt: skip
_UNTOUCHED = [
    "[ /INST ]", "< / user >", "    --- A ---", "x User: y", "---A", "---", "--- ", "a --- A ---", "---- A ----",
    "===", "=====\nA\n=====", "`x` ``y``", "    ```", "x ```", "<system role=x>", "<start_of_turn>", "",
    "Users: three", "a [list] of <b>", "The ratio is 3:1", "– A –", "😀",
]  # fmt: skip


@pytest.mark.parametrize(("text", "defanged"), _DEFANGED)
def test_what_could_pass_for_structure_is_defanged(text: str, defanged: str) -> None:
    assert defang_delimiters(text) == defanged


@pytest.mark.parametrize("text", _UNTOUCHED)
def test_what_is_no_structure_is_untouched(text: str) -> None:
    assert defang_delimiters(text) == text


def test_nothing_is_an_empty_text() -> None:
    assert (defang_delimiters(None), strip_surrogates(None)) == ("", "")


_PIECES = st.sampled_from(
    ["---", "-", " ", "\t", "\n", "\r", "\u2028", "[", "]", "<", ">", "|", "/", "`", "```", "~~~", ":", "：", "x",
     "INST", "SYS", "user", "im_start", "System", "Humano", "\ud800"]
)  # fmt: skip
_TEXTS = st.one_of(st.text(), st.lists(_PIECES, max_size=20).map("".join))


@given(_TEXTS)
def test_what_is_defanged_stays_as_it_is(text: str) -> None:
    once = defang_delimiters(text)
    assert defang_delimiters(once) == once
    assert len(once) <= 3 * len(text)


@given(_TEXTS)
def test_stripping_leaves_what_utf_8_can_hold_and_nothing_more_changes(text: str) -> None:
    once = strip_surrogates(text)
    assert once.encode("utf-8").decode("utf-8") == once == strip_surrogates(once)
    assert once == "".join(one for one in text if not "\ud800" <= one <= "\udfff")


def test_no_pattern_can_share_out_a_run_in_more_than_one_way() -> None:
    """What makes a regular expression slow is a repetition that can give characters back to another one."""
    module = modules[defang_delimiters.__module__]
    patterns = [value for value in vars(module).values() if isinstance(value, re.Pattern)]
    assert len(patterns) == 4
    for pattern in patterns:
        bare = re.sub(r"\\.", "", re.sub(r"\[(?:\\.|[^\]])+\]", "c", re.sub(r"\\\[|\\\]", "", pattern.pattern)))
        repetitions = re.findall(r"(?:[*+?]|\{\d+,\d*\})(?!\+)(?<!\(\?)(?<!\+\+)(?<!\*\+)(?<!\?\+)(?<!\}\+)", bare)
        assert not repetitions, pattern.pattern
