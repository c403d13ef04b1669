"""The message workspace: contacts have ids that must be looked up, and writing needs a login."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Ask, Scene, Values, known, require

_login = partial(Ask, login=True)
_ADD = "add_contact(user_name=name)"
_SEND = "send_message(receiver_id=_id, message=text)"


class Messages(Scene):
    class_name = "MessageAPI"
    login_clause = "id"
    rows: ClassVar[Mapping[str, Ask]] = {
        "login": Ask("is_logged_out credentials", "message_login(user_id=user_id)", "log_in"),
        "send": _login("letter_to_stranger", f"get_user_id(user=name); {_SEND}", "write note_known"),
        "send_known": _login("letter_to_acquaintance", _SEND, "write note_known"),
        "send_id": _login("letter_to_id", "send_message(receiver_id=id, message=text)", "write"),
        "add": Ask("name:person new_id", _ADD, "add"),
        "add_and_send": _login("name:person text:sentence new_id", f"{_ADD}; {_SEND}", "add write"),
        "unsend": _login(
            "unknown_receiver", "get_user_id(user=name); delete_message(receiver_id=_id)", "note_known delete"
        ),
        "unsend_id": _login("any_message", "delete_message(receiver_id=id)", "delete"),
        "people": Ask("", "list_users()", bulk=True),
        "sent": _login("", "view_messages_sent()", bulk=True),
        "search": _login("any_word", "search_messages(keyword=word)"),
        "stats": _login("", "get_message_stats()"),
        "id_of": Ask("stranger", "get_user_id(user=name)", "note_known"),
        "send_added": _login("added text:sentence", _SEND, "write", reads="_id", hides="name"),
        "send_both": _login(
            "letter_to_stranger other_stranger",
            f"get_user_id(user=name); {_SEND}; get_user_id(user=other); send_message(receiver_id=_other, message=text)",
            "write note_known write_other",
            reads="_id _other",
        ),
        "unsend_last": _login("last_receiver", "delete_message(receiver_id=_id)", "delete", reads="_id"),
        "send_file": _login(
            "stranger",
            "_read; get_user_id(user=name); send_message(receiver_id=_id, message=_value)",
            "write_value note_known",
            reads="_value _id",
        ),
    }
    requests = "send send send_known send_id add add_and_send unsend unsend_id people sent search stats id_of login"
    referring_requests = "send id_of add add_and_send unsend send_both"
    recalling_requests = "send_known send_added unsend_last"

    def draw_start(self) -> None:
        count = self.size + 1
        start = self.words.identifier(3) % 700 + 100
        self._ids = {self.words.draw("person"): f"USR{start + place}" for place in range(count)}
        self._counter = start + count - 1
        self._me = self.rng.choice(list(self._ids.values()))
        self.logged_in = self.rng.random() < 0.6
        others = [number for number in self._ids.values() if number != self._me]
        self._inbox = [(self.rng.choice(others), self.words.draw("sentence")) for _ in range(self.size)]
        self._known: set[str] = set()
        """Names whose id a call has returned."""
        self._added: str | None = None
        self._last: str | None = None
        """The id that was written to last."""

    def start_config(self) -> Mapping[str, JSON]:
        return {
            "user_count": self._counter,
            "user_map": dict(self._ids),
            "inbox": [{number: text} for number, text in self._inbox],
            "message_count": len(self._inbox),
            "current_user": self._me if self.logged_in else None,
        }

    def credentials(self, _: Values) -> Values:
        return {"user_id": self._me}

    # Draws.

    def stranger(self, _: Values) -> Values:
        """A contact whose id has not been looked up."""
        return self._any(self._contacts(known=False))

    def letter_to_stranger(self, _: Values) -> Values:
        return self._letter(self._contacts(known=False))

    def letter_to_acquaintance(self, _: Values) -> Values:
        return self._letter(self._contacts(known=True))

    def letter_to_id(self, _: Values) -> Values:
        letter = self._letter(self._contacts(known=None))
        return {"id": letter["_id"], "text": letter["text"]}

    def other_stranger(self, values: Values) -> Values:
        other = self.stranger(values)
        require(values["name"] != other["name"])
        return {"other": other["name"], "_other": other["_id"]}

    def new_id(self, _: Values) -> Values:
        return {"_id": f"USR{self._counter + 1}"}

    def unknown_receiver(self, _: Values) -> Values:
        written = {number for number, _ in self._inbox}
        return self._any([name for name, number in self._ids.items() if number in written and name not in self._known])

    def any_message(self, _: Values) -> Values:
        return {"id": self.rng.choice(require(self._inbox))[0]}

    def any_word(self, _: Values) -> Values:
        return {"word": self.words.pick(self.rng.choice(require(self._inbox))[1].split())}

    def added(self, _: Values) -> Values:
        name = known(self._added)
        return {"name": name, "_id": self._ids[name]}

    def last_receiver(self, _: Values) -> Values:
        number = known(self._last)
        require(any(number == self._ids[name] for name in self._known))
        return {"_id": number}

    def _contacts(self, *, known: bool | None) -> list[str]:
        """Contacts other than the user; `known` requires that their ids have been looked up, or have not."""
        return [
            name
            for name, number in self._ids.items()
            if number != self._me and (known is None or (name in self._known) == known)
        ]

    def _any(self, names: list[str]) -> Values:
        name = self.words.pick(require(names))
        return {"name": name, "_id": self._ids[name]}

    def _letter(self, names: list[str]) -> Values:
        """Somebody to write to, and what; the text is drawn even if there is nobody."""
        receiver = self._any(names) if names else {}
        text = self.words.draw("sentence")
        require(names)
        return {**receiver, "text": text}

    # Effects.

    def write(self, values: Values) -> None:
        self._write(values.get("_id") or values["id"], values["text"])

    def write_value(self, values: Values) -> None:
        self._write(values["_id"], values["_value"])

    def write_other(self, values: Values) -> None:
        self._write(values["_other"], values["text"])
        self._known.add(values["other"])
        self._last = None  # "the last receiver" would be ambiguous

    def note_known(self, values: Values) -> None:
        self._known.add(values["name"])

    def add(self, values: Values) -> None:
        self._counter += 1
        self._ids[values["name"]] = values["_id"]
        self._added = values["name"]
        self.note_known(values)

    def delete(self, values: Values) -> None:
        number = values.get("_id") or values["id"]
        last = max(place for place, (receiver, _) in enumerate(self._inbox) if receiver == number)
        del self._inbox[last]
        self._last = None

    def _write(self, number: str, text: str) -> None:
        self._inbox.append((number, text))
        self._last = number
