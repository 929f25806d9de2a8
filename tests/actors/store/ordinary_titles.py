"""Five hundred titles as people give them to pages and claims: what the label rule must let through."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

_WRITTEN: Final = """
A/B test of the checkout page|AC/DC discography|Acme & Sons|Alex's birthday (12 May)|Allergic to peanuts
Annual review 2025|Apartment search: Leipzig-Gohlis|Are we ready for GDPR?|Assistant manager at Nordwind
Asks for short answers|AT&T contract|Backups run at 03:30|Best espresso in Porto?|Bob's user research
Book club: "The Dispossessed"|C++ style guide|C# to Kotlin move|Café Müller|Call Ann on Tuesday
Car service (due 2026-03)|Chose PostgreSQL over MySQL|Code review rules|Coffee, not tea
Developer experience survey|Developer relations|Dinner with Mei-Ling|Does not eat meat
Don't ship on Fridays|Dr. Osei|Email: weekly digest|ETA moved to 4 June|Ever Given
Every second Monday: retro|FAQ|Five-year plan|Flat white|Forgetting curve|Forgotten Realms campaign
Frankfurt → Oslo trip|Garden Pilot release|Go/no-go meeting|GraphQL gateway|Grandma's plum cake
Half-marathon training|Hiring: backend engineer|How we name branches|I prefer metric units
Ignorance is strength (essay)|ISO 27001|Invoice #4711|Invoices - open|Japanese lessons|Jean-Luc's notes
Jira or Linear?|Kitchen renovation|Kubernetes 1.33 upgrade|Lawn mower manual|Likes window seats
Lisbon offsite|Machine learning reading group|Mortgage: 3.1 % fixed until 2031|Mum's address
Nevertheless (novel)|New York|Nginx → Caddy|No meetings before 10:00|Node.js|Not before September
Notes from the field|Office plants|On-call rota|Onboarding (week 1)|OpenAPI 3.1|Operating system course
Overridden defaults in staging|Paris 2024|Passport expires 2029-08|Payment terms: 30 days net
Piano, grade 5|Platform team|Postmortem: 14 March outage|Prefers dark mode|Q3 goals|Q&A with the board
R&D tax credit|Rate limits: 100/min|README rewrite|Release 2.0|Rent: 1,240 €|Reply within a day
Salary review|São Paulo office|Series B|SQL vs. NoSQL|Standing desk|Systems thinking
System design interview|Tax return 2024|Team lunch: Thursdays|The user interface guild|Three-body problem
Time zone: UTC+2|To-do app comparison|Tokyo ’26|Türkiye trip|UK visa|User interviews, round 2
User research: 12 notes|Vacation policy|Vegan since 2019|VPN access|Wants weekly summaries
We use trunk-based development.|Who owns billing?|Why we left AWS|Wi-Fi at the cabin|Won't work weekends
Works 80 %|Yearly checkup|Yes/no questions only|You and I (song)|Your Name (film)|Zürich
Übergabe am Montag|Żabka|Ångström project|Łódź|東京オフィス|会议记录|프로젝트 계획|Договор с подрядчиком|مشروع الحديقة
פרויקט הגינה|โครงการสวน|Αθήνα|👩‍💻 Pairing notes|❤️‍🔥 Launch party|½ marathon|№ 5 perfume|Alwaysmart Ltd
Neverland|Ignored warnings in CI|Actor model|Acting as deputy until May|Userland|Systematic review
Forget-free scheduling|Do-nothing option|Doing nothing is an option|Ada’s onboarding buddy
Bank account, joint|Bees: hive inspection|Birthday list|Blue-green deploys|Board pack, May|Boiler service
Camera gear|Camping list|Capacity plan 2026|Choir: Thursdays 19:30|Client: Hartmann AG|Customer calls
Customs form|Daily stand-up at 9:15|Dentist, 14 June|Design tokens|Dog: Rufus (beagle)|Draft budget v3
Drone licence|Energy provider switch|Exam: statistics II|Family tree|Feature flags|Fishing permit
Garage door code was changed|Gift ideas|Guitar tuning: DADGAD|Heat pump quote|House rules
Ice-skating lessons|Karaoke night|Ladder in the shed|Meter reading 8,204|Old phone PIN was reset
"""

FALSE_POSITIVES: Final = frozenset(
    (
        "Always On (campaign)",
        "C:\\Users shortcut",
        "Do Not Disturb hours",
        "Forget-free scheduling",
        "Forget-me-nots for the balcony",
        "Never Let Me Go",
        "User: Ann's login",
        "[RFC] Cache keys",
        "docs.example.com vs https://example.com",
    )
)
"""Ordinary titles that the rule takes for instructions or markup all the same; the ids of their pages are shown."""

_PEOPLE: Final = tuple("Ada Bola Chen Dmitri Esra Farid Greta Hana Ines Jonas".split())
_NAMES: Final = tuple("Okafor Lindqvist Rossi Novak Haddad Tanaka Schmidt Silva Kaya Byrne".split())
_THINGS: Final = ("billing", "search", "the mobile app", "the data warehouse", "onboarding", "the garden", "payroll")
_FORMS: Final = (
    "Migration of {}",
    "Decision: {} moves to Berlin",
    "Who maintains {}?",
    "{} - open questions",
    "Prefers {} in the morning",
    "Must finish {} by Friday",
    "Status of {} (week 12)",
    "Users complain about {}",
    "Systems behind {}",
    "Not sure about {} yet",
    "Costs of {}: 12 k€",
    "{} & friends",
    "Please review {}",
    "Budget for {}",
    "Interview notes: {}",
    "Lessons from {}",
    "Test plan, {}",
    "Roadmap of {}",
    "You asked about {}",
    "Everything on {}",
    "Act 2 of {}",
    "Developers of {}",
    "Assistants for {}",
    "Nobody owns {}",
    "Overriding concern in {}",
    "Usually {} first",
    "Risk: {} slips",
    "1. {}",
    "{}, then lunch",
    "“{}” rewritten",
)


def ordinary_titles() -> Iterator[str]:
    yield from dict.fromkeys(_all())


def _all() -> Iterator[str]:
    yield from (title for line in _WRITTEN.strip().splitlines() for title in line.split("|"))
    yield from FALSE_POSITIVES
    yield from (f"{first} {last}" for first, last in product(_PEOPLE, _NAMES))
    yield from (form.format(thing).removeprefix("the ") for form, thing in product(_FORMS, _THINGS))
