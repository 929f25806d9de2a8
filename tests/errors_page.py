"""Makes ``docs/errors.md`` from the error classes: ``python -m tests.errors_page`` writes it anew."""

from __future__ import annotations

from messages.errors import FailedClosed, InternalError, KnowledgeError, Refusal, Unavailable, all_error_classes
from tests.tree import CHECKOUT

_HEAD = """\
# Errors

Made from `messages/errors.py` by `python -m tests.errors_page`; a test compares the two.

A call either gives its result or one error. Over JSON-RPC an error is an object with `code` (a number), `message`
and `data`; `data.code` is one of the codes below, `data.retry` says what you may do with the same request, and
further keys carry the facts (`field`, `reason`, `allowed`, ids). In Python it is a subclass of
`messages.errors.KnowledgeError` with `code`, `retry`, `message` and `fields`. Messages never hold text of records.

| retry | meaning |
|---|---|
| `safe` | it did not run; send it again as it is |
| `unknown` | it may have run; send it again with the same `requestId`, which cannot do it twice |
| `never` | the same request gets the same refusal; change it first |

The column *retry* below is the usual value; an answer may carry another where it knows better.

JSON-RPC numbers: `-32700` not JSON, `-32600` not a request (batches too), `-32601` no such method (without
`data.code`), `-32602` for `invalid_argument`, `-32000` for every other code.
"""


def page() -> str:
    """The page as it must stand on disk."""
    parts = [_HEAD]
    for title, base in (
        ("Refusals: nothing was stored", Refusal),
        ("Unavailable: not now", Unavailable),
        ("Failed closed: a person must choose", FailedClosed),
        ("Defects of ours", InternalError),
    ):
        parts += [f"## {title}\n", "| code | retry | when |", "|---|---|---|"]
        parts += [_row(cls) for cls in all_error_classes() if issubclass(cls, base)]
        parts.append("")
    return "\n".join(parts)


def _row(cls: type[KnowledgeError]) -> str:
    sentence = (cls.__doc__ or "").strip().replace("``", "`").replace("|", "\\|")
    return f"| `{cls.code}` | `{cls.default_retry}` | {' '.join(sentence.split())} |"


if __name__ == "__main__":
    (CHECKOUT / "docs" / "errors.md").write_text(page(), "utf-8")
