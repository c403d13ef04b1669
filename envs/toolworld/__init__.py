"""Generated tasks on BFCL's simulators: small dialogues without end, from seeds, under the same verifier.

    from envs.toolworld import Difficulty, generate, tasks
    task = generate(7, split="train")
    many = tasks(1000, split="dev", difficulty=Difficulty(turns=(1, 2)))

**Splits are disjoint by construction.** A stable hash gives every name, title, message and number of the lexicon to one
split (`words.owner`), and a task draws its values from its own split only. Every start config holds such a value, and
the first request of every task names one that its calls carry too. So two splits never share a start config, a sequence
of user turns or a sequence of ground-truth calls. Paraphrases and simulators are shared: they are what is to be learnt.

**Every ground truth is executed before a task is given out** (`generation.py`): its calls succeed, and each of
them is needed: without it the turn fails.

Where to look: `words.py` lexicon, `phrases.toml` what users say, `referring.toml` what they say of earlier results,
`register.toml` how they say it at length, `scenes/` one simulator a file, `writing.py` how requests become turns,
`compose.py` how turns become tasks of a category, `showing.py` which tools are shown, `documents.py` what these look
like, `difficulty.py` codes, `generation.py` seeds and ids, `soundness.py` the check.
"""

from __future__ import annotations

from envs.toolworld.difficulty import LONG, Difficulty
from envs.toolworld.generation import generate, tasks

__all__ = ["LONG", "Difficulty", "generate", "tasks"]
