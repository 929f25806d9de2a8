"""Which text may be stored: any Unicode text without NUL and without lone surrogates (decisions.md section 5)."""

from messages.text import TextFault as TextProblem
from messages.text import text_fault as text_problem

__all__ = ["TextProblem", "text_problem"]
