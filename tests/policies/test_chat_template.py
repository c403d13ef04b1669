"""Chat templates that a stranger wrote: what they write is bounded, and they reach nothing."""

import copy
import resource
import time
from datetime import date
from typing import Any

import pytest

from envs.dialects import DIALECTS
from envs.dialogue import Message
from envs.errors import UserError
from policies.chat_template import render_chat
from policies.prompting import ChatFormat
from tests.policies.chat_models import chat_tokenizer

ORDINARY = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}"
HUNGRY = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "product": "{{ 'x' * 10**10 }}",
    "width": "{{ '%9999999999d' % 1 }}",
    "power": "{{ 9 ** (9 ** 9) % 7 }}",
    "filter": "{{ 'x'|center(10**10) }}",
    "doubling": "{% set n = namespace(x='x') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "macro": "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(99) }}",
}


@pytest.mark.parametrize("name", HUNGRY)
def test_a_template_that_takes_too_much_is_refused_in_a_sentence(name: str) -> None:
    tokenizer = copy.deepcopy(chat_tokenizer("qwen"))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for condition in ("true", "messages|length > 2")[: 2 if name == "filter" else 1]:  # at once, or in a later turn
        tokenizer.chat_template = f"{ORDINARY}{{% if {condition} %}}{HUNGRY[name]}{{% endif %}}"
        with pytest.raises(UserError, match=r"takes more than 1 s or 256 MB|refuses a message or a tool"):
            ChatFormat(tokenizer, DIALECTS["qwen"], name="it").continuation((Message("tool", "x"),))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kilobytes, in this process"
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("{% generation %}{{ x|tojson }}{% endgeneration %}{{ bos }}", {"x": {"ü": [1, None, "<&>"]}, "bos": "<s>"}),
        ("{{ x|tojson(indent=2) }}\n  {%- if x %} a {% endif %}\n b", {"x": {"b": 1.5, "a": "\ud83d"}}),
        ("{% for a in x %}{% if a == 2 %}{% continue %}{% endif %}{{ loop.index }}{% endfor %}", {"x": [1, 2, 3]}),
        ("{{ 'a\\tü' }}{{ x.y is defined }}{{ x|pprint }}{{ x['k']|trim|upper|wordwrap(3) }}", {"x": {"k": " abcd "}}),
        ("{{ strftime_now('%Y') }}{{ x }}", {"x": [True, None, {"a": "it's"}]}),
    ],
)
def test_the_text_is_that_of_transformers(template: str, values: dict[str, Any]) -> None:
    chat = [{"role": "user", "content": "Hello"}]
    official = chat_tokenizer("qwen").apply_chat_template(chat, chat_template=template, tokenize=False, **values)
    assert render_chat(template, values, date.today().isoformat()) == official


def test_a_template_knows_nothing_of_this_machine() -> None:
    for escape in ("{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__.os.environ }}", "{% include 'x' %}"):
        with pytest.raises(ValueError, match=r"unsafe|no loader"):
            render_chat(escape, {})
    with pytest.raises(ValueError, match="no tools here"):
        render_chat("{{ raise_exception('no tools here') }}", {})
