"""An exam of our own: sums, and a story whose second question needs what the first one kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from envs.dialogue import Message
from envs.exams import Candidate, Conversation, Item, Mark
from envs.task import JSON


@dataclass(frozen=True)
class Sum:
    """`a` and `b` to be added; `after` a first sum that is kept, and added too."""

    id: str
    category: str
    group: str
    a: int
    b: int
    after: str | None = None
    counts: bool = True

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:
        more = "" if before is None else f" and {before}"
        said = await candidate.answer(Conversation((), (Message("user", f"Add {self.a} and {self.b}{more}"),)))
        wanted = self.a + self.b + (before or 0)
        return Mark(said.text.strip() == str(wanted), "" if said.text else "nothing", kept=self.a + self.b)


class Arithmetic:
    """`count` sums of each of two categories, and a story."""

    name = "arithmetic"
    about = "sums"

    class Settings(BaseModel, extra="forbid"):
        count: int = 6

    def __init__(self, settings: Settings) -> None:
        self.count = settings.count

    def items(self) -> Sequence[Item]:
        small = [Sum(f"small_{n}", "small", f"small_{n}", n, 1) for n in range(self.count)]
        large = [Sum(f"large_{n}", "large", f"large_{n % 2}", 100 * n, 1) for n in range(self.count)]
        story = [Sum("first", "story", "story", 2, 3, counts=False), Sum("then", "story", "story", 4, 5, after="first")]
        return [*small, *large, *story]

    def notes(self) -> Sequence[str]:
        return ("These are sums.",)

    def close(self) -> None:
        pass


class ArithmeticAgain(Arithmetic):
    """One that was derived without a name of its own."""
