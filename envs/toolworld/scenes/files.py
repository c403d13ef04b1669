"""The file system: a few folders below a root, and files with a few lines each."""

from collections.abc import Mapping
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Ask, Scene, Values, known, require

Folder = dict[str, str]
"""File name → content."""
_OPEN = "cd(folder=folder); cat(file_name=file)"
_KEEP = "touch(file_name=name); echo(content=text, file_name=name)"


class Files(Scene):
    class_name = "GorillaFileSystem"
    rows: ClassVar[Mapping[str, Ask]] = {
        "show": Ask("any_file", "cat(file_name=file)", bulk=True),
        "open_in": Ask("elsewhere", _OPEN, "enter", bulk=True),
        "lost": Ask("elsewhere", _OPEN, "enter", hides="folder", helpers=("find",), bulk=True),
        "write": Ask("file:file text:sentence", "touch(file_name=file); echo(content=text, file_name=file)", "put"),
        "replace": Ask("any_file text:sentence", "echo(content=text, file_name=file)", "put"),
        "new_folder": Ask("at_root folder:folder", "mkdir(dir_name=folder)", "add_folder"),
        "file_away": Ask("at_root any_file any_folder", "mv(source=file, destination=folder)", "move"),
        "new_home": Ask(
            "at_root any_file folder:folder", "mkdir(dir_name=folder); mv(source=file, destination=folder)", "move"
        ),
        "rename": Ask("any_file name:file", "mv(source=file, destination=name)", "change_name"),
        "copy": Ask("any_file name:file", "cp(source=file, destination=name)", "duplicate"),
        "delete": Ask("any_file", "rm(file_name=file)", "discard"),
        "delete_in": Ask("elsewhere", "cd(folder=folder); rm(file_name=file)", "enter discard"),
        "list_here": Ask("bulk_at_root", "ls()"),
        "list_in": Ask("elsewhere", "cd(folder=folder); ls()", "enter listed=folder", hides="file"),
        "go_up": Ask("below_root", "cd(folder='..'); ls()", "leave", bulk=True),
        "count": Ask("any_file any_unit", "wc(file_name=file, mode=_mode)"),
        "search": Ask("any_file any_word", "grep(file_name=file, pattern=word)"),
        "tail": Ask("any_file lines:integer(2,3)", "tail(file_name=file, lines=lines)"),
        "where": Ask("elsewhere", "find(name=file)", "note_found", hides="folder"),
        "sort": Ask("any_file", "sort(file_name=file)", bulk=True),
        "find_and_open": Ask("elsewhere", f"find(name=file); {_OPEN}", "enter", reads="folder", bulk=True),
        "open_only": Ask("only_file", "cd(folder=folder); ls(); cat(file_name=file)", "enter", reads="file", bulk=True),
        "rename_only": Ask(
            "only_file name:file",
            "cd(folder=folder); ls(); mv(source=file, destination=name)",
            "enter change_name",
            reads="file",
        ),
        "line": Ask("any_file one_line", "cat(file_name=file)", reads="text"),
        "keep_text": Ask("any_file one_line name:file", f"cat(file_name=file); {_KEEP}", "keep", reads="text"),
        "keep_count": Ask("word_count name:file", f"wc(file_name=file, mode='w'); {_KEEP}", "keep", reads="text"),
        "keep_line": Ask(
            "last_line", "tail(file_name=file, lines=1); echo(content=text, file_name=name)", "keep", reads="text"
        ),
        "keep_price": Ask("name:file value_as_text", f"_read; {_KEEP}", "keep", reads="text"),
        "open_found": Ask("found_before", _OPEN, "enter", reads="folder", bulk=True),
        "delete_found": Ask("found_before", "cd(folder=folder); rm(file_name=file)", "enter discard", reads="folder"),
        "open_listed": Ask("listed_file", "cat(file_name=file)", reads="file", bulk=True),
        "delete_listed": Ask("listed_file", "rm(file_name=file)", "discard", reads="file"),
        "rename_listed": Ask("listed_file name:file", "mv(source=file, destination=name)", "change_name", reads="file"),
    }
    requests = (
        "show open_in lost write replace new_folder file_away new_home rename copy delete delete_in list_here list_in "
        "go_up count search tail where sort"
    )
    referring_requests = "where list_in find_and_open open_only rename_only keep_text keep_line keep_count"
    recalling_requests = "open_found delete_found open_listed delete_listed rename_listed"

    def draw_start(self) -> None:
        self._name = self.words.draw("folder")
        self._root: Folder = {self.words.draw("file"): self._content() for _ in range(self.size)}
        folders = max(2, self.size // 2)
        self._folders = {self.words.draw("folder"): {self.words.draw("file"): self._content()} for _ in range(folders)}
        self._in: str | None = None
        """The current folder below the root; None for the root."""
        self._found: Values | None = None

    def start_config(self) -> Mapping[str, JSON]:
        tree = {name: {"type": "directory", "contents": _entries(files)} for name, files in self._folders.items()}
        return {"root": {self._name: {"type": "directory", "contents": {**tree, **_entries(self._root)}}}}

    def _content(self) -> str:
        lines = 9 if self.rich else self.rng.randint(1, 3)
        return "\n".join(self.words.draw("sentence") for _ in range(lines))

    @property
    def _here(self) -> Folder:
        return self._root if self._in is None else self._folders[self._in]

    # Draws.

    def any_file(self, _: Values) -> Values:
        return {"file": self.words.pick(tuple(require(self._here)))}

    def any_folder(self, _: Values) -> Values:
        return {"folder": self.words.pick(tuple(self._folders))}

    def any_unit(self, _: Values) -> Values:
        unit = self.words.pick(("words", "lines"))
        return {"unit": unit, "_mode": unit[0]}

    def any_word(self, values: Values) -> Values:
        return {"word": self.words.pick(self._here[values["file"]].split())}

    def at_root(self, _: Values) -> None:
        require(self._in is None)

    def below_root(self, _: Values) -> None:
        require(self._in)

    def bulk_at_root(self, _: Values) -> Values:
        return {"_bulk": self._in is None}

    def elsewhere(self, values: Values) -> Values:
        """A folder below the root and a file in it, if the current folder is the root."""
        self.at_root(values)
        pairs = [(folder, file) for folder, files in self._folders.items() for file in files]
        return dict(zip(("folder", "file"), self.rng.choice(require(pairs)), strict=True))

    def only_file(self, values: Values) -> Values:
        """A folder below the root that has one file, and that file."""
        place = self.elsewhere(values)
        require(len(self._folders[place["folder"]]) == 1)
        return place

    def one_line(self, values: Values) -> Values:
        """The text of the file, which must be one line."""
        text = self._here[values["file"]]
        require("\n" not in text)
        return {"text": text}

    def word_count(self, values: Values) -> Values:
        place = self.any_file(values)
        return {**place, "text": str(len(self._here[place["file"]].split()))}

    def last_line(self, values: Values) -> Values:
        """A file, its last line, and another file that the line is not the content of."""
        file, other = self.any_file(values)["file"], self.any_file(values)["file"]
        line = self._here[file].splitlines()[-1]
        require(file != other and self._here[other] != line)
        return {"file": file, "name": other, "text": line}

    def value_as_text(self, values: Values) -> Values:
        return {"text": str(values["_value"])}

    def found_before(self, values: Values) -> Values:
        """The folder and the file that were searched for last, if the folder can be entered now."""
        place = known(self._found)
        self.at_root(values)
        require(place["file"] in self._folders[place["folder"]])
        return place

    def listed_file(self, _: Values) -> Values:
        """The only file of the current folder, if the folder was listed and has not changed."""
        require(self._in is not None and self._in == self.facts.get("listed") and len(self._here) == 1)
        return {"file": next(iter(self._here))}

    # Effects.

    def enter(self, values: Values) -> None:
        self._in = values["folder"]

    def leave(self, _: Values) -> None:
        self._in = self.facts["listed"] = None

    def note_found(self, values: Values) -> None:
        self._found = {"folder": values["folder"], "file": values["file"]}

    def put(self, values: Values) -> None:
        self._here[values["file"]] = values["text"]

    def keep(self, values: Values) -> None:
        self._here[values["name"]] = values["text"]

    def duplicate(self, values: Values) -> None:
        self._here[values["name"]] = self._here[values["file"]]

    def change_name(self, values: Values) -> None:
        self._here[values["name"]] = self._here.pop(values["file"])

    def discard(self, values: Values) -> None:
        del self._here[values["file"]]

    def add_folder(self, values: Values) -> None:
        self._folders[values["folder"]] = {}

    def move(self, values: Values) -> None:
        self._folders.setdefault(values["folder"], {})[values["file"]] = self._root.pop(values["file"])


def _entries(files: Folder) -> dict[str, JSON]:
    return {name: {"type": "file", "content": content} for name, content in files.items()}
