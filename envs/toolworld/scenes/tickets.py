"""The help desk: tickets with a title, a priority and a status; opening and listing them needs a login."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, SceneReading, SceneWithLogin, call, known, require
from envs.toolworld.words import Words


class Tickets(SceneWithLogin):
    class_name = "TicketAPI"
    family = "tickets"
    login_tool = "ticket_login"

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        self._user, self._password = words.draw("account"), words.draw("password")
        self._logged_in = self.rng.random() < 0.6
        start = words.identifier(3)
        self._titles = {start + place: words.draw("title") for place in range(max(2, size // 3 if rich else size))}
        self._open = list(self._titles)
        self._next = start + len(self._titles)
        self._created: int | None = None
        self._listed = False
        """Whether the tickets have been listed."""

    def start_config(self) -> Mapping[str, JSON]:
        queue = [
            {
                "id": number,
                "title": title,
                "description": self.words.draw("sentence") if self.rich else "",
                "status": "Open",
                "priority": self.rng.randint(1, 3),
                "created_by": self._user,
            }
            for number, title in self._titles.items()
        ]
        user = self._user if self._logged_in else None
        return {"ticket_queue": queue, "ticket_counter": self._next, "current_user": user}

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.create, self.create_urgent, self.read, self.close, self.close_created, self.resolve),
            *(self.resolve_created, self.priority, self.priority_created, self.retitle, self.mine),
            *(self.login, self.logout),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (
            *(self.create, self.create_urgent, self.mine, self.create_and_close, self.create_and_resolve),
            *(self.create_and_raise, self.close_first, self.raise_first),
        )

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (
            *(self.close_created, self.resolve_created, self.priority_created, self.read_created),
            *(self.close_listed, self.raise_listed),
        )

    def create(self) -> Beat:
        title = self.words.draw("title")
        return self.with_login("create", (call("create_ticket", title=title),), {"title": title}, self._create)

    def create_urgent(self) -> Beat:
        title, priority = self.words.draw("title"), self.rng.randint(2, 5)
        wanted = call("create_ticket", title=title, priority=priority)
        return self.with_login("create_urgent", (wanted,), {"title": title, "priority": str(priority)}, self._create)

    def read(self) -> Beat:
        number = self.rng.choice(list(self._titles))
        return Beat("tickets.read", (call("get_ticket", ticket_id=number),), {"ticket": str(number)})

    def close(self) -> Beat:
        return self._finish("close", None)

    def close_created(self) -> Beat:
        return self._finish("close_created", known(self._created))

    def resolve(self) -> Beat:
        return self._finish("resolve", None, self.words.draw("sentence"))

    def resolve_created(self) -> Beat:
        return self._finish("resolve_created", known(self._created), self.words.draw("sentence"))

    def priority(self) -> Beat:
        return self._edit("priority", self.rng.choice(list(self._titles)), named=True)

    def priority_created(self) -> Beat:
        return self._edit("priority_created", known(self._created), named=False)

    def retitle(self) -> Beat:
        number, title = self.rng.choice(list(self._titles)), self.words.draw("title")
        calls = (call("edit_ticket", ticket_id=number, updates={"title": title}),)
        return Beat("tickets.retitle", calls, {"ticket": str(number), "title": title})

    def create_and_close(self) -> Beat:
        title, number = self.words.draw("title"), self._next
        calls = (call("create_ticket", title=title), call("close_ticket", ticket_id=number))
        return self.with_login("create_and_close", calls, {"title": title}, self._pass, reads=(str(number),))

    def create_and_resolve(self) -> Beat:
        title, text, number = self.words.draw("title"), self.words.draw("sentence"), self._next
        calls = (call("create_ticket", title=title), call("resolve_ticket", ticket_id=number, resolution=text))
        slots = {"title": title, "text": text}
        return self.with_login("create_and_resolve", calls, slots, self._pass, reads=(str(number),))

    def create_and_raise(self) -> Beat:
        title, number, priority = self.words.draw("title"), self._next, self.rng.randint(4, 5)
        raised = call("edit_ticket", ticket_id=number, updates={"priority": priority})
        calls = (call("create_ticket", title=title), raised)
        slots = {"title": title, "priority": str(priority)}
        return self.with_login("create_and_raise", calls, slots, self._create, reads=(str(number),))

    def read_created(self) -> Beat:
        number = known(self._created)
        calls = (call("get_ticket", ticket_id=number),)
        return Beat("tickets.read_created", calls, {}, reads=(str(number),))

    def close_first(self) -> Beat:
        number = next(iter(self._titles))
        require(number in self._open)
        calls = (call("get_user_tickets"), call("close_ticket", ticket_id=number))

        def effect() -> None:
            self._list()
            self._open.remove(number)

        return self.with_login("close_first", calls, {}, effect, bulk=True, reads=(str(number),))

    def raise_first(self) -> Beat:
        number, priority = next(iter(self._titles)), self.rng.randint(4, 5)
        calls = (call("get_user_tickets"), call("edit_ticket", ticket_id=number, updates={"priority": priority}))
        slots = {"priority": str(priority)}
        return self.with_login("raise_first", calls, slots, self._list, bulk=True, reads=(str(number),))

    def close_listed(self) -> Beat:
        """The first ticket of the list that was shown last."""
        number = next(iter(self._titles))
        require(self._listed and number in self._open)
        calls = (call("close_ticket", ticket_id=number),)
        return Beat("tickets.close_listed", calls, {}, partial(self._open.remove, number), reads=(str(number),))

    def raise_listed(self) -> Beat:
        require(self._listed)
        number, priority = next(iter(self._titles)), self.rng.randint(4, 5)
        calls = (call("edit_ticket", ticket_id=number, updates={"priority": priority}),)
        return Beat("tickets.raise_listed", calls, {"priority": str(priority)}, reads=(str(number),))

    def resolve_with_file(self, read: SceneReading) -> Beat:
        """A ticket resolved with the text of a file."""
        require(self._open)
        number, text = self.rng.choice(self._open), str(read.value)
        calls = (*read.calls, call("resolve_ticket", ticket_id=number, resolution=text))
        slots = {**read.slots, "ticket": str(number)}
        return Beat("tickets.resolve_with_file", calls, slots, partial(self._open.remove, number), reads=(text,))

    def mine(self) -> Beat:
        return self.with_login("mine", (call("get_user_tickets"),), {}, self._list, bulk=True)

    def logout(self) -> Beat:
        require(self._logged_in)
        return Beat("tickets.logout", (call("logout"),), {}, self._log_out)

    def _finish(self, intent: str, number: int | None, resolution: str | None = None) -> Beat:
        """Closing or resolving a ticket: the one of that number, or any open one, which is then named."""
        require(self._open)
        chosen = self.rng.choice(self._open) if number is None else number
        slots = {} if number is not None else {"ticket": str(chosen)}
        if resolution is None:
            done = call("close_ticket", ticket_id=chosen)
        else:
            done = call("resolve_ticket", ticket_id=chosen, resolution=resolution)
            slots["text"] = resolution

        def effect() -> None:
            if chosen in self._open:
                self._open.remove(chosen)
            if chosen == self._created:
                self._created = None

        return Beat(f"tickets.{intent}", (done,), slots, effect)

    def _edit(self, intent: str, number: int, *, named: bool) -> Beat:
        priority = self.rng.randint(4, 5)
        slots = {"priority": str(priority)} | ({"ticket": str(number)} if named else {})
        calls = (call("edit_ticket", ticket_id=number, updates={"priority": priority}),)
        return Beat(f"tickets.{intent}", calls, slots)

    def _list(self) -> None:
        self._listed = True

    def _pass(self) -> None:
        """A ticket was created and is done with."""
        self._next += 1
        self._created = None

    def _create(self) -> None:
        self._created = self._next
        self._next += 1
