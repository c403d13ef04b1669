"""Task sources: found by name, import path or entry point; users who answer; goals; what an own source changes."""

import dataclasses

import pytest

from envs import registry, sources
from envs.bfcl.splits import get_split
from envs.bfcl.tools import all_tools as benchmark_tools
from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.dialogue import Protocol
from envs.errors import UserError
from envs.interface import CueKind, Interface, SchemaCue
from envs.interface.guard import LeakGuard
from envs.interface.json_form import interface_from_dict
from envs.interface.vocabulary import is_ordinary, is_public, is_public_number, tool_names
from envs.profile import FailureProfile
from envs.sources import (
    BENCHMARK,
    GENERATED,
    SOURCES,
    OfficialResults,
    TaskPool,
    TaskSet,
    TaskSource,
    all_tools,
    alternating_categories,
    find_task,
    get_source,
    known_sources,
)
from envs.task import Category, Task, Turn, sorted_categories
from envs.toolworld import generate
from envs.verifier import Outcome, TurnVerdict
from tests.envs.own_tasks import CD, FIXED, SPIN, TALK, own_task, played

HERE = "tests.envs.test_sources"
RENAMED = "bfcl-renamed"


class OwnSet(TaskSet):
    """Named by its class, where an instance is wanted."""


SOURCE = TaskSet("own", "tasks of a test", {"train": [FIXED], "dev": [TALK]}, public_texts=["vermilion turntables"])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No own source is known before and after."""
    monkeypatch.setattr(sources, "own_sources", [])
    monkeypatch.setattr(sources, "SOURCES", registry.Registry(SOURCES.key, SOURCES.group, SOURCES.built_in))


# Names.


def test_the_built_in_sources_are_found_by_name() -> None:
    sources = [get_source(name) for name in (GENERATED, BENCHMARK, RENAMED)]
    assert [source.name for source in sources] == list(SOURCES.built_in) == [GENERATED, BENCHMARK, RENAMED]
    for source in sources:
        assert source.parts == ("train", "dev", "test")
        assert source.categories == tuple(Category)
        assert source.protocol == Protocol.OFFICIAL
        assert source.about
    assert [source.endless for source in sources] == [True, False, False]
    assert [isinstance(source, OfficialResults) for source in sources] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toolwrld", "env: 'toolwrld' is not known; did you mean 'toolworld'?"),
        (f"{HERE}:NOTHING", f"env: '{HERE}:NOTHING' cannot be imported"),
        (f"{HERE}:HERE", f"env: '{HERE}:HERE' is no task source; it lacks "),
        (f"{HERE}:OwnSet", f"env: '{HERE}:OwnSet' is a class; name an instance of it."),
    ],
)
@pytest.mark.usefixtures("alone")
def test_an_unknown_source_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        get_source(name, key="env")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert len(known_sources()) == len(SOURCES.built_in)


@pytest.mark.usefixtures("alone")
def test_a_source_is_named_by_import_path_or_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_source(f"{HERE}:SOURCE") is SOURCE
    points = {SOURCES.group: {"discs": f"{HERE}:SOURCE", "bfcl": "x:y"}}
    monkeypatch.setattr(registry, "installed", lambda group: points.get(group, {}))
    assert get_source("discs") is SOURCE
    assert get_source("bfcl").name == "bfcl"
    assert known_sources() == (*map(get_source, SOURCES.built_in), SOURCE)


@pytest.mark.usefixtures("alone")
def test_a_task_is_found_in_the_sources_that_are_named_and_in_the_built_in_ones() -> None:
    own = (f"{HERE}:SOURCE",)
    assert find_task("own_0", own) is FIXED
    assert find_task("multi_turn_base_0", own) is find_task("base_0")
    assert find_task(generate(3).id, own).id == generate(3).id
    with pytest.raises(UserError, match="task: 'own_2' is not known; did you mean 'own_"):
        find_task("own_2", own)
    with pytest.raises(UserError, match="task: 'own_0' is not known"):
        find_task("own_0")


# A set of tasks as a source.


def test_a_set_of_tasks_is_a_source() -> None:
    source: TaskSource = SOURCE
    assert (source.parts, source.categories) == (("train", "dev"), ("fast", "slow"))
    assert list(source.tools()) == ["cd", "spin_disc"]
    assert (source.split().part("all"), source.split().test) == ((FIXED, TALK), ())
    assert not isinstance(source, OfficialResults)
    assert [(each.of, each.tasks, each.scenario) for each in source.overlaps(source.split())] == [("dev", 1, 0)]
    pool: TaskPool = source.pool("dev")
    assert (pool.size, pool.task_id(0), pool.task_id(0, seed=3), pool.category(0)) == (1, "own_1", "own_1", "slow")
    assert source.pool("train", categories=["slow"]).size == 0
    with pytest.raises(UserError, match="split: 'scenario' is not known; own is divided in one way, leave it out"):
        source.pool("train", split_scheme="scenario")
    with pytest.raises(UserError, match="split part: 'trian' is not known; did you mean 'train'"):
        source.pool("trian")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"trian": [FIXED]}, "own: part: 'trian' is not known; did you mean 'train'"),
        ({"train": [FIXED], "dev": [FIXED]}, r"own: train and dev share 1 task\(s\), 'own_0' for one"),
        ({"train": [FIXED, dataclasses.replace(FIXED)]}, "own: two tasks have the id 'own_0'"),
        ({"train": [FIXED, FIXED]}, "own: two tasks have the id 'own_0'"),
        ({"train": [own_task("own_7", "a/b", Turn("Hello.", ()))]}, "own: the category 'a/b' has a slash"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: dict[str, list[Task]], said: str) -> None:
    with pytest.raises(UserError, match=said):
        TaskSet("own", "tasks of a test", parts)


def test_pools_give_the_tasks_of_the_benchmark_and_generated_ones_in_turn() -> None:
    part = get_split("scenario").dev
    pool = get_source(BENCHMARK).pool("dev", categories=["miss_func", "base"])
    assert pool.size == sum(task.category in ("miss_func", "base") for task in part)
    assert [pool.category(number) for number in range(4)] == ["miss_func", "base"] * 2
    ids = [pool.task_id(number) for number in range(pool.size)]
    assert ids == [task.id for task in alternating_categories(part, ["miss_func", "base"])]
    endless = get_source(GENERATED).pool("test", difficulty="t1-1_c1-1_d1-1_s2-2")
    assert endless.size is None
    assert endless.task_id(5) == "toolworld_test_miss_func_000005_t1-1_c1-1_d1-1_s2-2"
    assert endless.task_id(5, seed=2) == "toolworld_test_miss_func_2000005_t1-1_c1-1_d1-1_s2-2"
    assert endless.category(5) == "miss_func"
    with pytest.raises(UserError, match="split: 'tset' is not known"):
        get_source(GENERATED).pool("tset")
    with pytest.raises(UserError, match="without end"):
        get_source(GENERATED).split()
    given = ["slow", "long_context", "fast", "base", "slow"]
    assert sorted_categories(given) == ["base", "long_context", "slow", "fast"]


# A user who answers.


def test_a_user_answers_what_was_said_in_the_turn_before() -> None:
    dialogue, said = played(TALK, "[spin_disc(speed=1)]", "Which speed?", "[spin_disc(speed=33)]", "Done. {turn}")
    assert said == ["turn 0, you said 0: ", "turn 1, you said 2: [spin_disc(speed=1)]|Which speed?"]
    assert dialogue.user_text == said[-1]
    assert dialogue.success
    assert played(TALK, "Hm?", "Done.")[1] == ["turn 0, you said 0: ", "turn 1, you said 1: Hm?"], "a user of its own"
    assert played(TALK, "half a pair: \ud83d")[1][-1].encode("utf-8"), "its text is valid whatever it repeats"


# A goal of the final state.


@pytest.mark.parametrize(
    ("completions", "outcome", "first"),
    [
        (("[spin_disc(speed=33)]", "Done.", "Nothing more."), "pass", "pass"),
        (("Which?", "[spin_disc(speed=33)]", "Done."), "pass", "correct_abstention"),
        (("[spin_disc(speed=33)]", "Done.", "[spin_disc(speed=45)]", "Done."), "state_mismatch", "pass"),
        (("[spin_disc(speed='x')]", "Done.", "Bye."), "state_mismatch", "argument_mismatch"),
        (("Bye.", "Bye."), "state_mismatch", "correct_abstention"),
        (("[no_such_tool()]", "Done.", "Bye."), "state_mismatch", "invalid_tool_call"),
    ],
)
def test_a_goal_judges_the_final_state_alone(completions: tuple[str, ...], outcome: str, first: str) -> None:
    dialogue, _ = played(TALK, *completions)
    assert dialogue.over
    assert [turn.verdict.outcome for turn in dialogue.turn_diagnoses] == [Outcome.UNSCORED, Outcome(outcome)]
    assert dialogue.diagnosis.labels == (first, outcome)
    assert dialogue.success == (outcome == "pass")
    assert dialogue.turn_diagnoses[0].paper_label == (first if first == "correct_abstention" else "pass")
    cut, _ = played(TALK, "[spin_disc(speed=33)]")
    cut.truncate()
    assert not cut.success
    assert cut.diagnosis.labels == (Label.NOT_REACHED, Label.NOT_REACHED)


# The known tools of a process grow with the named sources, and nothing is kept from before.


@pytest.mark.usefixtures("alone")
def test_the_tools_of_a_source_are_known_once_it_is_named() -> None:
    cue = {"schema_cues": [{"kind": "required", "tools": ["spin_disc"]}]}
    proposal = Interface(schema_cues=(SchemaCue(CueKind.REQUIRED, ("spin_disc",)),))
    guard = LeakGuard()

    def public() -> set[bool]:
        words = [is_ordinary("quixotic"), is_public("eject the quixotic disc"), is_public_number("8471")]
        return {*words, guard.check(proposal) is None, "spin_disc" in all_tools()}

    known = list(benchmark_tools())
    assert all_tools() == {name: (benchmark_tools()[name],) for name in known}
    assert public() == {False}
    with pytest.raises(UserError, match="tool: 'spin_disc' is not known"):
        interface_from_dict(cue)
    get_source(f"{HERE}:SOURCE")
    assert public() == {True}
    assert is_ordinary("vermilion")
    assert (all_tools()["cd"], all_tools()["spin_disc"]) == ((benchmark_tools()["cd"], CD), (SPIN,))
    assert list(all_tools())[: len(known)] == known
    names, beginnings = tool_names()
    assert names["spindisc"] == "spin_disc"
    assert "spindi" in beginnings
    assert interface_from_dict(cue) == proposal


@pytest.mark.usefixtures("alone")
def test_a_profile_names_arguments_that_any_source_documents() -> None:
    def counted(argument: str) -> list[str]:
        verdict = TurnVerdict(0, Outcome.STATE_MISMATCH)
        turn = TurnDiagnosis(0, Label.ARGUMENT_MISMATCH, "type", verdict, tool="cd", argument=argument)
        profile = FailureProfile()
        profile.add(Diagnosis("t", "fast", (turn,), False), 0.0)
        return [key for key in profile.window.tallies if key.startswith("argument/")]

    assert counted("folder") == ["argument/cd/folder/type"]
    assert counted("drawer") == ["argument/cd/(undocumented)/type"]
    get_source(f"{HERE}:SOURCE")
    assert counted("folder") == ["argument/cd/folder/type"]
    assert counted("drawer") == ["argument/cd/drawer/type"]


@pytest.mark.usefixtures("alone")
def test_a_profile_names_tools_with_slashes() -> None:
    tool = dataclasses.replace(SPIN, name="player/spin")
    task = dataclasses.replace(FIXED, tools=(tool,))
    sources.own_sources.append(TaskSet("slashes", "tasks of a test", {"train": [task], "dev": [TALK]}))
    verdict = TurnVerdict(0, Outcome.STATE_MISMATCH)
    turn = TurnDiagnosis(0, Label.ARGUMENT_MISMATCH, "type", verdict, tool="player/spin", argument="speed")
    profile = FailureProfile()
    profile.add(Diagnosis("t", "fast", (turn,), False), 0.0)
    assert "- player/spin: argument_mismatch: 1 turns" in profile.render()
    assert "- player/spin speed type: 1 turns" in profile.render()
