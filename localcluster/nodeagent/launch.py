"""Starts one container's program: mounts its volumes in a mount namespace of its own, then execs.

Runs as a script with nothing but the standard library, once per start, so it must be quick.
Arguments: the descriptor to read the orders from (JSON) and the one to report a failure to. The
latter closes by itself when the program starts, so an empty report means success.

Orders: `argv`, `env`, `cwd`, and either `enter` (a process whose root and mount namespace are
used: exec probes and hooks) or `mounts` (list of `source`, `target`, `readOnly`) with `stage`, an
empty directory that the new root is put together in.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
MS_RELATIME = 1 << 21
# Flags with the same bit in statvfs and mount: nosuid, nodev, noexec, noatime, nodiratime.
SAME_FLAGS = 2 | 4 | 8 | 1024 | 2048
ST_RELATIME = 4096
START_FAILED = 128

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: Path | str, target: Path, kind: str | None, flags: int) -> None:
    try:
        _call(
            "mount",
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            None,
        )
    except OSError as error:
        raise OSError(error.errno, f"mounting {source} at {target}: {error.strerror}") from error


class Root:
    """A root directory that shows the machine's files, with further mount points added."""

    def __init__(self, stage: Path) -> None:
        self._path = stage / "root"
        self._over = stage / "over"
        self._path.mkdir(exist_ok=True)
        self._over.mkdir(exist_ok=True)
        self._own = {self._path}
        _mount("tmpfs", self._path, "tmpfs", 0)
        _mirror(Path("/"), self._path)

    def bind(self, source: Path, target: str, *, read_only: bool) -> None:
        """Show a file or directory at a path, which is made where it does not exist."""
        place = self.make(target, directory=source.is_dir())
        _mount(source, place, None, MS_BIND | MS_REC)
        if read_only:
            flags = os.statvfs(place).f_flag
            kept = flags & SAME_FLAGS | (MS_RELATIME if flags & ST_RELATIME else 0)
            _mount("none", place, None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)

    def make(self, target: str, *, directory: bool = True) -> Path:
        """Make a path exist inside the root without touching the machine's own files."""
        place = self._path
        parts = [part for part in target.split("/") if part not in ("", ".")]
        links = 0
        while parts:
            part = parts.pop(0)
            following = place.parent if part == ".." else place / part
            if part == ".." and place == self._path:
                continue
            if not os.access(place, os.R_OK | os.X_OK):
                # Such as /root for an ordinary user: nobody inside could use what is there.
                self._make_writable(place)
            if following.is_symlink():
                links += 1
                if links > 40:
                    raise OSError(f"{target}: too many symbolic links")
                link = str(following.readlink())
                parts = [piece for piece in link.split("/") if piece not in ("", ".")] + parts
                place = self._path if link.startswith("/") else place
                continue
            if not following.exists():
                self._make_writable(place)
                if parts or directory:
                    following.mkdir()
                    self._own.add(following)
                else:
                    following.touch()
            place = following
        return place

    def enter(self) -> None:
        """Make it the root of this process."""
        os.chroot(self._path)

    def _make_writable(self, directory: Path) -> None:
        if directory in self._own:
            return
        _mount("tmpfs", self._over, "tmpfs", 0)
        if os.access(directory, os.R_OK | os.X_OK):
            _mirror(directory, self._over)
        _mount(self._over, directory, None, MS_MOVE)
        self._own.add(directory)


def _mirror(directory: Path, into: Path) -> None:
    for entry in os.scandir(directory):
        place = into / entry.name
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
            continue
        if entry.is_dir(follow_symlinks=False):
            place.mkdir()
        else:
            place.touch()
        _mount(entry.path, place, None, MS_BIND | MS_REC)


def _enter(process: int) -> None:
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    root = os.open(f"/proc/{process}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _call("setns", namespace, CLONE_NEWNS)
    os.fchdir(root)
    os.chroot(".")


def _prepare(orders: dict[str, Any]) -> None:
    if "enter" in orders:
        _enter(orders["enter"])
    elif orders["mounts"]:
        _call("unshare", CLONE_NEWNS)
        _mount("none", Path("/"), None, MS_REC | MS_PRIVATE)
        root = Root(Path(orders["stage"]))
        for mount in orders["mounts"]:
            root.bind(Path(mount["source"]), mount["target"], read_only=mount["readOnly"])
        root.make(orders["cwd"])
        root.enter()
    os.chdir(orders["cwd"])


def main() -> NoReturn:
    """Start the program, or report why it cannot be started."""
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as source:
        orders = json.load(source)
    report = int(sys.argv[2])
    os.set_inheritable(report, False)
    argv, env = orders["argv"], orders["env"]
    try:
        _prepare(orders)
        os.environ["PATH"] = env.get("PATH", os.defpath)
        os.execvpe(argv[0], argv, env)  # noqa: S606  # the pod's author decides what runs
    except FileNotFoundError:
        os.write(report, f'exec: "{argv[0]}": executable file not found in $PATH'.encode())
    except OSError as error:
        os.write(report, str(error).encode())
    os._exit(START_FAILED)


if __name__ == "__main__":
    main()
