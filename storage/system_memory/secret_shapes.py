"""The shapes of secrets, as data: where each can begin, of which characters it is, and how its text is judged.

Every pattern is linear: what it repeats is bounded, and a longer repetition never gives back what it took. A pattern
begins with its fixed part, so that it fails early everywhere else. ``s`` is the group that is judged.

Source: system-memory-contract.md section 11, point 3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Judge: TypeAlias = Literal["shape", "issued", "capitals", "random", "assigned", "password"]
"""How the group ``s`` is judged: not at all; as a token behind an issuer's prefix, or one of capitals alone; as text
that only chance can have written; the same, but in an assignment to a name; as the password of a connection string."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape. ``joined`` is the pattern for a text whose line breaks were taken out: it does not look around itself,
    since what stands there may have been another line's; ``runs_on`` is what may not follow it within a line.

    ``hints``: small letters of which one must stand in the text, in any case; without hints the pattern always runs.
    """

    kind: str
    pattern: re.Pattern[str]
    judge: Judge
    hints: tuple[str, ...] = ()
    joined: re.Pattern[str] | None = None
    runs_on: re.Pattern[str] | None = None


_URL: Final = "A-Za-z0-9_-"
_ALNUM: Final = "A-Za-z0-9"
_HEX: Final = "0-9a-f"
_B64: Final = "A-Za-z0-9+/=_-"
_ALTERNATIVES: Final = re.compile(r"\|(?![^(]*\))")
_HEAD: Final = re.compile(r"[A-Za-z0-9_-]+")
_NOT_INSIDE: Final = r"(?<![A-Za-z0-9])"


def _issued(kind: str, prefix: str, characters: str, least: int, most: int, judge: Judge = "issued") -> Shape:
    """A token behind an issuer's prefix; one of a single length ends where its characters end."""
    more = rf"[A-Za-z0-9{characters}]"
    end, runs_on = (f"(?!{more})", re.compile(more)) if least == most else ("", None)
    pattern = rf"(?:{prefix})(?P<s>[{characters}]{{{least},{most}}}+)"
    whole = re.compile(f"{_NOT_INSIDE}{pattern}{end}")
    return Shape(kind, whole, judge, _heads(prefix), re.compile(pattern), runs_on)


def _heads(prefix: str) -> tuple[str, ...]:
    """The fixed beginning of each alternative of a prefix; nothing when one has none."""
    alternatives = _ALTERNATIVES.split(prefix)
    heads = [_HEAD.match(alternative) for alternative in alternatives]
    return tuple(head[0].lower() for head in heads if head is not None) if all(heads) else ()


_ISSUED: Final = (
    _issued("aws_access_key", "AKIA|ABIA", "A-Z2-7", 16, 16, "shape"),
    _issued("aws_access_key", "ASIA|ACCA", "A-Z2-7", 16, 16, "capitals"),
    _issued("github_token", "gh[pousr]_", _ALNUM, 36, 255),
    _issued("github_token", "github_pat_", "A-Za-z0-9_", 60, 255),
    _issued("gitlab_token", "gl(?:pat|rt|dt|ptt|soat|cbt|ft|imt|agent|oas)-", "A-Za-z0-9_.-", 20, 255),
    _issued("slack_token", "xox[a-z]-|xapp-[0-9]-", "A-Za-z0-9-", 24, 255),
    _issued("stripe_key", "[rs]k_(?:live|test|prod)_|whsec_", "A-Za-z0-9+/=", 16, 255),
    _issued("anthropic_key", "sk-ant-", _URL, 40, 255),
    _issued("openai_key", "sk-(?:proj-|svcacct-|admin-|None-)?", _URL, 20, 300, "random"),
    _issued("google_key", "AIza", _URL, 35, 35),
    _issued("google_key", "GOCSPX-", _URL, 28, 28),
    _issued("google_token", r"ya29\.", _URL, 40, 2048),
    _issued("npm_token", "npm_", _ALNUM, 36, 36),
    _issued("pypi_token", "pypi-", _URL, 50, 512, "random"),
    _issued("huggingface_token", "hf_", _ALNUM, 30, 64),
    _issued("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}+\.", _URL, 32, 64),
    _issued("twilio_key", "SK", "0-9a-fA-F", 32, 32),
    _issued("digitalocean_token", "do[opr]_v1_", _HEX, 64, 64),
    _issued("shopify_token", "shp(?:at|ca|pa|ss)_", "0-9a-fA-F", 32, 32),
    _issued("databricks_token", "dapi", _HEX, 32, 32),
    _issued("vault_token", r"hv[sb]\.", _URL, 24, 300),
    _issued("docker_token", "dckr_pat_", _URL, 20, 64),
    _issued("grafana_token", "glsa_|glc_", "A-Za-z0-9_+/=", 32, 255),
    _issued("mailgun_key", "key-", _HEX, 32, 32),
    _issued("linear_key", "lin_api_", _ALNUM, 32, 64),
    _issued("square_token", "sq0(?:csp|atp)-|EAAA", _URL, 22, 64, "random"),
    _issued("api_key", "gsk_|xai-|r8_|pplx-|rubygems_", _ALNUM, 36, 128),
    _issued("atlassian_token", "ATATT3", "A-Za-z0-9_=-", 100, 300),
    _issued("sentry_token", "sntrys_", _B64, 60, 300),
    _issued("postman_key", "PMAK-", "0-9a-f-", 50, 64),
    _issued("onepassword_token", "ops_", _URL, 100, 2048, "random"),
    _issued("terraform_token", r"[A-Za-z0-9]{14}\.atlasv1\.", _URL, 60, 70),
    _issued("webhook", r"hooks\.slack\.com/services/T[A-Z0-9]{6,12}+/B[A-Z0-9]{6,12}+/", _ALNUM, 20, 32),
    _issued("webhook", r"discord(?:app)?\.com/api/webhooks/[0-9]{16,20}+/", _URL, 60, 80),
    _issued("private_key", "AGE-SECRET-KEY-1", "0-9A-Z", 50, 64),
    _issued("bearer_token", r"eyJ[A-Za-z0-9_-]{8,4096}+\.eyJ[A-Za-z0-9_-]{8,4096}+\.", _URL, 16, 2048),
    _issued("bearer_token", r"eyJ[A-Za-z0-9_-]{8,4096}+(?:\.[A-Za-z0-9_-]{0,2048}+){3}\.", _URL, 16, 64),
)

# What stands between a name and its value in configuration, code, shells, URLs, tables, markup and prose.
_GAP: Final = r"(?:(?:\s[^<>\n]{0,40}+)?>|[\s\"'`“”„‘’«»*_|>:=：＝\\(-]{1,16}+|%3[Dd])(?:(?:is|was)[\s\"'`“”„]{1,4}+)?"
_VALUE: Final = r"(?P<s>[A-Za-z0-9+/=_.~%-]{16,512}+)"
_SECRET_NAME: Final = (
    r"(?:(?:api|access|secret|private|signing|encryption|account|auth|consumer|master|shared|storage|webhook)[ _.-]?key"
    r"(?:[ _-]?base)?|secret|token|password|passwd|pwd|passphrase|credential)s?"
)
_NAME_HINTS: Final = ("key", "secret", "token", "passw", "pwd", "passphrase", "credential")

_NAMED: Final = (
    Shape("api_key", re.compile(rf"(?i:{_SECRET_NAME}){_GAP}{_VALUE}"), "assigned", _NAME_HINTS),
    Shape(
        "api_key",
        re.compile(rf"\blogin\s{{1,4}}+\S{{1,80}}+\s{{1,4}}+password\s{{1,4}}+{_VALUE}"),
        "assigned",
        ("login",),
    ),
    Shape(
        "bearer_token",
        re.compile(r"(?i:bearer)(?:\s{1,4}+|%20)(?P<s>[A-Za-z0-9._~+/=-]{16,2048}+)"),
        "random",
        ("bearer",),
    ),
    Shape(
        "bearer_token",
        re.compile(
            r"(?i:authorization)[\"'\\\s]{0,4}+[:=][\"'\\\s]{0,4}+(?i:basic|token|apikey)\s{1,4}+"
            r"(?P<s>[A-Za-z0-9._~+/=-]{16,2048}+)"
        ),
        "random",
        ("authorization",),
    ),
    Shape(
        "telegram_token",
        re.compile(r"(?<![0-9])[0-9]{8,10}+:(?P<s>AA[A-Za-z0-9_-]{32,34}+)(?![A-Za-z0-9_-])"),
        "random",
        (":aa",),
    ),
    Shape("mailchimp_key", re.compile(r"(?<![A-Za-z0-9])(?P<s>[0-9a-f]{32})-us[0-9]{1,2}\b"), "issued", ("-us",)),
    Shape(
        "connection_string",
        re.compile(
            r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,24}+://(?P<user>[^\s:/@\"'<>]{0,100}+):"
            r"(?P<s>[^\s/@\"'<>]{3,256}+)@(?=[A-Za-z0-9\[.])"
        ),
        "password",
        ("://",),
    ),
)

SHAPES: Final = (*_ISSUED, *_NAMED)
"""All shapes but private keys, which are read with what follows their first line."""

KEY_HEADER: Final = re.compile(
    r"-{4,5}+ ?BEGIN (?:[A-Z0-9]{2,12}+ ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}+"
    r"|PuTTY-User-Key-File-[0-9]:|b3BlbnNzaC1rZXktdjE"
)
PUTTY_PRIVATE: Final = re.compile(r"Private-Lines:\s{0,4}+[0-9]{1,3}")
KEY_FOOTER: Final = re.compile(r"-{4,5}+ ?END ")
KEY_HEADER_LINE: Final = re.compile(r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|Subject): ?[^\r\n\\]{0,100}+")
KEY_PADDING: Final = re.compile(r"\\[rn]|[\s\"'`+>|,\\]")
KEY_BODY: Final = re.compile(r"[A-Za-z0-9+/]{40,512}+")
JWK: Final = re.compile(r"\"d\"\s{0,4}+:\s{0,4}+\"(?P<s>[A-Za-z0-9_-]{40,700}+)\"")
LINE_CUT: Final = re.compile(r"(?<=[A-Za-z0-9_.-])\\?\r?\n[ \t]{0,16}+(?:>[ \t]?){0,3}(?=[A-Za-z0-9_.-])")

NO_SECRET_NAME: Final = re.compile(
    r"(?:page|next|sync|csrf|xsrf|continuation|cursor|resume|watch)[ _-]?\Z", re.IGNORECASE
)
UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HEX: Final = re.compile(r"[0-9a-f]{32,512}+|[0-9A-F]{32,512}+")
STAND_IN: Final = re.compile(
    r"example|your|placeholder|redact|filtered|change.?me|dummy|insert|sample|goes|here|xxxx|\*\*|\.\.\.|…|[<>{}$]"
    r"|password|secret|token|fake",
    re.IGNORECASE,
)
STAND_IN_PASSWORD: Final = re.compile(
    r"(?:pass|passwd|pwd|pw|p|key|guest|root|admin|postgres|test|user|pass123|[0-9]{1,5}+|(.)\1{0,256}+|\[.{0,256}+|%\(.{0,256}+|%[A-Z_]{1,64}+%)",
    re.IGNORECASE | re.DOTALL,
)
"""For ``fullmatch``: what connection strings of documentation and of local development have for a password."""
