"""The executor: what it dispatches, what it isolates, and what it bounds."""

import decimal
import json
import time
from concurrent.futures import ThreadPoolExecutor

import mpmath
import pytest

from envs.bfcl.memory_tools import BACKENDS, Memory
from envs.bfcl.tools import DOCUMENT_FILES, all_tools
from envs.bfcl.world import ERROR, Simulators, SimulatorWorld
from envs.errors import EnvironmentFault
from envs.task import JSON, ToolCall
from envs.world import World
from tests.envs.perturbations import sample
from tests.envs.players import play, results_shown


def world(*classes: str, long_context: bool = False, **config: JSON) -> SimulatorWorld:
    return Simulators(classes, config, padded=long_context).ready()()


def run(target: World, tool: str, **arguments: JSON) -> str:
    return target.execute(ToolCall(tool, arguments)).text


def test_the_allow_list_is_the_documentation() -> None:
    assert len(all_tools()) == 128
    everything = world(*DOCUMENT_FILES)
    assert all(everything.offers(name) for name in all_tools())
    for name in ("_load_scenario", "__init__", "__class__", "_random", "__reduce__", "print", "eval"):
        assert not everything.offers(name)
        assert everything.execute(ToolCall(name, {})).is_error


ERRORS: tuple[tuple[str, dict[str, JSON], str], ...] = (
    ("cd", {}, "GorillaFileSystem.cd() missing 1 required positional argument: 'folder'"),
    ("cd", {"folder": "a", "deep": 1}, "GorillaFileSystem.cd() got an unexpected keyword argument 'deep'"),
    ("chdir", {"folder": "a"}, "name 'chdir' is not defined"),
    ("os.remove", {"path": "a"}, "Function call remove is not allowed."),
    ("add", {"a": float("nan"), "b": 1}, "name 'nan' is not defined"),
    ("add", {"a": 1, "b": [float("-inf")]}, "name 'inf' is not defined"),
    ("nothing(x)", {}, "name 'nothing' is not defined"),
    ("a.b", {}, "name 'a' is not defined"),
    ("a.run", {}, "Function call run is not allowed."),
    ("not a name", {}, "invalid syntax (<string>, line 1)"),
)


def test_results_are_rendered_as_the_official_executor_renders_them() -> None:
    target, memory = world("MathAPI", "GorillaFileSystem"), Memory(BACKENDS["kv"](None), ())
    assert run(target, "add", a=1, b=2) == '{"result": 3}'
    assert run(target, "logarithm", value=10, base=10, precision=5) == "{'result': mpf('1.0')}"
    assert run(target, "square_root", number=2, precision=5) == "{'result': Decimal('1.4142')}"
    assert run(target, "touch", file_name="a") == "None"
    assert run(target, "cd", folder="b") == """{"error": "cd: 'b': No such file or directory"}"""
    for tool, arguments, error in ERRORS:
        for answers in (target,) if target.offers(tool) else (target, memory):
            answer = answers.execute(ToolCall(tool, arguments))
            assert (answer.text, answer.is_error) == (ERROR + error, True)


def test_errors_are_told_from_results() -> None:
    for tool, arguments, is_error in (
        *(("get_watchlist", {}, True), ("get_order_details", {"order_id": -1}, True), ("place_order", {}, True)),
        *(("get_symbol_by_name", {"name": "nobody"}, False), ("get_current_time", {}, False)),
    ):
        assert world("TradingBot").execute(ToolCall(tool, arguments)).is_error is is_error, tool


def test_mutable_defaults_are_shared_within_an_episode_and_arguments_are_copied() -> None:
    def post(target: SimulatorWorld, **more: JSON) -> list[str]:
        mentions: list[str] = json.loads(run(target, "post_tweet", content="x", **more))["mentions"]
        return mentions

    first, second = world("TwitterAPI"), world("TwitterAPI")
    for target in (first, second):
        run(target, "authenticate_twitter", username="john", password="john123")
    assert post(first) == []
    run(first, "mention", tweet_id=0, mentioned_usernames=["@eve"])
    assert post(first) == ["@eve"], "Python shares the default list between the calls of a process"
    assert post(second) == []
    mentions = ["@a"]
    post(second, mentions=mentions)
    run(second, "mention", tweet_id=1, mentioned_usernames=["@b"])
    assert mentions == ["@a"]


def test_process_wide_settings_stay_as_they_were() -> None:
    before = mpmath.mp.dps, decimal.getcontext().prec
    target = world("MathAPI")
    run(target, "logarithm", value=7, base=3, precision=77)
    run(target, "square_root", number=7, precision=77)
    assert (mpmath.mp.dps, decimal.getcontext().prec) == before


COSTLY: tuple[tuple[str, dict[str, JSON], str], ...] = (
    ("power", {"base": 9, "exponent": 10**9}, "Exceeds the limit"),
    ("power", {"base": -(10**300), "exponent": 10**6}, "Exceeds the limit"),
    *(
        ("logarithm", {"value": 2, "base": 10, "precision": p}, "above the limit of 5000")
        for p in (10**9, "9" * 9, 1e9)
    ),
    ("square_root", {"number": 2, "precision": 10**9}, "above the limit of 5000"),
    ("square_root", {"number": -1, "precision": 10**9}, "negative number"),
    ("round_number", {"number": 5, "decimal_places": -(10**9)}, '{"result": 0}'),
    # Ordinary ones are untouched by the bounds.
    ("power", {"base": 2, "exponent": 10}, '{"result": 1024}'),
    ("power", {"base": 1, "exponent": 10**12}, '{"result": 1}'),
    ("power", {"base": 2, "exponent": -1}, '{"result": 0.5}'),
    ("round_number", {"number": 1234, "decimal_places": -2}, '{"result": 1200}'),
)


def test_costly_arithmetic_is_refused_at_once_and_many_calls_are_bounded_together() -> None:
    for tool, arguments, shown in COSTLY:
        started = time.thread_time()
        assert shown in run(world("MathAPI"), tool, **arguments)
        assert time.thread_time() - started < 0.1
    target, other = world("MathAPI"), world("MathAPI")
    started = time.thread_time()
    results = [run(target, "logarithm", value=n + 2, base=10, precision=5000) for n in range(400)]
    assert time.thread_time() - started < 1.0
    assert ["mpf" in result for result in results] == [True] * 4 + [False] * 396
    assert "mpf" in run(target, "logarithm", value=7, base=10, precision=50), "ordinary calls still work"
    assert "mpf" in run(other, "logarithm", value=7, base=10, precision=5000), "and so do other dialogues"


def test_sets_are_printed_in_the_same_order_in_every_process() -> None:
    target = world("TicketAPI", TicketAPI={"ticket_queue": [{"id": 1}], "ticket_counter": 2})
    shown = run(target, "edit_ticket", ticket_id=1, updates={"zeta": 1, "alpha": 2, "title": "t", "mu": 3})
    assert shown == '{"error": "Invalid fields for update: alpha, mu, zeta"}'


def test_a_config_that_a_simulator_rejects_is_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="GorillaFileSystem rejects"):
        world("GorillaFileSystem", GorillaFileSystem={"root": {"w": {"type": "directory"}}})


def test_many_threads_play_as_one_does() -> None:
    trajectories = list(sample(per_kind=6, seed=3))
    alone = [results_shown(play(t.task, t.turns)) for t in trajectories]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda t: results_shown(play(t.task, t.turns)), trajectories)) == alone


def test_the_padded_weather_report_is_not_mixed_up_between_threads() -> None:
    def report(seed: int) -> list[str]:
        target = world("VehicleControlAPI", long_context=True, VehicleControlAPI={"random_seed": seed})
        return [run(target, "get_outside_temperature_from_google") for _ in range(200)]

    alone = [report(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(report, range(8))) == alone
    assert len({reports[0] for reports in alone}) == 8
