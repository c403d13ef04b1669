"""The file system: what can be asked of files and folders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.toolworld.scene import Beat, Intent, SceneReading, call, require
from envs.toolworld.scenes.folders import Folder, Folders


class Files(Folders):
    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.show, self.open_in, self.lost, self.write, self.replace, self.new_folder, self.file_away),
            *(self.new_home, self.rename, self.copy, self.delete, self.delete_in, self.list_here, self.list_in),
            *(self.go_up, self.count, self.search, self.tail, self.where, self.sort),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (
            *(self.where, self.list_in, self.find_and_open, self.open_only, self.rename_only, self.keep_text),
            *(self.keep_line, self.keep_count),
        )

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (self.open_found, self.delete_found, self.open_listed, self.delete_listed, self.rename_listed)

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
        return self._delete_there("delete_in", folder, file, {"file": file, "folder": folder})

    def list_here(self) -> Beat:
        return Beat("files.list_here", (call("ls"),), {}, bulk=self._in is None)

    def list_in(self) -> Beat:
        folder, _ = self._elsewhere()
        calls = (call("cd", folder=folder), call("ls"))
        return Beat("files.list_in", calls, {"folder": folder}, lambda: self._list(folder))

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
        folder, file = self._elsewhere()

        def effect() -> None:
            self._found = folder, file

        return Beat("files.where", (call("find", name=file),), {"file": file}, effect)

    def sort(self) -> Beat:
        file = self._any_file()
        return Beat("files.sort", (call("sort", file_name=file),), {"file": file}, bulk=True)

    def open_found(self) -> Beat:
        folder, file = self._found_before()
        calls = (call("cd", folder=folder), call("cat", file_name=file))
        effect = partial(self._enter, folder)
        return Beat("files.open_found", calls, {"file": file}, effect, bulk=True, reads=(folder,))

    def delete_found(self) -> Beat:
        folder, file = self._found_before()
        return self._delete_there("delete_found", folder, file, {"file": file}, reads=(folder,))

    def _delete_there(
        self, intent: str, folder: str, file: str, slots: Mapping[str, str], *, reads: tuple[str, ...] = ()
    ) -> Beat:
        """Deleting a file of another folder, by going there."""

        def effect() -> None:
            self._enter(folder)
            _discard(self._here, file)

        calls = (call("cd", folder=folder), call("rm", file_name=file))
        return Beat(f"files.{intent}", calls, slots, effect, reads=reads)

    def find_and_open(self) -> Beat:
        folder, file = self._elsewhere()
        calls = (call("find", name=file), call("cd", folder=folder), call("cat", file_name=file))
        effect = partial(self._enter, folder)
        return Beat("files.find_and_open", calls, {"file": file}, effect, bulk=True, reads=(folder,))

    def open_only(self) -> Beat:
        folder, file = self._only()
        calls = (call("cd", folder=folder), call("ls"), call("cat", file_name=file))
        effect = partial(self._enter, folder)
        return Beat("files.open_only", calls, {"folder": folder}, effect, bulk=True, reads=(file,))

    def rename_only(self) -> Beat:
        (folder, file), name = self._only(), self.words.draw("file")

        def effect() -> None:
            self._enter(folder)
            _rename(self._here, file, name)

        calls = (call("cd", folder=folder), call("ls"), call("mv", source=file, destination=name))
        return Beat("files.rename_only", calls, {"folder": folder, "name": name}, effect, reads=(file,))

    def open_listed(self) -> Beat:
        file = self._listed_file()
        return Beat("files.open_listed", (call("cat", file_name=file),), {}, bulk=True, reads=(file,))

    def delete_listed(self) -> Beat:
        file, here = self._listed_file(), self._here
        calls = (call("rm", file_name=file),)
        return Beat("files.delete_listed", calls, {}, partial(_discard, here, file), reads=(file,))

    def rename_listed(self) -> Beat:
        file, name, here = self._listed_file(), self.words.draw("file"), self._here
        calls = (call("mv", source=file, destination=name),)
        effect = partial(_rename, here, file, name)
        return Beat("files.rename_listed", calls, {"name": name}, effect, reads=(file,))

    def keep_text(self) -> Beat:
        """A file's text, written into a new one."""
        return self.keep("keep_text", self.line())

    def keep_count(self) -> Beat:
        """The number of a file's words, written into a new one."""
        file = self._any_file()
        counted = call("wc", file_name=file, mode="w")
        return self.keep("keep_count", SceneReading((counted,), {"file": file}, str(len(self._here[file].split()))))

    def keep(self, intent: str, read: SceneReading) -> Beat:
        """What is read, written into a new file."""
        name, text, here = self.words.draw("file"), str(read.value), self._here
        calls = (*read.calls, call("touch", file_name=name), call("echo", content=text, file_name=name))

        def effect() -> None:
            read.effect()
            here[name] = text

        return Beat(f"files.{intent}", calls, {**read.slots, "name": name}, effect, reads=(text,))

    def keep_line(self) -> Beat:
        """The last line of a file, written over another one."""
        file, other, here = self._any_file(), self._any_file(), self._here
        line = here[file].splitlines()[-1]
        require(file != other and here[other] != line)
        calls = (call("tail", file_name=file, lines=1), call("echo", content=line, file_name=other))
        slots = {"file": file, "name": other}
        return Beat("files.keep_line", calls, slots, partial(here.update, {other: line}), reads=(line,))


def _discard(files: Folder, file: str) -> None:
    del files[file]


def _rename(files: Folder, file: str, name: str) -> None:
    files[name] = files.pop(file)
