"""The help desk: tickets with a title, a priority and a status; opening and listing them needs a login."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Ask, Scene, Values, require

_login = partial(Ask, login=True)
_CREATE = "create_ticket(title=title)"
_NEW = "title:title _id@next"
_LEVEL = "priority:integer(4,5)"
_MINE = "get_user_tickets()"
_CLOSE = "close_ticket(ticket_id=_id)"
_RESOLVE = "resolve_ticket(ticket_id=_id, resolution=text)"
_RAISE = "edit_ticket(ticket_id=_id, updates={'priority': priority})"


class Tickets(Scene):
    class_name = "TicketAPI"
    rows: ClassVar[Mapping[str, Ask]] = {
        "login": Ask("is_logged_out credentials", "ticket_login(username=username, password=password)", "log_in"),
        "logout": Ask("is_logged_in", "logout()", "log_out"),
        "create": _login("title:title", _CREATE, "create"),
        "create_urgent": _login(
            "title:title priority:integer(2,5)", "create_ticket(title=title, priority=priority)", "create"
        ),
        "read": Ask("any_ticket", "get_ticket(ticket_id=_id)"),
        "close": Ask("open_ticket", _CLOSE, "finish"),
        "close_created": Ask("_id<created any_open", _CLOSE, "finish"),
        "resolve": Ask("text:sentence open_ticket", _RESOLVE, "finish"),
        "resolve_created": Ask("_id<created text:sentence any_open", _RESOLVE, "finish"),
        "priority": Ask(f"any_ticket {_LEVEL}", _RAISE),
        "priority_created": Ask(f"_id<created {_LEVEL}", _RAISE),
        "retitle": Ask("any_ticket title:title", "edit_ticket(ticket_id=_id, updates={'title': title})"),
        "mine": _login("", _MINE, "note_listed", bulk=True),
        "create_and_close": _login(_NEW, f"{_CREATE}; {_CLOSE}", "create created=", reads="_id"),
        "create_and_resolve": _login(f"{_NEW} text:sentence", f"{_CREATE}; {_RESOLVE}", "create created=", reads="_id"),
        "create_and_raise": _login(f"{_NEW} {_LEVEL}", f"{_CREATE}; {_RAISE}", "create", reads="_id"),
        "close_first": _login("first is_open", f"{_MINE}; {_CLOSE}", "note_listed close_it", reads="_id", bulk=True),
        "raise_first": _login(f"first {_LEVEL}", f"{_MINE}; {_RAISE}", "note_listed", reads="_id", bulk=True),
        "read_created": Ask("_id<created", "get_ticket(ticket_id=_id)", reads="_id"),
        "close_listed": Ask("first is_listed is_open", _CLOSE, "close_it", reads="_id"),
        "raise_listed": Ask(f"is_listed first {_LEVEL}", _RAISE, reads="_id"),
        "resolve_with_file": Ask(
            "open_ticket", "_read; resolve_ticket(ticket_id=_id, resolution=_value)", "close_it", reads="_value"
        ),
    }
    requests = (
        "create create_urgent read close close_created resolve resolve_created priority priority_created retitle mine "
        "login logout"
    )
    referring_requests = (
        "create create_urgent mine create_and_close create_and_resolve create_and_raise close_first raise_first"
    )
    recalling_requests = "close_created resolve_created priority_created read_created close_listed raise_listed"

    def draw_start(self) -> None:
        self._who = {"username": self.words.draw("account"), "password": self.words.draw("password")}
        self.logged_in = self.rng.random() < 0.6
        start = self.words.identifier(3)
        count = max(2, self.size // 3 if self.rich else self.size)
        self._titles = {start + place: self.words.draw("title") for place in range(count)}
        self._open = list(self._titles)
        self._next = start + len(self._titles)
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
                "created_by": self._who["username"],
            }
            for number, title in self._titles.items()
        ]
        user = self._who["username"] if self.logged_in else None
        return {"ticket_queue": queue, "ticket_counter": self._next, "current_user": user}

    def credentials(self, _: Values) -> Values:
        return dict(self._who)

    # Draws.

    def any_ticket(self, _: Values) -> Values:
        number = self.rng.choice(list(self._titles))
        return {"ticket": number, "_id": number}

    def open_ticket(self, _: Values) -> Values:
        number = self.rng.choice(require(self._open))
        return {"ticket": number, "_id": number}

    def any_open(self, _: Values) -> None:
        require(self._open)

    def first(self, _: Values) -> Values:
        return {"_id": next(iter(self._titles))}

    def is_open(self, values: Values) -> None:
        require(values["_id"] in self._open)

    def is_listed(self, _: Values) -> None:
        require(self._listed)

    # Effects.

    def create(self, _: Values) -> None:
        self.facts["created"] = self._next
        self._next += 1

    def close_it(self, values: Values) -> None:
        self._open.remove(values["_id"])

    def finish(self, values: Values) -> None:
        number = values["_id"]
        if number in self._open:
            self._open.remove(number)
        if number == self.facts.get("created"):
            self.facts["created"] = None

    def note_listed(self, _: Values) -> None:
        self._listed = True
