"""The leak guard: what it turns down, however it is hidden, what it lets pass, and how fast it is."""

import base64
import gc
import itertools
import json
import random
import re
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import all_tools
from envs.interface import CueKind, Interface, SchemaCue, leaks, readings
from envs.interface.guard import LeakGuard
from envs.interface.show import guidelines_text
from envs.interface.value import MAX_GUIDELINE_CHARACTERS, MAX_GUIDELINES
from envs.interface.vocabulary import is_ordinary, is_public, parts
from envs.task import JSON, Task, ToolCall
from envs.text import leaves
from envs.toolworld import tasks
from envs.toolworld.shown_tools import DESCRIPTIONS
from policies.curator.rules import GUIDELINE_FOR
from policies.tiny.behaviours import CURATOR_WORDINGS, SOLVER_WORDINGS
from tests.envs.advice import ADVICE
from tests.envs.hiding import HIDING, encoded

SHIPPED = (*GUIDELINE_FOR.values(), *SOLVER_WORDINGS.all, *CURATOR_WORDINGS.all)
AAPL = base64.b64encode(b"AAPL").decode()
DERIVED = settings(max_examples=120, derandomize=True, database=None, deadline=None)
T = TypeVar("T")


@cache
def pool() -> tuple[Task, ...]:
    return (*load_tasks().values(), *tasks(400, split="train"))


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of the work, and its own CPU seconds: of this thread, without the collection of others' garbage."""
    gc.disable()
    try:
        start = time.thread_time()
        return work(), time.thread_time() - start
    finally:
        gc.enable()


@cache
def whole() -> LeakGuard:
    """The guard over the tasks of both worlds."""
    return LeakGuard(pool())


def turned_down(text: str, guard: LeakGuard | None = None) -> str | None:
    """Why an interface with this guideline alone is turned down, if it is."""
    return (guard or whole()).check(Interface(guidelines=(text,)))


@cache
def values(least: int = 3) -> tuple[str, ...]:
    """Every secret argument value as text: neither public, nor small, nor ordinary words."""
    found = dict.fromkeys(
        value if isinstance(value, str) else f"{value:g}" if value == int(value) else str(value)
        for task in pool()
        for value in arguments(task)
        if not isinstance(value, bool) and len(str(value)) <= 60 and "\n" not in str(value)
    )
    return tuple(value for value in found if len("".join(parts(value))) >= least and not is_free(value))


def is_free(value: str) -> bool:
    words = parts(value)
    return is_public(" ".join(words)) or (len(words) <= 2 and all(map(is_ordinary, words)))


def hides(value: str, way: str) -> list[str]:
    """Guidelines that tell a value, at each place of one."""
    hidden = HIDING[way](value)
    texts = (hidden, f"Use {hidden} where it fits.", f"If in doubt, think of {hidden}")
    return [text for text in texts if len(text) <= MAX_GUIDELINE_CHARACTERS and text.isprintable()]


@pytest.mark.parametrize("way", HIDING)
def test_a_value_is_found_however_it_is_hidden(way: str) -> None:
    rng = random.Random(way)
    chosen = rng.sample(values(), 40)
    assert len(values()) > 1_500
    for value in filter(str.isascii, chosen):
        for text in hides(value, way):
            assert turned_down(text), (value, text)


def test_encoded_values_are_found_inside_longer_strings() -> None:
    for prefix, suffix in itertools.product(("", "x", "xy", "xyz", "key:", "use_", "=="), ("", "==", "/", ".x")):
        for value in ("archive_2022", "SecurePass123", "Michael"):
            stripped = encoded(value).rstrip("=")
            assert turned_down(f"It is {prefix}{stripped}{suffix}"), (prefix, value, suffix)
            assert turned_down(f"It is {prefix}{value.encode().hex()}{suffix}"), (prefix, value, suffix)


@pytest.mark.parametrize(
    "text",
    [
        *("Buy AAPL", "Buy aapl.", "buyAAPLnow", "A.A.P.L", "ＡＡＰＬ", "ААРL", "🇦🇦🇵🇱", "A A  P L", "𝐀𝐀𝐏𝐋"),
        *("Pay 1500", "Pay $1,500.00", "Pay 1 500", "USD1500", "one five zero zero", "١٥٠٠"),
        *("Work in 'document'", 'Work in "projects"', "folder=project", "The tag is #CarCare", "Use deep_folder"),
        *("Title: Cancellation Issue", "cHJvamVjdA==", "p r o j e c t", "tcejorp", "Raise it to 2.3"),
        "Raise it to 02.30",
        *("update the system", "Tire-Pressure-Issue"),
    ],
)
def test_examples_of_leaks(text: str) -> None:
    assert turned_down(text, of_the_benchmark()) == "guidelines.0: it contains an argument value of a task."


@cache
def of_the_benchmark() -> LeakGuard:
    """The guard over BFCL's tasks and a generated one with the argument 2.3."""
    decimal = next(task for task in pool()[800:] if 2.3 in arguments(task))
    return LeakGuard([*load_tasks().values(), decimal])


def arguments(task: Task) -> list[JSON]:
    return [value for turn in task.turns for call in turn.ground_truth for value in leaves(dict(call.arguments))]


@pytest.mark.parametrize(
    "text",
    [
        *("Work in the document folder.", "Check your project notes.", "Add or a remove."),
        "Wait before the party is over.",
        *("Set it to 15 or 2.", "Set the mode to 'cool'.", "The class is `economy`.", "Use START and STOP."),
        "Say Hello.",
        *("Use cd, ls or pwd.", "Use `cd` before `mv`.", "Write calls like cd(folder='name').", "ls(a=...)"),
        *("An even number, then over to them when open.", "Prices are in USD.", "Metadata matters."),
        "On time, in time.",
    ],
)
def test_examples_of_what_may_be_said(text: str) -> None:
    assert turned_down(text) is None


def test_no_sensible_guideline_is_turned_down() -> None:
    assert len(ADVICE) >= 60
    for text in (*ADVICE, *SHIPPED):
        assert turned_down(text) is None, text
        assert turned_down(text.lower()) is None, text
    for texts in (ADVICE[:MAX_GUIDELINES], ADVICE[-MAX_GUIDELINES:], SHIPPED[:MAX_GUIDELINES]):
        assert whole().check(Interface(guidelines=texts)) is None


def test_the_public_documentation_may_be_repeated() -> None:
    for tool in all_tools().values():
        for word in (tool.name, *(parameter.name for parameter in tool.parameters)):
            assert turned_down(f"Mind `{word}` and '{word}'.") is None, word
        for parameter in tool.parameters:
            for value in parameter.enum:
                assert turned_down(f"{parameter.name} can be '{value}', {value} or {value.upper()}.") is None
    documented = (
        leaf for tool in all_tools().values() for leaf in leaves(dict(tool.document)) if isinstance(leaf, str)
    )
    sentences = {
        sentence[:MAX_GUIDELINE_CHARACTERS]
        for text in (*DESCRIPTIONS.values(), *documented)
        for sentence in re.split(r"(?<=[.!?])\s+", text)
        if sentence.strip()
    }
    rejected = sorted(sentence for sentence in sentences if turned_down(sentence) is not None)
    assert len(sentences) > 800
    assert len(rejected) <= len(sentences) // 200, rejected


def test_ground_truth_calls_are_turned_down_as_text_and_as_json() -> None:
    checked = 0
    for call in (call for task in pool()[::20] for turn in task.turns for call in turn.ground_truth if call.arguments):
        turned = dict(reversed(list(call.arguments.items())))
        for said in (
            *(f"{call} now.", json.dumps(call.to_dict()), f"[{str(call).replace(', ', ',')}]"),
            *(str(ToolCall(call.name, turned)), json.dumps({"arguments": dict(call.arguments), "name": call.name})),
            re.sub(r"(\d)\.0\b", r"\1", str(call)),
        ):
            text = f"Call {said}"
            if len(text) <= MAX_GUIDELINE_CHARACTERS and text.isprintable():
                assert turned_down(text), text
                checked += 1
    assert checked > 1400
    for text in ("Call ls(a=True).", "Call " + encoded("ls(a=True)")):
        assert turned_down(text) == "guidelines.0: it contains a call of a task's ground truth."


def test_the_tools_of_a_turn_in_order_are_turned_down_however_they_are_put() -> None:
    checked = 0
    for turn in (turn for task in pool() for turn in task.turns):
        names = [name for name, _ in itertools.groupby(call.name for call in turn.ground_truth)]
        if len(names) < leaks.CALLS_OF_A_TURN:
            continue
        spoken = [re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name) for name in names]
        for text in (
            f"First use {', then '.join(names)}.",
            f"The order is {' → '.join(f'`{name}`' for name in names)}",
            " ".join(f"{index}. {name}()" for index, name in enumerate(spoken, 1)),
            f"Use {encoded(' '.join(names))}",
        ):
            if len(text) <= MAX_GUIDELINE_CHARACTERS:
                assert turned_down(text), text
                checked += 1
        several = Interface(guidelines=tuple(f"Use {name}." for name in names[:MAX_GUIDELINES]))
        reason = "guidelines: read as one text, it contains the calls of a task in their order."
        assert whole().check(several) == reason
    assert checked > 500


def test_six_words_of_a_user_are_turned_down_and_five_are_not() -> None:
    rng = random.Random(0)
    checked = passed = 0
    for task in rng.sample(pool(), 100):
        for turn in task.turns:
            words = (turn.user or "").split()
            for start in range(0, len(words) - 6, 5):
                run = words[start : start + 6]
                told = [word for text in run for word in re.findall("[a-z]+|[0-9]+", re.sub("['’]", "", text.lower()))]
                if all(map(is_public, told)) or not all(map(str.isascii, run)):
                    continue
                assert turned_down(f"Note: {' '.join(run)}"), run
                assert turned_down(f"Note: {'  '.join(run).upper()}"), run
                passed += turned_down(" ".join(run[:4])) is None
                checked += 1
    assert checked > 300
    assert passed > checked / 3, "what is found is the run, not each of its words"


def test_a_secret_split_over_guidelines_is_found() -> None:
    assert whole().check(Interface(guidelines=("The folder is archive", "2022 is its end."))) is not None
    assert whole().check(Interface(guidelines=("Letters: A A", "P L."))) is not None


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (Interface(guidelines=("a", "b <|im_end|>")), "guidelines.1: it must be plain text without template"),
        (Interface(guidelines=("ｕｓｅ ｛｛ｘ｝｝",)), "guidelines.0: it must be plain text without"),
        (Interface(guidelines=("A\u200bA\u200bP\u200bL",)), "guidelines.0: it must be one line of printable text."),
        (Interface(guidelines=("Look.",) * 9), "guidelines: there are 9, at most 8 fit."),
        (Interface(guidelines=("Look first. " * 8,)), "guidelines: their text has 110 tokens, at most 40 fit."),
        (Interface((SchemaCue(CueKind.TYPE, ("cd", "rm_all")),)), "schema_cues.0: it names a tool that is not"),
        (Interface(fade=float("nan")), "fade: it is no number from 0 to 1."),
        (Interface((SchemaCue(CueKind.REQUIRED, ("cd",)),), guidelines=("Buy AAPL",), fade=0.5), ""),
    ],
)
def test_what_is_not_valid_is_turned_down_and_the_rest_passes_without_tasks(interface: Interface, reason: str) -> None:
    strict = LeakGuard(max_tokens=40)
    said = strict.check(interface)
    assert (said or "").startswith(reason)
    assert (said is None) == (not reason)


def test_the_length_is_counted_by_the_tokenizer_that_is_given() -> None:
    text = Interface(guidelines=("Look first.", "Then act."))
    counts = {guidelines_text(text): 7}
    strict, lax = (LeakGuard(max_tokens=most, count_tokens=counts.__getitem__) for most in (6, 7))
    assert strict.check(text) == "guidelines: their text has 7 tokens, at most 6 fit."
    assert lax.check(text) is None


HOSTILE = (
    *(st.text(max_size=400), st.text("AEIQUabcz0189+/=-_ ", min_size=300, max_size=400)),
    *(st.text("\\xu%&#;0123456789abcdef{", min_size=300, max_size=400), st.text("cdlsmvgrep(),:\"{}'= ", max_size=400)),
    *(st.binary(min_size=200, max_size=300).map(lambda data: base64.b64encode(data).decode()[:400]),),
    *(st.text("qxzkwvj", min_size=150, max_size=200).map(lambda text: encoded(encoded(text))[:400]),),
)


NESTED = "".join(f"\\x{byte:02x}" for byte in encoded("&#" * 40).encode())
WORST = (
    *("cd(" * 133, "name" * 100, "ﷺ" * 400, "a " * 200, "e " * 200, AAPL[:-1] * 40, "%25" * 133, "&amp;" * 80),
    *("\\u" * 200, NESTED[:400], "41 " * 133, "IF" * 200, "the meeting " * 33, "['\"=" * 100),
)


@DERIVED
@given(texts=st.lists(st.one_of(*HOSTILE), max_size=8) | st.sampled_from(WORST).map(lambda text: [text] * 8))
def test_hostile_text_never_raises_and_costs_little(texts: list[str]) -> None:
    watched = whole()
    said, took = timed(lambda: watched.check(Interface(guidelines=tuple(texts))))
    assert said is None or (said.isprintable() and len(said) < 100)
    assert took < 1.0


def test_a_text_with_too_much_encoded_text_is_turned_down(monkeypatch: pytest.MonkeyPatch) -> None:
    text = encoded("qxzk wvj")
    assert turned_down(text) is None
    monkeypatch.setattr(readings, "GROWTH", 0)
    monkeypatch.setattr(readings, "ALLOWANCE", 4)
    assert turned_down(text) == "guidelines.0: it holds too much encoded text to be read."
