"""What the HTTP server counts, as prometheus-fastapi-instrumentator does for vLLM."""

from __future__ import annotations

from localcluster.sim import wire
from localcluster.sim.figures import Histogram

# Requests for these are not counted.
_EXCLUDED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})
_COARSE = (0.1, 0.5, 1.0)
_FINE = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 7.5, 10.0, 30.0, 60.0),
)


class HttpFigures:
    """Requests by handler, method and status group, their durations and sizes."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._requests: dict[tuple[str, str, str], int] = {}
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._all = Histogram(_FINE)
        self._sizes: dict[str, list[int]] = {}

    def add(  # noqa: PLR0913 - what an answer is made of
        self,
        handler: str,
        method: str,
        status: int,
        *,
        seconds: float,
        request_bytes: int,
        response_bytes: int,
    ) -> None:
        """Count an answer; `handler` is `none` where there is no such endpoint."""
        if handler in _EXCLUDED:
            return
        key = (handler, method, f"{status // 100}xx")
        self._requests[key] = self._requests.get(key, 0) + 1
        self._durations.setdefault((handler, method), Histogram(_COARSE)).add(seconds)
        self._all.add(seconds)
        sizes = self._sizes.setdefault(handler, [0, 0, 0])
        sizes[0] += 1
        sizes[1] += request_bytes
        sizes[2] += response_bytes

    def lines(self) -> list[str]:
        """Give the lines for `/metrics`."""
        lines = self._request_lines()
        for index, which in ((1, "request"), (2, "response")):
            lines += self._size_lines(which, index)
        name, text = "http_request_duration_highr_seconds", "Latency with many buckets."
        lines += wire.head(name, "histogram", text)
        lines += wire.histogram(name, {}, _FINE, self._all.counts, self._all.total)
        lines += wire.created(name, text, [{}], self._started_at)
        return lines + self._duration_lines()

    def _request_lines(self) -> list[str]:
        text = "Total number of requests by method, status and handler."
        series = [
            {"handler": handler, "method": method, "status": status}
            for handler, method, status in self._requests
        ]
        lines = wire.head("http_requests_total", "counter", text)
        for labels, count in zip(series, self._requests.values(), strict=True):
            lines.append(f"http_requests_total{wire.braces(labels)} {wire.number(count)}")
        return lines + wire.created("http_requests", text, series, self._started_at)

    def _size_lines(self, which: str, index: int) -> list[str]:
        name = f"http_{which}_size_bytes"
        text = f"Content length of {which}s by handler."
        lines = wire.head(name, "summary", text)
        for handler, sizes in self._sizes.items():
            labels = wire.braces({"handler": handler})
            lines.append(f"{name}_count{labels} {wire.number(sizes[0])}")
            lines.append(f"{name}_sum{labels} {wire.number(sizes[index])}")
        series = [{"handler": handler} for handler in self._sizes]
        return lines + wire.created(name, text, series, self._started_at)

    def _duration_lines(self) -> list[str]:
        name, text = "http_request_duration_seconds", "Latency with only few buckets by handler."
        lines = wire.head(name, "histogram", text)
        series = [{"handler": handler, "method": method} for handler, method in self._durations]
        for labels, histogram in zip(series, self._durations.values(), strict=True):
            lines += wire.histogram(name, labels, _COARSE, histogram.counts, histogram.total)
        return lines + wire.created(name, text, series, self._started_at)
