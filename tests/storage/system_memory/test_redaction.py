"""The redaction gate: what it finds, what it leaves alone, what it never says, and that it is linear."""

from __future__ import annotations

import importlib
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jwt
import pytest

from messages.errors import RedactionRequired
from storage.system_memory import redaction, secret_shapes
from storage.system_memory.redaction import Finding, refuse_secrets, secrets_in
from tests.storage.system_memory import redaction_set
from tests.storage.system_memory.redaction_set import filled, measured, negatives, positives, templates

PRECISION_FLOOR: Final = 0.99
RECALL_FLOOR: Final = 0.99
GREEDY_MAX: Final = 4
WIDTH_MAX: Final = 4_096

_GITHUB: Final = "ghp_{alnum:36}"


def made(template: str, seed: int = 1) -> str:
    return filled(template, random.Random(seed))


def test_the_frozen_set_has_at_least_two_hundred_of_each_and_none_twice() -> None:
    clean = negatives()
    assert len(templates()) >= 200
    assert len(clean) == len(set(clean)) >= 200


def test_precision_and_recall_on_the_frozen_set_do_not_fall_below_the_floors() -> None:
    score = measured()
    print(score.told())
    assert score.recall >= RECALL_FLOOR, score.missed
    assert score.precision >= PRECISION_FLOOR, score.false_alarms


def test_recall_does_not_hang_on_the_seed() -> None:
    missed = made_of = 0
    for seed in range(5):
        score = measured(seed)
        missed += len(score.missed)
        made_of += score.positives
    assert 1 - missed / made_of >= RECALL_FLOOR


def test_no_positive_stands_in_the_code_or_the_data() -> None:
    folders = (Path(redaction_set.__file__).parent, Path(redaction.__file__).parent)
    for path in (path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()):
        text = path.read_text("utf-8")
        assert secrets_in(text) == (), path.name
        assert re.search(r"BEGIN (?:RSA |EC |DSA |OPENSSH )?PRIVATE KEY", text) is None, path.name


def test_a_made_positive_differs_from_seed_to_seed() -> None:
    assert all(one[1] != other[1] for one, other in zip(positives(1), positives(2), strict=True))


def test_the_set_would_notice_a_gate_that_finds_nothing_and_one_that_refuses_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction_set, "secrets_in", lambda text: ())
    assert measured().recall == 0
    monkeypatch.setattr(redaction_set, "secrets_in", lambda text: (Finding(0, 1, "x"),))
    assert measured().precision < 0.7


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("AKIA{base32:16}", "aws_access_key"),
        (_GITHUB, "github_token"),
        ("github_pat_{alnum:22}_{alnum:59}", "github_token"),
        ("glpat-{url:20}", "gitlab_token"),
        ("xoxb-{digit:12}-{digit:12}-{alnum:24}", "slack_token"),
        ("sk_live_{alnum:24}", "stripe_key"),
        ("sk-{alnum:48}", "openai_key"),
        ("sk-ant-api03-{url:93}AA", "anthropic_key"),
        ("AIza{url:35}", "google_key"),
        ("npm_{alnum:36}", "npm_token"),
        ("pypi-AgEIcHlwaS5vcmc{url:120}", "pypi_token"),
        ("hf_{alnum:34}", "huggingface_token"),
        ("SG.{url:22}.{url:43}", "sendgrid_key"),
        ("SK{hex:32}", "twilio_key"),
        ("dop_v1_{hex:64}", "digitalocean_token"),
        ("Authorization: Bearer {alnum:40}", "bearer_token"),
        ("AGE-SECRET-KEY-1{bech:58}", "private_key"),
        ("-----BEGIN {PRIVATE} KEY-----{br}{b64:64}{br}", "private_key"),
        ("postgres://app:{alnum:16}@db/app", "connection_string"),
        ("api_key = '{alnum:32}'", "api_key"),
    ],
)
def test_a_secret_is_found_with_its_kind_and_place(template: str, kind: str) -> None:
    secret = made(template)
    text = f"before {secret} after"
    [found] = secrets_in(text)
    assert found.kind == kind
    assert 7 <= found.start < found.end
    if kind != "private_key":
        assert found.end <= 7 + len(secret)
        assert secrets_in(text[: found.start] + text[found.end :]) == ()


def test_a_signed_token_of_a_real_library_is_found() -> None:
    token = jwt.encode({"sub": "ana", "exp": 1_800_000_000}, made("{hex:64}"), algorithm="HS256")
    assert [found.kind for found in secrets_in(f"cookie: session={token}; path=/")] == ["bearer_token"]


@pytest.mark.parametrize("cut", ["\n", "\r\n", "\\\n", "\n    ", "\n> "])
def test_a_secret_that_line_breaks_cut_is_found_at_its_place(cut: str) -> None:
    secret = made(_GITHUB)
    text = f"use\n{secret[:20]}{cut}{secret[20:]}\nfrom now on"
    [found] = secrets_in(text)
    # The next line's first word may belong to it as far as anybody can tell.
    place = text[found.start : found.end].replace(cut, "").replace("\n", "")
    assert place in (secret, f"{secret}from")


@pytest.mark.parametrize("template", ["npm_{alnum:36}", "AKIA{base32:16}", "AIza{url:35}", "SK{hex:32}"])
@pytest.mark.parametrize("after", ["", "\n", "\nand", "\n0", " and"])
def test_a_cut_secret_of_a_fixed_length_is_found_whatever_follows(template: str, after: str) -> None:
    secret = made(template)
    assert secrets_in(f"see\n{secret[:9]}\n{secret[9:]}{after}")
    assert secrets_in(f"see\n{secret[:9]}\n{secret[9:]}0A") == ()


def test_two_secrets_are_two_findings_and_overlapping_ones_are_one() -> None:
    first, second = made(_GITHUB, 1), made("glpat-{url:20}", 2)
    assert [found.kind for found in secrets_in(f"{first} {second}")] == ["github_token", "gitlab_token"]
    assert len(secrets_in(f"api_key={first}")) == 1


def test_a_secret_is_refused_with_field_and_kinds_and_never_repeated() -> None:
    secret = made(_GITHUB)
    with pytest.raises(RedactionRequired) as caught:
        refuse_secrets("body", f"Zebra crossing: {secret} and Authorization: Bearer {made('{alnum:40}')}")
    error = caught.value
    assert error.to_data() == {
        "code": "redaction_required", "retry": "never", "field": "body", "kinds": ["bearer_token", "github_token"],
    }  # fmt: skip
    told = f"{error.message} {error.fields} {error!r} {secrets_in(secret)!r}"
    assert secret[4:] not in told
    assert "Zebra" not in told
    assert "body" in error.message


def test_a_text_without_secrets_passes() -> None:
    for text in ("", "\0", "The gateway answers 402 when the default model is retired.", "\U0001f600" * 500):
        assert secrets_in(text) == ()
        refuse_secrets("body", text)


@pytest.mark.parametrize("text", negatives(), ids=lambda text: re.sub(r"\W+", "-", text)[:40])
def test_what_only_looks_like_a_secret_passes(text: str) -> None:
    assert secrets_in(text) == ()


def repeats(pattern: re.Pattern[str]) -> Iterator[tuple[str, int, int, bool]]:
    """Each repetition of a pattern: its kind, its bounds, and whether it stands inside one that takes many turns."""
    parser: Any = importlib.import_module("re._parser")

    def walk(items: Any, inside: bool) -> Iterator[tuple[str, int, int, bool]]:
        for operator, argument in items:
            name = str(operator)
            if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
                least, most, body = argument
                yield name, int(least), int(most), inside
                yield from walk(body, inside or int(most) > GREEDY_MAX)
            elif name == "SUBPATTERN":
                yield from walk(argument[3], inside)
            elif name == "BRANCH":
                for branch in argument[1]:
                    yield from walk(branch, inside)
            elif name in ("ASSERT", "ASSERT_NOT"):
                yield from walk(argument[1], inside)

    yield from walk(parser.parse(pattern.pattern, pattern.flags), False)


def all_patterns() -> list[re.Pattern[str]]:
    # Those with an underscore read our own prefixes and never a text.
    named = [
        value
        for name, value in vars(secret_shapes).items()
        if isinstance(value, re.Pattern) and not name.startswith("_")
    ]
    joined = [shape.joined for shape in secret_shapes.SHAPES if shape.joined is not None]
    return [*(shape.pattern for shape in secret_shapes.SHAPES), *joined, *named]


def test_no_pattern_repeats_without_bound_gives_back_what_a_repetition_took_or_repeats_in_a_repetition() -> None:
    assert len(all_patterns()) > 50
    for pattern in all_patterns():
        for name, least, most, inside in repeats(pattern):
            assert most <= WIDTH_MAX, pattern.pattern
            assert name == "POSSESSIVE_REPEAT" or least == most or most <= GREEDY_MAX, pattern.pattern
            assert not inside or most <= GREEDY_MAX, pattern.pattern


def test_the_check_of_patterns_finds_those_that_are_not_linear() -> None:
    for pattern in (r"(?:a+)+b", r"a*b", r"(?:[a-z]{1,9}){2,9}", r"[a-z]{2,60}x"):
        found = list(repeats(re.compile(pattern)))
        assert any(
            most > WIDTH_MAX or not (name == "POSSESSIVE_REPEAT" or least == most or most <= GREEDY_MAX)
            for name, least, most, _ in found
        )


_PIECES: Final = (
    "sk-", "ghp_", "eyJ", "eyJa.", "xox", "AKIA", "token=", "token is ", "api_key:", "a://", "a://b:", "://:@",
    "Bearer ", "bearer a", "--token ", "login a password ", "-----BEGIN ", "-----BEGIN RSA ",
    "PuTTY-User-Key-File-3:", "hvs.", "Private-Lines: 1", "\\", "\n", "\n> ", "a\n", '"', "'", "=", "A", "a1B2",
    "hooks.slack.com/services/T", "A.atlasv1.", "1:AA", "12345678:AA", '"d":"', '"kty""d" : "', "Authorization: ",
    "%3D", " ", "\t", "-", "key-", "0", "SG.a.",
)  # fmt: skip


@pytest.mark.parametrize("piece", _PIECES)
def test_hostile_repetitions_are_judged_at_most_once_for_each_character(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    judge = redaction._is_secret

    def counted(shape: secret_shapes.Shape, found: re.Match[str]) -> bool:
        judged.append(len(found["s"]))
        return judge(shape, found)

    monkeypatch.setattr(redaction, "_is_secret", counted)
    for text in ((piece * 2_000)[:2_000], (piece + "a1" * 30) * 30, "x" * 40 + piece * 400 + "!"):
        judged.clear()
        secrets_in(text)
        # A character is judged by few shapes, in the text and once more without its line breaks.
        assert sum(judged) <= 8 * len(text)


def test_any_printable_noise_is_answered() -> None:
    source = random.Random(7)
    for _ in range(200):
        noise = "".join(source.choice(string.printable) for _ in range(300))
        for found in secrets_in(noise):
            assert 0 <= found.start < found.end <= len(noise)
