"""Generated tasks on BFCL's simulators: small endless dialogues, from seeds, under the same verifier.

    from envs.toolworld import Difficulty, generate, tasks
    task = generate(7, split="train")
    many = tasks(1000, split="dev", difficulty=Difficulty(turns=(1, 2)))

**Splits are disjoint by construction.** A stable hash assigns every name, title, message and number of the lexicon to
one split (`words.owner`), and a task draws its values from its own split only. Every start config contains such a
value, and the first request of every task names one that its calls contain too. So two splits never share a start
config, a sequence of user turns or a sequence of ground-truth calls. They do share paraphrases and simulators.

**Every ground truth is executed before a task is returned** (`compose.fault_of`): its calls succeed, and without any
one of them the turn fails.

`words.py` is the lexicon, `scenes/` has one simulator per file, `phrases.py` puts requests into words, `writing.py`
joins them to turns, `compose.py` makes and checks tasks, `shown_tools.py` shortens and selects their
tools, `difficulty.py` has codes, `generation.py` seeds and ids.
"""

from envs.toolworld.difficulty import LONG, Difficulty
from envs.toolworld.generation import generate, tasks

__all__ = ["LONG", "Difficulty", "generate", "tasks"]
