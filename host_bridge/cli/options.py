"""Command lines: ``--name VALUE``, ``--name=VALUE``, flags and positional words. Standard library, and little of it.

A thin client has a few milliseconds for this; what it needs is a table of names and good messages.
"""

from __future__ import annotations

from host_bridge.owner import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STATE_DIR = {"--state-dir": True}
CALLER = {"--agent": True, "--conversation": True, "--session": True}


class UsageError(Exception):
    """The command line cannot be understood; the message says which word and what would do."""


class Options:
    """What was given: values by option name, flags as ``""``, and the other words in their order."""

    def __init__(
        self, values: Mapping[str, str], words: Sequence[str], repeated: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._values = values
        self._repeated = repeated or {}
        self.words = words

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def all(self, name: str) -> Sequence[str]:
        """Every value of an option that may be given several times, in their order."""
        return self._repeated.get(name, ())

    def has(self, name: str) -> bool:
        return name in self._values

    def whole_number(self, name: str, least: int, most: int) -> int | None:
        """The value as a number within its bounds; raises :class:`UsageError`."""
        text = self._values.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise UsageError(f"{name} must be a whole number from {least} to {most}, not {text!r}")
        return int(text)

    def caller(self) -> dict[str, str]:
        """Who calls, as the owner's hello takes it."""
        conversation, session = self.get("--conversation"), self.get("--session")
        if (conversation is None) != (session is None):
            raise UsageError("--conversation KEY and --session UUID belong together")
        given = {"agent": self.get("--agent"), "conversation": conversation, "session": session}
        return {name: value for name, value in given.items() if value is not None}


def parse(
    arguments: Sequence[str], known: Mapping[str, bool], *, words: int = 0, repeated: Sequence[str] = ()
) -> Options:
    """Read ``arguments``: ``known`` says of each option whether it takes a value, ``words`` how many words may be,
    ``repeated`` which options may be given more than once."""
    values: dict[str, str] = {}
    several: dict[str, list[str]] = {}
    rest: list[str] = []
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--":
            rest += queue
            break
        if not argument.startswith("--"):
            rest.append(argument)
            continue
        name, separator, value = argument.partition("=")
        if name not in known:
            raise UsageError(f"there is no option {name} here{_suggestion(name, known)}")
        if name in values and name not in repeated:
            raise UsageError(f"{name} is given twice")
        if not known[name]:
            if separator:
                raise UsageError(f"{name} takes no value")
        elif not separator:
            if not queue:
                raise UsageError(f"{name} needs a value")
            value = queue.pop(0)
        values[name] = value
        several.setdefault(name, []).append(value)
    if len(rest) > words:
        raise UsageError(f"unexpected word {rest[words]!r}")
    return Options(values, rest, several)


def state_dir(options: Options) -> str:
    """The state directory that the command line or the environment names."""
    try:
        return address.resolve_state_dir(options.get("--state-dir"))
    except address.UnsafePlace as error:
        raise UsageError(str(error)) from None


def _suggestion(name: str, known: Mapping[str, bool]) -> str:
    return near(name, known) or (f"; it takes {', '.join(known)}" if known else "")


def what_to_do(name: str, known: Sequence[str], others: Mapping[str, str] | None = None) -> UsageError:
    """What to say of a first word that none of ``known`` is; ``others`` has commands that take some other words."""
    choice = f"{', '.join(known[:-1])} or {known[-1]}"
    if not name or name.startswith("-"):
        return UsageError(f"say what to do{' first' if name else ''}: {choice}")
    if others is not None and name in others:
        return UsageError(f"there is no {name!r} here; that is `{others[name]}`, and here it is {choice}")
    return UsageError(f"there is no {name!r} here{near(name, known)}; it is {choice}")


def near(name: str, known: Iterable[str]) -> str:
    """`` (did you mean ...?)`` where one of the known words looks like the name, else nothing."""
    import difflib  # loaded by those who mistyped only

    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]}?)" if found else ""
