"""The file system: a few folders below a root, and files with a few lines each."""

from __future__ import annotations

from collections.abc import Mapping

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, Scene, call, require
from envs.toolworld.words import Words

_Folder = dict[str, str]
"""File name → content."""


class Files(Scene):
    class_name = "GorillaFileSystem"

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        self._name = words.draw("folder")
        self._root: _Folder = {words.draw("file"): self._content() for _ in range(size)}
        folders = max(2, size // 2)
        self._folders = {words.draw("folder"): {words.draw("file"): self._content()} for _ in range(folders)}
        self._in: str | None = None

    def start_config(self) -> Mapping[str, JSON]:
        tree = {
            name: {"type": "directory", "contents": {file: _file(text) for file, text in files.items()}}
            for name, files in self._folders.items()
        }
        tree |= {file: _file(text) for file, text in self._root.items()}
        return {"root": {self._name: {"type": "directory", "contents": tree}}}

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.show, self.open_in, self.lost, self.write, self.replace, self.new_folder, self.file_away),
            *(self.new_home, self.rename, self.copy, self.delete, self.delete_in, self.list_here, self.list_in),
            *(self.go_up, self.count, self.search, self.tail, self.where, self.sort),
        )

    def show(self) -> Beat:
        file = self._any_file()
        return Beat("files.show", (call("cat", file_name=file),), {"file": file}, bulk=True)

    def open_in(self) -> Beat:
        folder, file = self._elsewhere()
        calls = (call("cd", folder=folder), call("cat", file_name=file))
        return Beat("files.open_in", calls, {"file": file, "folder": folder}, lambda: self._enter(folder), bulk=True)

    def lost(self) -> Beat:
        folder, file = self._elsewhere()
        calls = (call("cd", folder=folder), call("cat", file_name=file))
        return Beat("files.lost", calls, {"file": file}, lambda: self._enter(folder), helpers=("find",), bulk=True)

    def write(self) -> Beat:
        file, text, here = self.words.draw("file"), self.words.draw("sentence"), self._here
        calls = (call("touch", file_name=file), call("echo", content=text, file_name=file))
        return Beat("files.write", calls, {"file": file, "text": text}, lambda: here.update({file: text}))

    def replace(self) -> Beat:
        file, text, here = self._any_file(), self.words.draw("sentence"), self._here
        calls = (call("echo", content=text, file_name=file),)
        return Beat("files.replace", calls, {"file": file, "text": text}, lambda: here.update({file: text}))

    def new_folder(self) -> Beat:
        require(self._in is None)
        folder = self.words.draw("folder")
        calls = (call("mkdir", dir_name=folder),)
        return Beat("files.new_folder", calls, {"folder": folder}, lambda: self._folders.update({folder: {}}))

    def file_away(self) -> Beat:
        require(self._in is None)
        file, folder = self._any_file(), self.words.pick(tuple(self._folders))
        calls = (call("mv", source=file, destination=folder),)
        return Beat("files.file_away", calls, {"file": file, "folder": folder}, lambda: self._move(file, folder))

    def new_home(self) -> Beat:
        require(self._in is None)
        file, folder = self._any_file(), self.words.draw("folder")
        calls = (call("mkdir", dir_name=folder), call("mv", source=file, destination=folder))
        return Beat("files.new_home", calls, {"file": file, "folder": folder}, lambda: self._move(file, folder))

    def rename(self) -> Beat:
        file, name, here = self._any_file(), self.words.draw("file"), self._here
        calls = (call("mv", source=file, destination=name),)
        return Beat("files.rename", calls, {"file": file, "name": name}, lambda: here.update({name: here.pop(file)}))

    def copy(self) -> Beat:
        file, name, here = self._any_file(), self.words.draw("file"), self._here
        calls = (call("cp", source=file, destination=name),)
        return Beat("files.copy", calls, {"file": file, "name": name}, lambda: here.update({name: here[file]}))

    def delete(self) -> Beat:
        file, here = self._any_file(), self._here
        return Beat("files.delete", (call("rm", file_name=file),), {"file": file}, lambda: _discard(here, file))

    def delete_in(self) -> Beat:
        folder, file = self._elsewhere()

        def effect() -> None:
            self._enter(folder)
            _discard(self._here, file)

        calls = (call("cd", folder=folder), call("rm", file_name=file))
        return Beat("files.delete_in", calls, {"file": file, "folder": folder}, effect)

    def list_here(self) -> Beat:
        return Beat("files.list_here", (call("ls"),), {}, bulk=self._in is None)

    def list_in(self) -> Beat:
        folder, _ = self._elsewhere()
        calls = (call("cd", folder=folder), call("ls"))
        return Beat("files.list_in", calls, {"folder": folder}, lambda: self._enter(folder))

    def go_up(self) -> Beat:
        require(self._in)
        return Beat("files.go_up", (call("cd", folder=".."), call("ls")), {}, self._leave, bulk=True)

    def count(self) -> Beat:
        file, unit = self._any_file(), self.words.pick(("words", "lines"))
        return Beat("files.count", (call("wc", file_name=file, mode=unit[0]),), {"file": file, "unit": unit})

    def search(self) -> Beat:
        file = self._any_file()
        word = self.words.pick(self._here[file].split())
        return Beat("files.search", (call("grep", file_name=file, pattern=word),), {"file": file, "word": word})

    def tail(self) -> Beat:
        file, lines = self._any_file(), self.rng.randint(2, 3)
        calls = (call("tail", file_name=file, lines=lines),)
        return Beat("files.tail", calls, {"file": file, "lines": str(lines)})

    def where(self) -> Beat:
        _, file = self._elsewhere()
        return Beat("files.where", (call("find", name=file),), {"file": file})

    def sort(self) -> Beat:
        file = self._any_file()
        return Beat("files.sort", (call("sort", file_name=file),), {"file": file}, bulk=True)

    @property
    def _here(self) -> _Folder:
        return self._root if self._in is None else self._folders[self._in]

    def _any_file(self) -> str:
        require(self._here)
        return self.words.pick(tuple(self._here))

    def _elsewhere(self) -> tuple[str, str]:
        """A folder below the root and a file in it, where we are at the root."""
        require(self._in is None)
        pairs = [(folder, file) for folder, files in self._folders.items() for file in files]
        require(pairs)
        return self.rng.choice(pairs)

    def _content(self) -> str:
        lines = 9 if self.rich else self.rng.randint(1, 3)
        return "\n".join(self.words.draw("sentence") for _ in range(lines))

    def _enter(self, folder: str) -> None:
        self._in = folder

    def _leave(self) -> None:
        self._in = None

    def _move(self, file: str, folder: str) -> None:
        self._folders.setdefault(folder, {})[file] = self._root.pop(file)


def _file(content: str) -> JSON:
    return {"type": "file", "content": content}


def _discard(files: _Folder, file: str) -> None:
    del files[file]
