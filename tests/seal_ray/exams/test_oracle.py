"""Scripts that are known to be right, or wrong at every third item; and BFCL's web search, whose service dies."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from envs.apibank.data import typed
from envs.apibank.exam import ApiBankExam, ApiCall
from envs.bfcl.single_turn import SingleTurnExam, SingleTurnItem
from envs.bfcl.web_exam import WebSearchExam, WebSearchItem
from envs.errors import SealError
from envs.exams import EXAMS, Conversation, Exam, Item
from envs.task import ToolCall
from policies.candidate import conversation_prompt
from policies.engine import GenRequest
from policies.solver import Budgets
from seal_ray.cli.exam import exam_settings
from seal_ray.exams.exam_run import AnswerLog, choose_items
from seal_ray.exams.report import exam_rows
from tests.bench.single_turn_parity import ground_truth, verdict
from tests.command_line import Refusal
from tests.envs.apibank.folder import FOLDER, needs_data
from tests.envs.web_search.stand_in import StandIn, running
from tests.policies.scripted_engine import ScriptedEngine
from tests.seal_ray.exams.test_sitting import FORM, SITTER, sit

CONTEXT = 100_000
WIDE = replace(SITTER, budgets=Budgets(CONTEXT, 5_000, CONTEXT))


def share(exam: Exam, items: Sequence[Item], answers: Mapping[tuple[int, ...], str], folder: Path) -> tuple[int, int]:
    """How many items are right, of how many, where each prompt gets its answer."""

    engine = ScriptedEngine(lambda request: FORM.completion(answers[request.prompt_ids]), context=CONTEXT)
    done = sit(engine, folder, items, exam=exam, model=WIDE)
    row = exam_rows(exam.name, list(done.answers.values()))[-1]
    return round(row.model.share * row.items), row.items


def prompt(conversation: Conversation) -> tuple[int, ...]:
    return conversation_prompt(FORM, conversation)


def test_single_turn_questions(tmp_path: Path) -> None:
    exam: SingleTurnExam = EXAMS.make("bfcl-v3-single-turn")
    items: list[SingleTurnItem] = list(exam.items()[::40])
    right, flawed, expected = {}, {}, []
    for number, item in enumerate(items):
        calls = ground_truth(item, random.Random(0)) if item.answers is not None else []
        if item.category == "live_relevance":
            calls = [ToolCall("anything", {})]
        said = FORM.dialect.render_calls(calls) or "No function fits."
        asked = prompt(item.conversation())
        right[asked] = said
        flawed[asked] = FORM.dialect.render_calls([ToolCall("wrong", {})]) if number % 3 == 0 else said
        expected.append(item.answers is None or verdict(item, calls) is None)
    assert len(right) == len(items) == 92
    assert share(exam, items, right, tmp_path / "right") == (sum(expected), 92)
    assert sum(expected) >= 88
    kept = [known for number, known in enumerate(expected) if number % 3]
    also = sum(item.category == "live_relevance" for item in items[::3])
    assert share(exam, items, flawed, tmp_path / "flawed") == (sum(kept) + also, 92)
    exam.close()


@needs_data
def test_every_call_of_api_bank(tmp_path: Path) -> None:
    exam: ApiBankExam = EXAMS.make("api-bank", {"data": str(FOLDER)})
    items: list[ApiCall] = list(exam.items())
    answers = {}
    for item in items:
        call = typed(item.truth.call, exam.tools.get(item.truth.call.name))
        answers[prompt(item.conversation(FORM.dialect))] = FORM.dialect.render_calls([call])
    right, of = share(exam, items, answers, tmp_path)
    assert of == 508
    assert 480 <= right <= 484, "some dialogues begin alike, and one prompt has one answer"
    exam.close()


COUNT = 12


@pytest.fixture
def server() -> Iterator[StandIn]:
    with running() as found:
        yield found


def written(server: StandIn, exam: WebSearchExam) -> list[WebSearchItem]:
    """The first items; for each question a page on the server with its answer, but without it for every third."""
    items = choose_items(exam.items(), limit=COUNT)
    for number, group in enumerate(dict.fromkeys(item.group for item in items)):
        item = next(item for item in items if item.group == group)
        body = item.answers[0] if number % 3 else "nothing"
        server.pages[f"/{group}"] = (f"<<{body}>>".encode(), {"Content-Type": "text/html; charset=utf-8"})
        link = f"http://{server.host}/{group}"
        server.found[asked_by(item)] = [{"title": "a page", "link": link, "snippet": "It has the answer."}]
    return items


def asked_by(item: WebSearchItem) -> str:
    return str(item.entry["question"][0][0]["content"])[:60]


def script(items: Sequence[WebSearchItem]) -> ScriptedEngine:
    """Searches for the beginning of the question, fetches the first result, and says what stands on that page."""
    known = [asked_by(item) for item in items]

    def answer(request: GenRequest) -> Sequence[int]:
        text = FORM.text(request.prompt_ids)
        link, page = re.search(r"'href': '(.*?)'", text), re.search(r"<<(.*?)>>", text)
        if page:
            return FORM.completion(f"{{'answer': '{page[1]}', 'context': 'It stands there.'}}")
        if link:
            call = ToolCall("fetch_url_content", {"url": link[1]})
        else:
            call = ToolCall("search_engine_query", {"keywords": next(words for words in known if words in text)})
        return FORM.completion(FORM.dialect.render_calls([call]))

    return ScriptedEngine(answer, context=CONTEXT)


def test_a_script_that_reads_is_right_where_the_page_is_and_a_dead_service_is_no_score(
    server: StandIn, tmp_path: Path
) -> None:
    web = server.web()
    exam = WebSearchExam(web)
    items = written(server, exam)
    assert {item.category for item in items} == {"base", "no_snippet"}
    engine = script(items)
    server.dies_after = 7
    with pytest.raises(SealError, match=r"search service does not answer .*; \d+ of 12 items are kept and no score"):
        sit(engine, tmp_path, items, exam=exam, model=WIDE)
    log = AnswerLog(tmp_path, {"model": "x"})
    kept = {row["item"] for row in log.lines.rows()}
    assert 0 < len(kept) < COUNT
    server.dies_after, searched = 10**9, len(server.asked)
    done = sit(engine, tmp_path, items, exam=exam, model=WIDE)
    assert len(server.asked) == searched + COUNT - len(kept), "nothing that was answered is searched for again"
    assert done.resumed == len(kept)
    groups = list(dict.fromkeys(item.group for item in items))
    assert {item.id: done.answers[item.id].right for item in items} == {
        item.id: groups.index(item.group) % 3 != 0 for item in items
    }
    asked = len(engine.requests)
    assert sit(engine, tmp_path, items, exam=exam, model=WIDE).resumed == COUNT
    assert len(engine.requests) == asked
    shown = {row["item"]: "It has the answer." in str(row["asked"]) for row in log.lines.rows()}
    assert shown == {item.id: item.category == "base" for item in items}
    assert exam.notes()[0].startswith(f"searches were answered by http://{server.host}/search")
    assert exam_settings(exam.name, exam, {"data": None}) == {"suite": exam.name, "notes": list(exam.notes())}
    exam.close()


def test_without_a_key_or_packages_it_is_one_sentence(check_refused: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("exam", "tiny", "--suite", "bfcl-v4-web-search")
    monkeypatch.delenv("SERPAPI_API_KEY", raising=False)
    check_refused(*arguments, sentence="bfcl-v4-web-search: SERPAPI_API_KEY is not set; searching needs a key")
    monkeypatch.setenv("SERPAPI_API_KEY", "x")
    monkeypatch.setattr("envs.bfcl.web_exam.PACKAGES", {"no_such_module": "no-such-package"})
    check_refused(*arguments, sentence="no-such-package is not installed; run `pip install no-such-package`.")
