"""The file system's state: a few folders below a root, and files with a few lines each."""

from __future__ import annotations

from collections.abc import Mapping

from envs.task import JSON
from envs.toolworld.scene import Scene, SceneReading, call, known, require
from envs.toolworld.words import Words

Folder = dict[str, str]
"""File name → content."""


class Folders(Scene):
    """Where we are, and what is there."""

    class_name = "GorillaFileSystem"

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        self._name = words.draw("folder")
        self._root: Folder = {words.draw("file"): self._content() for _ in range(size)}
        folders = max(2, size // 2)
        self._folders = {words.draw("folder"): {words.draw("file"): self._content()} for _ in range(folders)}
        self._in: str | None = None
        self._found: tuple[str, str] | None = None
        """The folder and the name of the file that was looked for last."""
        self._listed: str | None = None
        """The folder that was listed when we went there last."""

    def start_config(self) -> Mapping[str, JSON]:
        tree = {
            name: {"type": "directory", "contents": {file: _file(text) for file, text in files.items()}}
            for name, files in self._folders.items()
        }
        tree |= {file: _file(text) for file, text in self._root.items()}
        return {"root": {self._name: {"type": "directory", "contents": tree}}}

    def line(self) -> SceneReading:
        """A file that has one line, shown."""
        file = self._any_file()
        text = self._here[file]
        require("\n" not in text)
        return SceneReading((call("cat", file_name=file),), {"file": file}, text)

    @property
    def _here(self) -> Folder:
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

    def _found_before(self) -> tuple[str, str]:
        """The folder and the name of the file that was found last, where we can go there."""
        folder, file = known(self._found)
        require(self._in is None and file in self._folders[folder])
        return folder, file

    def _only(self) -> tuple[str, str]:
        """A folder below the root that has one file, and that file."""
        folder, file = self._elsewhere()
        require(len(self._folders[folder]) == 1)
        return folder, file

    def _content(self) -> str:
        lines = 9 if self.rich else self.rng.randint(1, 3)
        return "\n".join(self.words.draw("sentence") for _ in range(lines))

    def _listed_file(self) -> str:
        """The only file where we are, where it was listed and is as it was."""
        require(self._in is not None and self._in == self._listed and len(self._here) == 1)
        return next(iter(self._here))

    def _list(self, folder: str) -> None:
        self._enter(folder)
        self._listed = folder

    def _enter(self, folder: str) -> None:
        self._in = folder

    def _leave(self) -> None:
        self._in = self._listed = None

    def _move(self, file: str, folder: str) -> None:
        self._folders.setdefault(folder, {})[file] = self._root.pop(file)


def _file(content: str) -> JSON:
    return {"type": "file", "content": content}
