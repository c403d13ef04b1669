"""`seal-ray play`: one dialogue in the terminal, solved by the user, a model or from ground truth, and verified."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from envs.co_evolution import CoEvolutionGame
from envs.diagnosis import TurnDiagnosis
from envs.dialects import get_dialect
from envs.dialogue import Dialogue, Protocol
from envs.errors import UserError, check_known, unknown_value
from envs.interface import Interface, interface_diff
from envs.interface.json_form import dump_interface, load_interface
from envs.interface.show import show_tools
from envs.sources import GENERATED, find_task, get_source
from envs.task import Task, ToolDoc
from envs.text import visible
from policies.engine.choice import default_kind
from policies.models import open_model
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console
from seal_ray.cli.options import check_engine, check_sampling
from seal_ray.run.checkpoints import model_of

_Answer = Callable[[Dialogue], tuple[str, bool]]
"""The solver's next completion in a dialogue, and whether it ended within its budget."""

_SHOWN_CHARACTERS = 600
_HELP = """\
Type calls as [tool(argument='value'), …], or one call without the brackets. An empty line, or anything that is no
call, ends your turn. /tools lists the tools you may call now, /tool NAME shows one, /help this text, /quit stops."""


def command(
    task: Annotated[str, typer.Argument(help="Task id, for instance multi_turn_base_0; seal-ray tasks lists them.")],
    oracle: Annotated[bool, typer.Option("--oracle", help="Replay the ground truth.")] = False,
    model: Annotated[str | None, typer.Option(help="A model that plays: a name, a model folder or a run.")] = None,
    temperature: opt.Temperature = 0.0,
    seed: opt.Seed = 0,
    engine: opt.EngineKind = "transformers",
    interface: Annotated[
        Path | None, typer.Option(help="JSON file of an interface, whose changes are shown first.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="official (evaluation); seal or until-failure (training).")
    ] = "official",
    dialect: opt.Dialect = None,
    env: opt.Env = GENERATED,
    _trust: opt.Trust = False,
) -> None:
    """Play one dialogue of the two-agent game as the solver; the verifier judges every turn."""
    get_source(env, key="env")
    chosen = find_task(task, () if env == GENERATED else (env,))
    check_known("protocol", Protocol, protocol)
    if oracle and model is not None:
        raise UserError("--model: a model or the --oracle plays, not both.")
    check_engine(engine, None)
    check_sampling(temperature)
    form = get_dialect(dialect or "toolace") if model is None else open_model(model_of(model), dialect=dialect).dialect
    shown = Interface.plain() if interface is None else load_interface(interface)
    console = make_console(markup=True)
    game = CoEvolutionGame([chosen], dialect=form, protocol=protocol)
    game.reset(seed=0)
    console.print(
        f"[bold]{chosen.id}[/bold]: {len(chosen.turns)} turns, {len(chosen.tools)} tools, protocol {protocol}"
    )
    _show_interface(console, chosen, shown)
    game.step(dump_interface(shown))  # the curator's move
    if model is not None:
        from seal_ray.cli.model_player import model_player  # here: it imports engines

        console.print(f"starting {model}", style="dim", markup=False)
        options: dict[str, Any] = {"dialect": form.name, "interface": shown, "protocol": protocol}
        options |= {"temperature": temperature, "seed": seed}
        with model_player(model, chosen, engine or default_kind(), **options) as next_completion:
            _play_solver(console, game, lambda _: next_completion())
    elif oracle:
        _play_solver(console, game, lambda dialogue: (_oracle_completion(dialogue), True))
    else:
        console.print(escape(_HELP), style="dim")
        _play_solver(console, game, lambda dialogue: (_read_line(console, dialogue), True))
    _show_outcome(console, game)


def _play_solver(console: Console, game: CoEvolutionGame, next_completion: _Answer) -> None:
    dialogue = game.dialogue
    assert dialogue is not None, "the curator has moved"
    announced = -1
    while not dialogue.over:
        turn = dialogue.turn
        if announced < turn:
            announced = turn
            _show_turn(console, dialogue)
        completion, whole = next_completion(dialogue)
        console.print(f"[cyan]solver[/cyan]  {escaped(_short(completion)) or '[dim](ends the turn)[/dim]'}")
        if not whole:
            console.print("[red]unread[/red]  the completion was cut off, which ends the dialogue")
            return
        steps_before = len(dialogue.trace.turns[turn])
        game.step(completion)
        for step in dialogue.trace.turns[turn][steps_before:]:
            for record in step.calls:
                style = "red" if record.is_error else "green"
                console.print(
                    f"[{style}]result[/{style}]  {escaped(record.call.name)}: {escaped(_short(record.result))}"
                )
            for error in step.parse_errors:
                console.print(f"[red]unread[/red]  at character {error.position}: {escaped(error.message)}")
        if dialogue.turn > turn or dialogue.over:
            _show_verdict(console, dialogue.turn_diagnoses[turn])


def _oracle_completion(dialogue: Dialogue) -> str:
    """All ground-truth calls of the turn in one completion, then an empty one."""
    turn = dialogue.task.turns[dialogue.turn]
    if turn.ground_truth and not dialogue.trace.turns[dialogue.turn]:
        return dialogue.dialect.render_calls(turn.ground_truth)
    return ""


def _read_line(console: Console, dialogue: Dialogue) -> str:
    while True:
        try:
            line = console.input("[bold cyan]you[/bold cyan] > ").strip()
        except EOFError:
            raise KeyboardInterrupt from None
        command, _, rest = line.partition(" ")
        name = rest.strip()
        tools = {each.name: each for each in show_tools(dialogue.interface, dialogue.task.tools_at(dialogue.turn))}
        if command == "/quit":
            raise KeyboardInterrupt
        if command == "/help":
            console.print(escape(_HELP), style="dim")
        elif command == "/tools":
            console.print(", ".join(tools), style="dim")
        elif command == "/tool" and name in tools:
            console.print_json(data=dict(tools[name].document))
        elif command == "/tool":
            console.print(escape(str(unknown_value("tool", name, tools))), style="red")
        elif command.startswith("/"):
            console.print(
                f"{escape(command)} is not known; allowed are /tools, /tool NAME, /help and /quit.", style="red"
            )
        else:
            return line


def _show_interface(console: Console, task: Task, interface: Interface) -> None:
    changes = interface_diff(Interface.plain(), interface)
    if not changes:
        return
    console.print("\n[magenta]curator[/magenta] changes the plain interface (training only):")
    for line in changes:
        console.print(f"         {escape(line)}")
    changed = [
        (before, after)
        for before, after in zip(task.tools, show_tools(interface, task.tools), strict=True)
        if before.document != after.document
    ]
    if changed:
        before, after = changed[0]
        console.print(f"         {len(changed)} of {len(task.tools)} tool documents change; {before.name}, for one:")
        for line in _document_changes(before, after):
            console.print(f"           {escape(line)}", style="dim")


def _document_changes(before: ToolDoc, after: ToolDoc) -> list[str]:
    lines = []
    if before.document["description"] != after.document["description"]:
        lines.append("+ " + after.document["description"].removeprefix(before.document["description"]).strip())
    for name, new in after.document["parameters"]["properties"].items():
        old = before.document["parameters"]["properties"][name]
        if old != new:
            before_text = old.get("description", "").rstrip()  # compact documents have no descriptions of arguments
            lines.append(f"+ {name}: {new['description'].removeprefix(before_text).strip()}")
    return lines


def _show_turn(console: Console, dialogue: Dialogue) -> None:
    turn = dialogue.task.turns[dialogue.turn]
    console.print(f"\n[bold]turn {dialogue.turn + 1} of {len(dialogue.task.turns)}[/bold]")
    if dialogue.user_text is not None:
        console.print(f"[yellow]user[/yellow]    {escaped(dialogue.user_text)}")
    else:
        names = ", ".join(tool.name for tool in turn.revealed)
        console.print(f"[yellow]user[/yellow]    (reveals {names}) I have updated some more functions. What about now?")


def _show_verdict(console: Console, turn: TurnDiagnosis) -> None:
    tool, argument = turn.tool and f"tool {turn.tool}", turn.argument and f"argument {turn.argument}"
    flags, colour = ", ".join(sorted(turn.flags)), "red" if turn.label.is_failure else "green"
    parts = (str(turn.verdict.outcome), f"label {turn.label}", turn.detail, tool, argument, flags)
    console.print(f"[{colour}]verdict[/] {escaped(' · '.join(filter(None, parts)))}")


def _show_outcome(console: Console, game: CoEvolutionGame) -> None:
    outcome = game.last_outcome
    if outcome is None:
        console.print("\n[bold][red]failure[/red][/bold], reward 0: the dialogue did not end")
        return
    ended = "[green]success[/green]" if outcome.reward else "[red]failure[/red]"
    console.print(f"\n[bold]{ended}[/bold], reward {outcome.reward:g}: {', '.join(outcome.diagnosis.labels)}")


def escaped(text: str) -> str:
    """The text without terminal controls and rich's markup; line ends stay."""
    return escape("\n".join(map(visible, text.split("\n"))))


def _short(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]} … ({len(text)} characters)"
