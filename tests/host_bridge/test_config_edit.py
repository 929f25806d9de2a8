"""Membership is changed in the configuration's own text, and nothing else of it (stores-and-access.md, Stores)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_bridge._config_edit import with_stores
from host_bridge.config import NamedStore, parse_configuration
from messages.errors import InvalidArgument

PERSONAL = NamedStore(label="Personal", agents=("main", "research"))


def stores_of(text: str) -> dict[str, NamedStore]:
    return dict(parse_configuration(text).stores)


TEXTS = {
    "nothing": "",
    "a comment alone": "# mine\n",
    "no line end": "writesEnabled: true",
    "block": "# top\nwritesEnabled: true  # yes\n\nagents:\n  list: [{id: main}]\n# end\n",
    "windows lines": "writesEnabled: true\r\nagents: {list: [{id: main}]}\r\n",
    "json": '{"writesEnabled": true,\n\t"agents": {"list": [{"id": "main"}]}}\n',
    "empty json": "{}",
    "empty braces": "stores: {}  # none yet\noperatorRead: true\n",
    "a byte order mark": "\ufeffoperatorRead: true\n",
    "another store, block": (
        'stores:\n  work:   # ours\n    label: "Work"\n    agents:\n    - a   # first\n    - b\n\n# after\n'
        "operatorRead: true\n"
    ),
    "another store, flow": "stores: {work: {label: Work, agents: [a, b]}}\n",
    "another store, mixed": "stores:\n  work: {label: Work, agents: [a, b]} # ours\noperatorRead: true\n",
    "another store without agents": "stores:\n    work: {}\n    idle:\n        label: x\noperatorRead: true\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_store_is_added_and_everything_else_says_what_it_said(text: str) -> None:
    before = parse_configuration(text)
    wanted = {**before.stores, "personal": PERSONAL}
    edited = with_stores(text, wanted)
    assert parse_configuration(edited) == before.model_copy(update={"stores": wanted})
    assert ("\r\n" in edited) == ("\r\n" in text)
    for line in text.splitlines():
        assert "#" not in line or line[line.index("#") :] in edited


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("another")])
@pytest.mark.parametrize("agents", [(), ("b",), ("a", "b", "c")])
def test_the_agents_of_a_store_change_and_its_neighbours_keep_every_byte(name: str, agents: tuple[str, ...]) -> None:
    text = TEXTS[name]
    before = stores_of(text)
    wanted = {**before, "work": NamedStore(label=before["work"].label, agents=agents)}
    edited = with_stores(text, wanted)
    assert stores_of(edited) == wanted
    head, tail = text.index("work"), text.find("operatorRead")
    assert edited.startswith(text[:head])
    assert tail < 0 or edited.endswith(text[tail:])


def test_nothing_to_change_gives_the_same_bytes() -> None:
    text = TEXTS["another store, block"]
    assert with_stores(text, stores_of(text)) == text


def test_a_broken_configuration_is_refused_and_never_edited() -> None:
    with pytest.raises(InvalidArgument, match="unknown key"):
        with_stores("writesEnable: true\n", {"personal": PERSONAL})


def test_a_store_is_never_taken_out_by_an_edit() -> None:
    text = TEXTS["another store, flow"]
    with pytest.raises(InvalidArgument) as refused:
        with_stores(text, {"personal": PERSONAL})
    assert refused.value.fields["reason"] == "not_editable"


def test_what_cannot_be_edited_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidArgument) as refused:
        with_stores("? stores\n: {}\n", {"personal": PERSONAL, "x y": NamedStore()})
    assert '"Personal"' in refused.value.message


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=12)


@settings(max_examples=40)
@given(st.sampled_from(sorted(TEXTS)), NAMES, NAMES)
def test_any_name_and_label_survive_the_edit_or_it_is_refused(text_name: str, name: str, label: str) -> None:
    text = TEXTS[text_name]
    before = parse_configuration(text)
    if name in before.stores:
        return
    wanted = {**before.stores, name: NamedStore(label=label, agents=("main",))}
    try:
        edited = with_stores(text, wanted)
    except InvalidArgument:
        return
    assert stores_of(edited) == wanted
