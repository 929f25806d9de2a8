"""Candidates and passages are those of the same rules without a shortcut, to the last bit of their scores."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from storage.search import SearchIndex, message_words, passages, stems
from storage.search._candidates import parse_message
from storage.search._fold import tokens
from storage.search._lemmas import lemma
from storage.search._query import Phrase
from storage.search._rarity import rarity
from tests.storage.search.samples import NOTE, fill

WORDS = (
    "harbor harbors harbour crane cranes go went gone going pier tide boat buy bought Marta naïve café c++ v2.8 "
    "京都の庭園 会議 회의 пристань 🦊 the of and it"
).split()
ABSENT = ("kingfisher", "absent", "庭師")


def text_of(source: random.Random, most: int) -> str:
    return " ".join(source.choices(WORDS, weights=range(len(WORDS), 0, -1), k=source.randint(1, most)))


def message_of(source: random.Random) -> str:
    words = source.choices(WORDS, k=source.randint(1, 9)) + source.choices(ABSENT, k=source.randint(0, 3))
    source.shuffle(words)
    return " ".join(words)


def stemmed(phrase: Phrase) -> tuple[str, ...]:
    return tuple(stems(" ".join(phrase)))


def places_of(phrase: Sequence[str], text: Sequence[str]) -> list[int]:
    size = len(phrase)
    return [place for place in range(len(text) - size + 1) if tuple(text[place : place + size]) == tuple(phrase)]


def plain_scores(pages: Sequence[tuple[str, str]], message: str) -> dict[int, float]:
    """The score of every page of ``(title, body)`` that shares a word with the message as it is written in it."""
    words = parse_message(message).words
    order = [word.indexed for word in words]
    named = [(stems(title), stems(body)) for title, body in pages]
    found = [[(places_of(stemmed(one), name), places_of(stemmed(one), body)) for one in order] for name, body in named]
    weights = [rarity(sum(bool(a or b) for a, b in (row[n] for row in found)), len(pages)) for n in range(len(order))]
    average = sum(len(name) + len(body) for name, body in named) / len(pages)
    scores: dict[int, float] = {}
    for number, ((title, body), (name, stem), row) in enumerate(zip(pages, named, found, strict=True)):
        written = (tokens(title), tokens(body))
        exact = [n for n, word in enumerate(words) if any(places_of(f, text) for f in word.written for text in written)]
        if not exact:
            continue
        length = 0.5 + 0.5 * (len(name) + len(stem)) / max(average, 1)
        score = 0.0
        for weight, (in_name, in_body) in zip(weights, row, strict=True):
            times = 2.0 * len(in_name) + len(in_body)
            if times:
                score += weight * (times * 3.0 / (times + 2.0 * length) + 1.0)
            if in_name:
                score += 1.0 * weight
        for one, other in parse_message(message).neighbours:
            steps = [
                second - first
                for firsts, seconds in zip(row[one], row[other], strict=True)
                for first in firsts
                for second in seconds
            ]
            both = (weights[one] + weights[other]) / 2
            score += 0.5 * both * (1 in steps)
            # Two words of one stem stand in one place: nothing is near to itself.
            near = 1 in steps or 0 < min(map(abs, steps), default=0) <= 8
            score += 0.2 * both * near
        scores[number + 1] = score + 0.2 * sum(weights[n] for n in exact)
    return scores


def test_candidates_are_those_of_the_plain_rules_for_three_hundred_messages(index: SearchIndex) -> None:
    source = random.Random(20)
    pages = [(text_of(source, 3), text_of(source, 60)) for _ in range(45)]  # fewer than the first stage hands on
    fill(index, [replace(NOTE, title=title, body=body) for title, body in pages])
    for _ in range(300):
        message = message_of(source)
        expected = plain_scores(pages, message)
        found = index.candidates(parse_message(message), at_least=0).candidates
        assert {one.rowid for one in found} == set(expected)
        for one in found:
            assert abs(one.score - expected[one.rowid]) < 1e-9, message
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def plain_passages(body: str, message: str, most: int) -> list[str]:
    blocks = [part.strip("\r\n").rstrip() for part in re.split(r"\r?\n(?:[^\S\n]*\n)+", body)]
    blocks = [block for block in blocks if block]
    phrases = [word.indexed for word in parse_message(message).words]
    held = [[one for one in phrases if places_of(one, [*map(lemma, tokens(block))])] for block in blocks]
    weight = {one: rarity(sum(one in has for has in held), len(blocks)) for one in phrases}
    scores = [sum(weight[one] for one in has) for has in held]
    ranked = sorted(range(len(blocks)), key=lambda place: (-scores[place], place))
    return [blocks[place] for place in [one for one in ranked if scores[one]] or ranked][:most]


def test_passages_are_those_of_the_plain_rules_for_three_hundred_pages() -> None:
    source = random.Random(21)
    for _ in range(300):
        gap = source.choice(("\n\n", "\r\n\r\n", "\n \t\n", "\n\n\n", "\r\n \n"))
        body = gap.join(text_of(source, 12) for _ in range(source.randint(1, 8)))
        message, most = message_of(source), source.randint(1, 5)
        found = passages(body, message_words(message), most=most, chars=4_000, total=40_000)
        assert list(found) == plain_passages(body, message, most)


RANKING = """
import random
from storage.search import message_words, passages
numbers = "one two three four five six seven eight nine ten".split()
words, source = message_words(" ".join(numbers)), random.Random(3)
for _ in range(400):
    parts = [" ".join(source.sample(numbers, k=source.randint(3, 9))) for _ in range(7)]
    print(passages("\\n\\n".join(parts), words, most=7, chars=4_000, total=40_000))
"""


def test_the_order_of_passages_is_the_same_in_every_process() -> None:
    """Sums of the same weights in another order differ in their last bit, and sets have another order in each."""
    ranked = {
        subprocess.run(
            [sys.executable, "-c", RANKING],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(ranked) == 1


def test_neighbours_are_the_words_that_followed_one_another() -> None:
    message = parse_message("harbor crane harbor pier")
    names = [word.indexed[0] for word in message.words]
    assert {(names[a], names[b]) for a, b in message.neighbours} == set(pairwise("harbor crane harbor pier".split()))
