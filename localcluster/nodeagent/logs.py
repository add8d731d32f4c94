"""A container's log: lines with a time and a stream, kept in two files of bounded size."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from localcluster.nodeagent.clock import micro_timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
_BLOCK = 256 * 1024


@dataclass(frozen=True)
class LogOptions:
    """What of a log is wanted, as in the API's PodLogOptions.

    Attributes:
        follow: Go on as new lines come.
        tail_lines: At most so many of the last lines.
        limit_bytes: At most so many bytes.
        since: Only lines from this moment on.
        timestamps: Each line with its time in front.
    """

    follow: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    timestamps: bool = False


class Log:
    """The log of one run of a container. Positions count all bytes that were ever written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._older = path.with_suffix(".older")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._older_start = 0
        self._start = 0
        self._end = 0
        self._rest = {"stdout": b"", "stderr": b""}
        self._grown = asyncio.Event()
        self.closed = False
        """Whether no more will be written."""

    def feed(self, stream: str, data: bytes) -> None:
        """Add output of a stream; no data means that the stream has ended."""
        lines = (self._rest[stream] + data).split(b"\n")
        rest = lines.pop()
        while len(rest) > MAX_LINE_BYTES:
            lines.append(rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        if not data and rest:
            lines.append(rest)
            rest = b""
        self._rest[stream] = rest
        if lines:
            head = f"{micro_timestamp()} {stream} ".encode()
            self._write(b"".join(head + line + b"\n" for line in lines))

    def close(self) -> None:
        """End the log: whoever follows it comes to an end."""
        if not self.closed:
            for stream in self._rest:
                self.feed(stream, b"")
            self.closed = True
            self._file.close()
            self._grown.set()

    def delete(self) -> None:
        """Remove the files."""
        self.close()
        self._path.unlink(missing_ok=True)
        self._older.unlink(missing_ok=True)

    async def read(self, options: LogOptions) -> AsyncIterator[bytes]:
        """The lines that are wanted, in pieces of some size."""
        try:
            position = self._tail_position(options.tail_lines)
        except FileNotFoundError:
            return
        left = options.limit_bytes
        rest = b""
        while True:
            try:
                block, position = self._block(position)
            except FileNotFoundError:  # deleted with its pod while somebody reads it
                return
            if not block:
                if self.closed or not options.follow:
                    return
                self._grown.clear()
                await self._grown.wait()
                continue
            *lines, rest = (rest + block).split(b"\n")
            piece = b"".join(_selected(lines, options))
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                yield piece
            if left == 0:
                return

    def _write(self, data: bytes) -> None:
        if self._end - self._start + len(data) > MAX_FILE_BYTES and self._end > self._start:
            self._file.close()
            self._path.replace(self._older)
            self._file = self._path.open("wb", buffering=0)
            self._older_start, self._start = self._start, self._end
        self._file.write(data)
        self._end += len(data)
        self._grown.set()

    def _block(self, position: int) -> tuple[bytes, int]:
        """Bytes from a position on, or from the oldest one that is kept, and where they end."""
        position = max(position, self._older_start)
        if position >= self._start:
            path, offset = self._path, position - self._start
        else:
            path, offset = self._older, position - self._older_start
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(_BLOCK)
        return data, position + len(data)

    def _tail_position(self, lines: int | None) -> int:
        if lines is None:
            return self._older_start
        if lines == 0:
            return self._end
        wanted, end = lines + 1, self._end  # one more line end: the one before the first line
        while end > self._older_start:
            start = max(self._older_start, end - _BLOCK)
            if start < self._start < end:
                start = self._start
            data = self._block(start)[0][: end - start]
            found = data.count(b"\n")
            if found >= wanted:
                at = len(data)
                for _ in range(wanted):
                    at = data.rindex(b"\n", 0, at)
                return start + at + 1
            wanted -= found
            end = start
        return self._older_start


def _selected(lines: list[bytes], options: LogOptions) -> Iterator[bytes]:
    for line in lines:
        time, _, rest = line.split(b" ", 2)
        if options.since is not None:
            written = datetime.fromisoformat(time.decode())
            if written < options.since:
                continue
        yield (time + b" " + rest if options.timestamps else rest) + b"\n"
