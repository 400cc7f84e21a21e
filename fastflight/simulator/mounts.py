"""File systems that board code mounts: objects with MicroPython's VFS methods, such as those of a remote folder.

As in MicroPython, a path below a mount point goes to the object of that mount. A relative path goes to the object of
the working directory, as it was given. `import` asks for the state of a file, opens it, and reads it in pieces of the
size that the file's `ioctl` names, up to the first read that is not full.
"""

from __future__ import annotations

from typing import Any

from fastflight.simulator.files import FileSystem
from fastflight.simulator.oserror import ERRNO, BoardOSError

# `MP_STREAM_GET_BUFFER_SIZE`, and the sizes that MicroPython's reader of modules allows.
GET_BUFFER_SIZE = 11
LEAST_BUFFER, MOST_BUFFER = 24, 255


class MountingFiles(FileSystem):
    """The board's own files at `/`, and what board code has mounted elsewhere."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mounts: dict[str, Any] = {}

    def reset(self) -> None:
        """Forget what was mounted, and go to the root."""
        self._mounts.clear()
        self.folder = "/"

    def mount(self, *arguments: Any, **options: Any) -> list[tuple[object, str]] | None:
        """`os.mount`: without arguments, return what is mounted; else mount an object at a path."""
        if not arguments:
            return [("flash", "/"), *((thing, path) for path, thing in self._mounts.items())]
        thing, path = arguments[:2]
        point = "/" + path.strip("/")
        if point in self._mounts or point == "/":
            raise BoardOSError(ERRNO["EPERM"])
        thing.mount(bool(options.get("readonly")), False)
        self._mounts[point] = thing
        return None

    def unmount(self, what: Any) -> None:
        """`os.umount`: of a mount point or of the object that is mounted."""
        for point, thing in self._mounts.items():
            if what is thing or what == point:
                if self.folder == point or self.folder.startswith(f"{point}/"):
                    self.folder = "/"
                del self._mounts[point]
                thing.umount()
                return
        raise BoardOSError(ERRNO["EINVAL"])

    def source(self, path: str) -> bytes:
        """Return the content of a file for `import`."""
        thing, rest = self._mounted(path)
        if thing is None:
            with super().open(path, "rb") as file:
                return file.read_all()
        thing.stat(rest)
        file = thing.open(rest, "rb")
        buffer = bytearray(min(max(file.ioctl(GET_BUFFER_SIZE, 0), LEAST_BUFFER), MOST_BUFFER))
        content = b""
        while (count := file.readinto(buffer)) == len(buffer):
            content += buffer
        file.close()
        content += buffer[:count]
        return content

    def open(self, path: object, mode: str = "r", *ignored: object, **options: object) -> Any:
        thing, rest = self._mounted(path)
        return super().open(path, mode, *ignored, **options) if thing is None else thing.open(rest, mode)

    def names(self, path: object = "") -> list[str]:
        thing, rest = self._mounted(path)
        return super().names(path) if thing is None else [entry[0] for entry in thing.ilistdir(rest)]

    def entries(self, path: object = "") -> Any:
        thing, rest = self._mounted(path)
        return super().entries(path) if thing is None else thing.ilistdir(rest)

    def stat(self, path: object) -> Any:
        thing, rest = self._mounted(path)
        return super().stat(path) if thing is None else thing.stat(rest)

    def chdir(self, path: object) -> None:
        thing, rest = self._mounted(path)
        if thing is None:
            super().chdir(path)
        else:
            thing.chdir(rest)
            self.folder = self.absolute(str(path))

    def remove(self, path: object) -> None:
        thing, rest = self._mounted(path)
        super().remove(path) if thing is None else thing.remove(rest)

    def rmdir(self, path: object) -> None:
        thing, rest = self._mounted(path)
        super().remove(path) if thing is None else thing.rmdir(rest)

    def mkdir(self, path: object) -> None:
        thing, rest = self._mounted(path)
        super().mkdir(path) if thing is None else thing.mkdir(rest)

    def rename(self, old: object, new: object) -> None:
        (thing, rest), (other, target) = self._mounted(old), self._mounted(new)
        if thing is not other:
            raise BoardOSError(ERRNO["EPERM"])
        super().rename(old, new) if thing is None else thing.rename(rest, target)

    def _mounted(self, path: object) -> tuple[Any, str]:
        """Return the object that a path belongs to, None for the board's own files, and the path for that object."""
        if not self._mounts or not isinstance(path, str):
            return None, ""
        absolute = self.absolute(path)
        for point, thing in self._mounts.items():
            if absolute == point or absolute.startswith(f"{point}/"):
                here = self.folder == point or self.folder.startswith(f"{point}/")
                return thing, path if here and not path.startswith("/") else absolute[len(point) :] or "/"
        return None, ""
