"""Which words give nothing away: those of the public tool documentation, and everyday English."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from envs.sources import TaskSource, known_sources
from envs.task import JSON

Sources = tuple[TaskSource, ...]


def _set_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


EVERYDAY = _set_of(
    """
    a able about above accept according across act action actual add advice after afterwards again against ago agree
    ahead aim alike all allow almost alone along already also alternative although always am amid among amount an
    analysis analyze and anomaly another answer any anybody anyone anything anyway apart apply appropriate april
    archive are arent argument around art as aside ask assist assistant assume at attempt attention autumn avoid
    avoidable away back backup bad band bank bare base be bear became because become been before began begin behind
    being believe belong below beside besides best better between beyond big bit bite body bone book bore boss both
    bottom break brief bring broad broken build bus business busy but by call came can cancel cannot cant capacity
    car care careful case cat cause caution certain chance change chat check choice choose claim clarify class clean
    clear client climate close closed code cold collect come command common communal communicate company compare
    complete complex comprehensive concern concise conclude concrete condition confirm confuse consider consist
    constraint contain content context continue contrary convert copy correct cost could couldnt count course cover
    create current customer daily danger dark data date dawn day deal decide deep default defer delay delete deliver
    demo depend describe desire detail determine dialogue did didnt differ different difficult digit direct
    directory discuss display divide do docs doctor document documentation does doesnt dog doing done dont double
    doubt down draft draw driver drop due duplicate during each earlier early easy edit effect eight either else
    elsewhere emergency empty end english enough ensure enter entire entry equal error especially essential even
    evening event ever every everybody everyone everything everywhere evidence exact example except excess exclude
    execute exist expect explain explicit extra fact fade fail failure fair fake fall false family far fast fate
    feature feedback feel fetch few field figure file fill film final find fine finish fire first fit five fix
    flight folder follow food for force forget form format former forth forward found four free frequent friday
    friend from front full fully fun further fuse future game garden gate gather gave gene general get give given go
    goal goes going gone good got grade great group grow guess guide guideline had half hall hand handle happen hard
    has hasnt have havent having he head health hear heed held help hence her here hers herself hidden high him
    himself hint his hold home hour how however idea ideal identical identify ids if ignore imagine immediate imply
    important improve in include incomplete incorrect indeed inform information initial input insert inside inspect
    instead instruct integer intend intent interface internal interpret into introduce invalid invent involve is
    isnt issue it item its itself job join july june just keep kept key kind kitchen know known lab lack lame lane
    language large last late later latter lead learn least leave left length less lest let letter level lies life
    like likely limit line link list listen literal little live load lobby local log login logo logout lone long
    look lose lost lot love low lunch made mail main major make manage manner many map march mark market match mate
    math matter may maybe me mean meaning measure meet meeting member memo memory mend mention menu mere message met
    meta method middle might mile mind mine minimal minor minute miss mistake mix mode modify moment monday month
    more moreover morning most move much multiple music must mute my name nature near neat necessary need neither
    never nevertheless new news next nice night nine no nobody node noise none nonetheless noon nor normal nose not
    note nothing notice now number object observe obtain obvious occur of off offer office often ok old omit on once
    one ones only onto open operate opinion option or order other others otherwise ought our ours ourselves out
    outcome output outside over overall overwrite own page pair pale paragraph parameter parcel part partial
    particular party pass past path pattern pause pay people per perfect perform perhaps period permission person
    phone photo photography phrase pick piece pile pipe place plain plan play please plus point pole polite poor
    pose position possible practice precede precise precondition prefer prepare prerequisite present press previous
    primary print prior private problem proceed process produce progress project promise prompt proof proper propose
    provide public pull pure purpose push put quality quarter question quick quiet quit quite quote race raise
    random range rare rate rather raw reach read ready real really reason recall receive recent recheck recipient
    record recover redo reduce refer refuse regard register regular reject relate relevant rely remain remember
    remind remove repair repeat rephrase replace reply report request require research reset resolve resort respect
    respond rest restart result retrieve retry return reuse review ride right ripe rise rite role room rope round
    rude ruin rule run safe said sake sale same sane satisfy saturday save saw say says scan scenario schedule
    school scope seal search second section see seek seem seen select self semi send sender sense sentence separate
    sequence series serve service session set settle seven several shall shape share she short shortcut should
    shouldnt show shown side sign similar simple simply since single sister site situation six size skip slow small
    snow so sole solo solution solve some somebody someone something sometimes somewhere soon sore sort sound space
    speak special specific spell split spoil sport spring stand standard start state statement statistics status
    stay step still stop store straight strange strict strong structure stuck student studio study style subject
    succeed success such suffice suggest suit sum summary summer sun sunday supply support suppose sure switch
    syntax system table take tale talk tape target task tax team technology tell template ten tend term terse test
    text than thank that the their them themselves then there therefore these they thing think third this thorough
    those though thought three through throughout thursday thus tidy till time timely tiny tip tire title to today
    together token told tomorrow tone tonight too took tool top topic total tour toward track train transfer travel
    treat trial trim trip trouble true trust truth try tube tuesday turn twice two type typical under understand
    undo unit unknown unless unlike unnecessary until untrue up update upon urgent us use useful user usual valid
    value various vary verify version very veto via vice view visit vote wait walk want warn was wasnt waste watch
    way we weak web wednesday week weekly well went were what whatever when whenever where whereas wherever whether
    which whichever while who whoever whole whom whose why wide will winter wise wish with within without wont word
    wording work workspace world worry worse worth would wouldnt write written wrong year yes yesterday yet you
    young your yours yourself zero zone
    """
)
"""Some 1,100 words of general advice, in their base forms."""

_SUFFIXES = ("s", "es", "ed", "ing", "ly", "er", "ies", "ied", "able", "ness", "ment", "al", "ation", "ity")
_TOKENS = re.compile(r"[a-z]+|[0-9]+")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_DECIMALS = re.compile(r"\d+\.\d+")


def parts(text: str) -> list[str]:
    """The words and numbers of a text, small; "lockDoors" has two, as "lock_doors" has."""
    return [part.lower() for part in _PARTS.findall(text)]


def is_ordinary(word: str) -> bool:
    """Whether a small word stands in the public documentation or is everyday English, in some form of it.

    Single letters are parts of something, save "a" and "i", and so are numbers.
    """
    return _is_ordinary(word, known_sources())


@lru_cache(maxsize=1 << 14)
def _is_ordinary(word: str, sources: Sources) -> bool:
    if len(word) == 1 or word.isdigit():
        return word in ("a", "i")
    known = _words(sources)
    if word in known:
        return True
    for suffix in _SUFFIXES:
        stem = word.removesuffix(suffix)
        if len(stem) >= 3 and stem != word:
            forms = {stem, stem + "e", stem + "y", stem[:-1] if stem[-1] == stem[-2] else stem}
            if forms & known:
                return True
    return False


def is_public(phrase: str) -> bool:
    """Whether small words with one space between stand in the public documentation in this order."""
    return _is_public(phrase, known_sources())


@lru_cache(maxsize=1 << 14)
def _is_public(phrase: str, sources: Sources) -> bool:
    return f" {phrase} " in _documentation(sources)[0]


def is_public_number(text: str) -> bool:
    """Whether the documentation has the number, in digits."""
    return text in _documentation(known_sources())[1]


def tool_names() -> Mapping[str, str]:
    """Every tool's name by its small letters and digits alone."""
    return _tool_names(known_sources())


# What follows is kept by the sources that are known, as a setting can name another one at any time.


@lru_cache(maxsize=4)
def _tool_names(sources: Sources) -> Mapping[str, str]:
    return {"".join(parts(name)): name for source in sources for name in source.tools()}


@lru_cache(maxsize=4)
def _words(sources: Sources) -> frozenset[str]:
    return EVERYDAY | frozenset(_documentation(sources)[0].split())


@lru_cache(maxsize=4)
def _documentation(sources: Sources) -> tuple[str, frozenset[str]]:
    """The words of all tool documents with spaces around each, and the numbers in them."""
    tools = dict.fromkeys(tool for source in sources for tool in source.tools().values())
    texts = [text for tool in tools for text in _texts(dict(tool.document))]
    texts += [text for source in sources for text in source.public_texts()]
    # Once as the words are written, once with "lockDoors" as two; the mark between texts keeps phrases apart.
    readings = [_TOKENS.findall(text.lower()) for text in texts] + [parts(text) for text in texts]
    numbers = {number for text in texts for number in (*_DECIMALS.findall(text), *re.findall(r"\d+", text))}
    return f" {' | '.join(' '.join(reading) for reading in readings)} ", frozenset(numbers)


def _texts(value: JSON) -> Iterator[str]:
    """Every string of a JSON value, keys included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value
