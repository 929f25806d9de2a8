"""Words by which the recall gate's candidates are found: stop words left out, irregular forms brought to one.

The index of candidates stems with FTS5's ``porter``, which knows endings only: a question asks "did she go" where the
page says "went". Pure functions over folded text. Source: SEARCH.md section 3.
"""

from __future__ import annotations

import re
from typing import Final

STOP_WORDS: Final = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can could did do does doing done down during each few for from further had has have having he her here hers
    herself him himself his how i if in into is it its itself just let me more most my myself no nor not now of off on
    once only or other our ours ourselves out over own please same she should so some such than that the their theirs
    them themselves then there these they this those through to too under until up us very was we were what when where
    which while who whom whose why will with would you your yours yourself yourselves s t d ll m re ve don doesn didn
    isn aren wasn weren won wouldn couldn shouldn hasn haven hadn
    """.split()
)
"""Words of English that say nothing about what a message is about; what an apostrophe leaves behind is among them."""

_FORMS: Final = """
arise arose arisen | awake awoke awoken | bear bore borne | beat beaten | become became | begin began begun
bend bent | bind bound | bite bit bitten | bleed bled | blow blew blown | break broke broken | breed bred
bring brought | build built | burn burnt | buy bought | catch caught | choose chose chosen | cling clung | come came
creep crept | deal dealt | dig dug | draw drew drawn | dream dreamt | drink drank drunk | drive drove driven
dwell dwelt | eat ate eaten | fall fell fallen | feed fed | feel felt | fight fought | find found | flee fled
fly flew flown flies | forbid forbade forbidden | forget forgot forgotten | forgive forgave forgiven
freeze froze frozen | get got gotten | give gave given | go goes went gone | grind ground | grow grew grown
hang hung | hear heard | hide hid hidden | hold held | keep kept | kneel knelt | know knew known | lay laid
lead led | lean leant | leap leapt | learn learnt | leave left | lend lent | lie lay lain lying | light lit
lose lost | make made | mean meant | meet met | mistake mistook mistaken | pay paid | prove proven
ride rode ridden | ring rang rung | rise rose risen | run ran | say said | see saw seen | seek sought | sell sold
send sent | sew sewn | shake shook shaken | shine shone | shoot shot | show shown | shrink shrank shrunk
sing sang sung | sink sank sunk | sit sat | sleep slept | slide slid | smell smelt | speak spoke spoken
spell spelt | spend spent | spill spilt | spin spun | spoil spoilt | spring sprang sprung | stand stood
steal stole stolen | stick stuck | sting stung | strike struck stricken | strive strove striven | swear swore sworn
sweep swept | swell swollen | swim swam swum | swing swung | take took taken | teach taught | tear tore torn
tell told | think thought | throw threw thrown | tread trod trodden | understand understood | wake woke woken
wear wore worn | weave wove woven | weep wept | win won | wind wound | withdraw withdrew withdrawn
write wrote written | child children | foot feet | goose geese | knife knives | leaf leaves | life lives
loaf loaves | man men | mouse mice | ox oxen | person people | shelf shelves | thief thieves | tooth teeth
wife wives | wolf wolves | woman women | half halves | analysis analyses | crisis crises | criterion criteria
thesis theses | index indices | good better best | bad worse worst | far further farther
"""


def _lemmas() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _FORMS.replace("|", "\n").splitlines():
        base, *others = line.split() or [""]
        for other in others:
            found.setdefault(other, base)  # "lay" is the base of its own forms too: the first meaning stands
    bases = set(found.values())
    return {form: base for form, base in found.items() if form not in bases}


_LEMMAS: Final = _lemmas()
_FORMS_OF: Final = {base: [form for form, other in _LEMMAS.items() if other == base] for base in _LEMMAS.values()}
_TOKEN: Final = r"[^\x00-/:-@\[-`{-\x7f]"
_WORD: Final = re.compile(rf"(?<!{_TOKEN})[A-Za-z]{{2,12}}(?!{_TOKEN})")


def lemma(token: str) -> str:
    """The form by which a token of folded, lower-case text is indexed for candidates; stemming comes on top."""
    return _LEMMAS.get(token, token)


def forms_of(base: str) -> frozenset[str]:
    """Every token whose lemma this is."""
    return frozenset((*_FORMS_OF.get(base, ()), *(() if base in _LEMMAS else (base,))))


def lemmatised(folded: str) -> str:
    """A folded text with the irregular forms in it replaced."""
    return _WORD.sub(lambda match: _LEMMAS.get(match[0].lower(), match[0]), folded)
