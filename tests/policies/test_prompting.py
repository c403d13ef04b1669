"""Prompts by the model's own template: nothing is tokenised twice, and control tokens come from the template only."""

import copy
import itertools
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from envs.bfcl.tasks import load_tasks
from envs.dialects import DIALECTS
from envs.dialogue import Dialogue, Message
from envs.errors import UserError
from envs.interface import Interface
from envs.interface.value import CueKind, SchemaCue
from envs.task import Task
from envs.toolworld import tasks
from envs.toolworld.shown_tools import compact_signature
from policies import tiny
from policies.models.folder import template_of
from policies.prompting import ChatFormat
from tests.policies.chat_models import chat_format, chat_tokenizer


@pytest.fixture(scope="module")
def tiny_format() -> ChatFormat:
    return ChatFormat.load(tiny.FOLDER, DIALECTS["qwen"])


def rendered(dialect: str, task: Task, chat: Sequence[Message]) -> str:
    """The whole conversation through the template at once, from the messages alone."""
    text = chat_tokenizer(dialect).apply_chat_template(
        [{"role": message.role, "content": message.content} for message in chat],
        tools=[dict(tool.document) for tool in task.tools],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("dialect", ["qwen", "llama3_json"])
@pytest.mark.parametrize("number", [0, 333, 777])
def test_a_dialogue_grown_step_by_step_is_the_template_of_the_whole(dialect: str, number: int) -> None:
    task = list(load_tasks().values())[number]
    form = chat_format(dialect)
    dialogue = Dialogue(task, dialect=form.dialect)
    _, info = dialogue.reset()
    tokens, chat = list(form.opening(info["messages"], info["tools"])), list(info["messages"])
    assert form.text(tokens) == rendered(dialect, task, chat)
    while not dialogue.over:
        turn = task.turns[dialogue.turn]
        acts = turn.ground_truth and not dialogue.trace.turns[dialogue.turn]
        said = form.dialect.render_calls(turn.ground_truth) if acts else "That is all."
        tokens += form.completion(said)
        *_, info = dialogue.step(said)
        if not dialogue.over:
            tokens += form.continuation(info["messages"])
            chat += [Message("assistant", said), *info["messages"]]
            # The template quotes results as JSON strings for Llama, which is its own business.
            assert form.text(tokens) == rendered(dialect, task, chat)
    assert dialogue.success


def test_a_tokenizer_that_was_changed_is_not_taken_for_the_shipped_one(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.FOLDER, tmp_path / "copy", ignore=shutil.ignore_patterns("*.safetensors")))
    text = '{"name": "cd", "arguments": {}}<|end|>'
    shipped, copied = (ChatFormat.load(each, DIALECTS["qwen"]) for each in (tiny.FOLDER, folder))
    assert copied.tokens(text) == shipped.tokens(text)
    file = folder / "tokenizer.json"
    changed = json.loads(file.read_text("utf-8"))
    changed["model"]["merges"] = []
    file.write_text(json.dumps(changed), "utf-8")
    assert ChatFormat.load(folder, DIALECTS["qwen"]).tokens(text) != shipped.tokens(text)


def test_toolace_shows_tools_in_its_own_words() -> None:
    task = load_tasks()["multi_turn_base_0"]
    form = ChatFormat(chat_tokenizer("llama3_json"), DIALECTS["toolace"], name="toolace")
    _, info = Dialogue(task, dialect=DIALECTS["toolace"], interface=Interface(guidelines=("Be brief.",))).reset()
    text = form.text(form.opening(info["messages"], info["tools"]))
    assert DIALECTS["toolace"].render_tools(task.tools).strip() in text
    assert text.index("Be brief.") > text.index("Here is a list of functions")
    assert "Given the following functions, please respond with a JSON" not in text


def test_the_tiny_template_shows_compact_signatures_and_reveals(tiny_format: ChatFormat) -> None:
    cues = Interface(schema_cues=tuple(SchemaCue(kind) for kind in CueKind if kind is not CueKind.FORMAT))
    for task, interface in itertools.product(tasks(12, split="dev"), (Interface.plain(), cues)):
        dialogue = Dialogue(task, interface=interface)
        _, info = dialogue.reset()
        shown = "\n".join(map(compact_signature, info["tools"]))
        text = tiny_format.text(tiny_format.opening(info["messages"], info["tools"]))
        assert text == f"<|tools|>{shown}<|end|><|user|>{task.turns[0].user}<|end|><|assistant|>"
        while not dialogue.over:
            *_, info = dialogue.step("")
            for message in info["messages"]:
                said = (
                    f"<|tools|>{compact_signature(message.tools[0])}" if message.tools else f"<|user|>{message.content}"
                )
                assert tiny_format.text(tiny_format.continuation((message,))) == f"{said}<|end|><|assistant|>"


def test_tools_wrapped_as_openai_clients_do_look_the_same() -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.FOLDER)
    bare = [dict(tool.document) for tool in tasks(1, split="dev")[0].tools]
    wrapped = [{"type": "function", "function": document} for document in bare]
    chat = [{"role": "user", "content": "Hello."}]
    shown = [tokenizer.apply_chat_template(chat, tools=[*tools], tokenize=False) for tools in (bare, wrapped)]
    assert shown[0] == shown[1]


def test_a_value_has_the_same_tokens_in_a_request_and_in_a_call(tiny_format: ChatFormat) -> None:
    """Copying is then a matter of position alone."""
    for value in ("Iris", "red_notes.txt", "Fernhill", "the train is late tonight", "tiger123", "iris42", "BAKO"):
        (*alone, _) = tiny_format.completion(value)
        for around in ('Send it to {} "now".', '"name": "{}"', '["{}"]', '{{"a": "{}"}}'):
            tokens = tiny_format.completion(around.format(value))
            windows = {tokens[start : start + len(alone)] for start in range(len(tokens))}
            assert tuple(alone) in windows, (value, around)


PLAIN = "{% for m in messages %}{{ m.content }} {% endfor %}"
NO_TOOLS = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        *((None, "has no chat template"), (PLAIN, "does not end an answer with a special token")),
        (f"{NO_TOOLS}{{{{ m.content }}}}<|im_end|>{{% endfor %}}", r"refuses a message or a tool \(no tools here\)"),
        ("{% for m in messages %}{{ m.content", "refuses a message"),
    ],
)
def test_a_template_that_cannot_serve_is_told_in_one_sentence(template: str | None, sentence: str) -> None:
    tokenizer = copy.deepcopy(chat_tokenizer("qwen"))
    tokenizer.chat_template = template
    with pytest.raises(UserError, match=sentence):
        ChatFormat(tokenizer, DIALECTS["qwen"], name="it")


def test_named_templates_are_chosen_as_transformers_does_for_a_whole_dialogue(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(chat_tokenizer("qwen"))
    tokenizer.add_tokens(['say "it\'s"'])
    plain = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\nNAME {{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    # As some have it, this one takes tools for given.
    tools = '{% for tool in tools %}{{ tool.name }} say "it\'s" {% endfor %}' + plain.replace("NAME", "tool_use")
    tokenizer.chat_template = {"default": plain.replace("NAME", "default"), "tool_use": tools}
    asked, result = Message("user", 'Hello, say "it\'s".'), Message("tool", "done")
    (tool,) = load_tasks()["multi_turn_base_0"].tools[:1]
    forms = []
    for files in (True, False):
        folder = tmp_path / str(files)
        tokenizer.save_pretrained(folder, save_jinja_files=files)
        assert (folder / "additional_chat_templates" / "tool_use.jinja").is_file() is files
        assert {"tool_use", "default"} <= set(re.findall(r"\w+", template_of(folder)))
        forms.append(ChatFormat.load(folder, DIALECTS["qwen"]))
    for form, given in itertools.product(forms, ([tool], [])):
        texts = form.text(form.opening([asked], given)), form.text(form.continuation([result], tools=bool(given)))
        for text in texts:
            assert ("tool_use" in text, "default" in text) == (bool(given), not given), text
        assert 's ay "it' in texts[0], "a token that only the other template has is no text"


@pytest.mark.parametrize("dialect", ["qwen", "llama3_json", "toolace"])
def test_a_chat_without_tools_shows_no_word_of_them(dialect: str) -> None:
    form = ChatFormat(chat_tokenizer("qwen" if dialect == "qwen" else "llama3_json"), DIALECTS[dialect], name="it")
    asked = [Message("system", "Be brief."), Message("user", "Hello.")]
    for tokens in (form.opening(asked, []), form.chat(asked)):
        text = form.text(tokens).lower()
        assert not [word for word in ("function", "tool", "environment") if word in text]
        assert text.index("be brief.") < text.index("hello.")


def test_the_date_of_a_template_is_the_model_s(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(chat_tokenizer("llama3_json"))
    tokenizer.chat_template = tokenizer.chat_template.replace('"26 Jul 2024"', 'strftime_now("%d %b %Y")')
    tokenizer.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    for given, shown in (({}, "26 Jul 2024"), ({"seal_ray_date": "2026-11-30"}, "30 Nov 2026")):
        config.write_text(json.dumps(given), "utf-8")
        form = ChatFormat.load(tmp_path, DIALECTS["llama3_json"])
        assert f"Today Date: {shown}\n" in form.text(form.chat([Message("user", "Hello.")]))
    config.write_text('{"seal_ray_date": 5}', "utf-8")
    with pytest.raises(UserError, match=r"seal_ray_date of .* is no date such as 2024-07-26: 5"):
        ChatFormat.load(tmp_path, DIALECTS["llama3_json"])
