"""The code of the guide to agent memory, which lies outside the repository: found, told apart, and made to run.

Nothing of its text is kept here. A block is known by a digest of its tokens, so that neither white space nor a comment
makes it another one. The guide may be Markdown with fences, or the plain text of a page that lost them.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tree import CHECKOUT

VARIABLE: Final = "KNOWLEDGE_AGENT_MEMORY_GUIDE"
_BESIDE: Final = Path("shared", "spec", "agent-memory.md")
_FENCE: Final = re.compile(r"^(`{3,})python[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_BEGINS: Final = re.compile(r"(?:from|import|class|def|async def|with|for|@|#)\b|[@#]|[\w.\[\], ]+ = |[\w.]+\(")
_CHUNKS_MAX: Final = 12


def guide_path() -> Path | None:
    """Where the guide lies: as the environment says, or beside the checkout or a folder above it."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return next((path for above in CHECKOUT.parents if (path := above / _BESIDE).is_file()), None)


def digest(code: str) -> str:
    """What a block is known by."""
    passed_over = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    found = tokenize.generate_tokens(io.StringIO(code).readline)
    return hashlib.sha256("".join(one.string for one in found if one.type not in passed_over).encode()).hexdigest()[:12]


def code_blocks(text: str) -> list[str]:
    """Every block of Python, in its order."""
    fenced = [match[2] for match in _FENCE.finditer(text)]
    return fenced or list(_unfenced(text))


def _unfenced(text: str) -> Iterator[str]:
    """Runs of paragraphs that are Python together and begin as no sentence does."""
    chunks = re.split(r"\n(?:[ \t]*\n)+", text)
    start = 0
    while start < len(chunks):
        end = _end(chunks, start)
        if end is None:
            start += 1
            continue
        while end < len(chunks):
            indented = chunks[end].startswith(" ") and _parses("\n\n".join(chunks[start : end + 1]))
            # The next paragraph may need further ones to be whole.
            further = end + 1 if indented else _end(chunks, end)
            if further is None:
                break
            end = further
        yield "\n\n".join(chunks[start:end])
        start = end


def _end(chunks: list[str], start: int) -> int | None:
    """The first paragraph after those that are code from ``start`` on."""
    if start >= len(chunks) or not _BEGINS.match(chunks[start]):
        return None
    for end in range(start + 1, min(start + _CHUNKS_MAX, len(chunks)) + 1):
        joined = "\n\n".join(chunks[start:end])
        if _parses(joined) and _says_something(joined):
            return end
    return None


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def _says_something(code: str) -> bool:
    """Whether there is more than comments and bare words."""
    plain = (ast.Name, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.Attribute, ast.Constant, ast.Compare)
    return any(not (isinstance(one, ast.Expr) and isinstance(one.value, plain)) for one in ast.parse(code).body)
