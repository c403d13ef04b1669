"""The message workspace: contacts have ids that must be looked up, and writing needs a login."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, SceneReading, SceneWithLogin, call, known, require
from envs.toolworld.words import Words


class Messages(SceneWithLogin):
    class_name = "MessageAPI"
    family = "messages"
    login_tool = "message_login"
    login_clause = "id"

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        count = size + 1
        start = words.identifier(3) % 700 + 100
        self._ids = {words.draw("person"): f"USR{start + place}" for place in range(count)}
        self._counter = start + count - 1
        self._me = self.rng.choice(list(self._ids.values()))
        self._logged_in = self.rng.random() < 0.6
        others = [number for number in self._ids.values() if number != self._me]
        self._inbox = [(self.rng.choice(others), words.draw("sentence")) for _ in range(size)]
        self._known: set[str] = set()
        self._added: str | None = None
        self._last: str | None = None
        """The id that was written to last."""

    def start_config(self) -> Mapping[str, JSON]:
        return {
            "user_count": self._counter,
            "user_map": dict(self._ids),
            "inbox": [{number: text} for number, text in self._inbox],
            "message_count": len(self._inbox),
            "current_user": self._me if self._logged_in else None,
        }

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.send, self.send, self.send_known, self.send_id, self.add, self.add_and_send, self.unsend),
            *(self.unsend_id, self.people, self.sent, self.search, self.stats, self.id_of, self.login),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (self.send, self.id_of, self.add, self.add_and_send, self.unsend, self.send_both)

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (self.send_known, self.send_added, self.unsend_last)

    def send(self) -> Beat:
        name, text = self._letter(brought_up=False)
        calls = (call("get_user_id", user=name), call("send_message", receiver_id=self._ids[name], message=text))
        return self.with_login("send", calls, {"name": name, "text": text}, lambda: self._send(name, text))

    def send_known(self) -> Beat:
        """To somebody whose id an earlier turn has brought up."""
        name, text = self._letter(brought_up=True)
        calls = (call("send_message", receiver_id=self._ids[name], message=text),)
        return self.with_login("send_known", calls, {"name": name, "text": text}, lambda: self._send(name, text))

    def send_id(self) -> Beat:
        name, text = self._letter()
        number = self._ids[name]
        calls = (call("send_message", receiver_id=number, message=text),)
        effect = partial(self._write, number, text)
        return self.with_login("send_id", calls, {"id": number, "text": text}, effect)

    def add(self) -> Beat:
        name = self.words.draw("person")
        return Beat("messages.add", (call("add_contact", user_name=name),), {"name": name}, lambda: self._add(name))

    def add_and_send(self) -> Beat:
        name, text, number = self.words.draw("person"), self.words.draw("sentence"), f"USR{self._counter + 1}"
        calls = (call("add_contact", user_name=name), call("send_message", receiver_id=number, message=text))

        def effect() -> None:
            self._add(name)
            self._send(name, text)

        return self.with_login("add_and_send", calls, {"name": name, "text": text}, effect)

    def unsend(self) -> Beat:
        written = {number for number, _ in self._inbox}
        names = [name for name, number in self._ids.items() if number in written and name not in self._known]
        require(names)
        name = self.words.pick(names)
        number = self._ids[name]
        calls = (call("get_user_id", user=name), call("delete_message", receiver_id=number))

        def effect() -> None:
            self._known.add(name)
            self._delete(number)

        return self.with_login("unsend", calls, {"name": name}, effect)

    def unsend_id(self) -> Beat:
        require(self._inbox)
        number, _ = self.rng.choice(self._inbox)
        calls = (call("delete_message", receiver_id=number),)
        return self.with_login("unsend_id", calls, {"id": number}, lambda: self._delete(number))

    def send_added(self) -> Beat:
        """To the contact that was added last."""
        name, text = known(self._added), self.words.draw("sentence")
        number = self._ids[name]
        calls = (call("send_message", receiver_id=number, message=text),)
        effect = partial(self._send, name, text)
        return self.with_login("send_added", calls, {"text": text}, effect, reads=(number,))

    def send_both(self) -> Beat:
        (name, text), other = self._letter(brought_up=False), known(self._someone(brought_up=False))
        require(name != other)
        calls = tuple(
            made
            for each in (name, other)
            for made in (
                call("get_user_id", user=each),
                call("send_message", receiver_id=self._ids[each], message=text),
            )
        )

        def effect() -> None:
            self._send(name, text)
            self._send(other, text)
            self._last = None  # there are two that were written to last

        slots = {"name": name, "other": other, "text": text}
        return self.with_login("send_both", calls, slots, effect, reads=(self._ids[name], self._ids[other]))

    def unsend_last(self) -> Beat:
        number = known(self._last)
        require(any(number == self._ids[name] for name in self._known))
        calls = (call("delete_message", receiver_id=number),)
        return self.with_login("unsend_last", calls, {}, lambda: self._delete(number), reads=(number,))

    def send_file(self, read: SceneReading) -> Beat:
        """The text of a file, to somebody."""
        name, text = known(self._someone(brought_up=False)), str(read.value)
        number = self._ids[name]
        calls = (*read.calls, call("get_user_id", user=name), call("send_message", receiver_id=number, message=text))
        effect = partial(self._send, name, text)
        return self.with_login("send_file", calls, {**read.slots, "name": name}, effect, reads=(text, number))

    def people(self) -> Beat:
        return Beat("messages.people", (call("list_users"),), {}, bulk=True)

    def sent(self) -> Beat:
        return self.with_login("sent", (call("view_messages_sent"),), {}, bulk=True)

    def search(self) -> Beat:
        require(self._inbox)
        word = self.words.pick(self.rng.choice(self._inbox)[1].split())
        return self.with_login("search", (call("search_messages", keyword=word),), {"word": word})

    def stats(self) -> Beat:
        return self.with_login("stats", (call("get_message_stats"),), {})

    def id_of(self) -> Beat:
        name = known(self._someone(brought_up=False))
        calls = (call("get_user_id", user=name),)
        return Beat("messages.id_of", calls, {"name": name}, lambda: self._known.add(name))

    def _letter(self, *, brought_up: bool | None = None) -> tuple[str, str]:
        """Somebody to write to, and what."""
        name, text = self._someone(brought_up=brought_up), self.words.draw("sentence")
        return known(name), text

    def _someone(self, *, brought_up: bool | None) -> str | None:
        """A contact other than the user; `brought_up` asks for one whose id an earlier turn has brought up, or not."""
        names = [
            name
            for name, number in self._ids.items()
            if number != self._me and (brought_up is None or (name in self._known) == brought_up)
        ]
        return self.words.pick(names) if names else None

    def _send(self, name: str, text: str) -> None:
        self._known.add(name)
        self._write(self._ids[name], text)

    def _write(self, number: str, text: str) -> None:
        self._inbox.append((number, text))
        self._last = number

    def _add(self, name: str) -> None:
        self._counter += 1
        self._ids[name] = f"USR{self._counter}"
        self._known.add(name)
        self._added = name

    def _delete(self, number: str) -> None:
        last = max(place for place, (receiver, _) in enumerate(self._inbox) if receiver == number)
        del self._inbox[last]
        self._last = None

    def credentials(self) -> Mapping[str, str]:
        return {"user_id": self._me}
