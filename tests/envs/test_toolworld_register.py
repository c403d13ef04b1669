"""The language of long generated tasks: the grammar of the varied register, and phrases that refer to results."""

import random
import re
import string
from collections.abc import Iterator

from envs.bfcl.tasks import load_tasks
from envs.toolworld.phrases import expanded, grammar, lowered, phrases, worded
from envs.toolworld.words import POOLS, read_table
from tests.envs.test_toolworld_long import said


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_request_has_three_paraphrases_that_say_the_same() -> None:
    for intent, known in phrases().items():
        (slots,) = {frozenset(fields(text)) for text in known.ask}
        assert len(set(known.ask)) >= 3, intent
        for slot, texts in known.without.items():
            assert len(set(texts)) >= 3, intent
            assert {frozenset(fields(text)) for text in texts} == {slots - {slot}}, intent
            assert all(fields(text) == {slot} for text in read_table("phrases")["supply"][slot])


def test_requests_that_refer_have_three_paraphrases_that_say_the_same() -> None:
    assert not set(phrases("referring")) & set(phrases())
    for intent, known in phrases("referring").items():
        assert len({frozenset(fields(text)) for text in known.ask}) == 1, intent
        assert len(set(known.ask)) >= 3, intent
        assert not known.without


def texts_of(symbol: object) -> Iterator[str]:
    """Every text of a part of the grammar, with each name replaced by each of its texts in turn."""
    if isinstance(symbol, str):
        seen: dict[str, None] = {}
        for turn in range(12):
            seen[expanded(symbol, lambda texts, turn=turn: texts[turn % len(texts)])] = None  # type: ignore[misc]
        yield from seen
    else:
        for part in symbol.values() if isinstance(symbol, dict) else symbol:  # type: ignore[attr-defined]
            yield from texts_of(part)


def size_of(text: str) -> int:
    """In how many ways a text of the grammar can be read."""
    total = 1
    for name in re.findall(r"<(\w+)>", text):
        total *= sum(map(size_of, grammar()["parts"][name]))
    return total


def test_the_register_has_many_texts_and_none_of_them_is_the_benchmarks() -> None:
    book = grammar()
    alone = [*book["greeting"], *book["resuming"], *book["recalling"], *book["closing"], *book["reason"]]
    assert sum(map(size_of, (*alone, *(text for texts in book["context"].values() for text in texts)))) > 3_000
    around = [*book["asking"], *book["stating"], *book["wondering"], *book["remarking"], *book["connecting"]]
    assert len(set(around)) > 50
    assert all(text.count("{}") == 1 for text in around)
    told = "\n".join(text for task in load_tasks().values() for text in said(task)).casefold()
    values = {value for pool in POOLS.values() for value in pool}
    for text in texts_of([*alone, list(book["context"].values())]):
        assert not re.search(r"[\d{}<>\"]", text)
        assert not set(re.findall(r"[\w']+", text)) & values, text
        assert len(text.split()) < 5 or text.casefold() not in told, text


def test_an_order_is_put_politely_and_a_question_stays_one() -> None:
    rng = random.Random(1)
    orders = {worded(rng, "Please show me a.md.") for _ in range(400)}
    questions = {worded(rng, "What is it?") for _ in range(100)}
    assert "Could you show me a.md?" in orders
    assert "I need you to show me a.md." in orders
    assert len(orders) == len(grammar()["asking"]) + len(grammar()["stating"])
    assert all(text.endswith("hat is it?") for text in questions)
    assert worded(rng, "Show it. It is here.") == "Show it. It is here."
    assert lowered("I am") == "I am"
