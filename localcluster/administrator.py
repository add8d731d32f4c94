"""Read from the API server as the administrator, with nothing but the standard library.

A proxy that the environment names is not asked: the API server is on this machine.
"""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
from base64 import b64decode
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 5.0


class NoAnswerError(Exception):
    """The API server did not answer, or not with success."""


class Administrator:
    """A reader that goes by a kubeconfig of ours, which holds certificates and keys itself."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = urlsplit(cluster["server"])
        self._context = ssl.create_default_context(
            cadata=b64decode(cluster["certificate-authority-data"]).decode()
        )
        # The ssl module loads client certificates from files alone.
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(b64decode(user["client-certificate-data"]))
            pair.write(b64decode(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)

    def read(self, path: str) -> bytes:
        """Give the body of a successful GET. Raises `NoAnswerError`."""
        connection = http.client.HTTPSConnection(
            str(self._server.hostname), self._server.port, timeout=_SECONDS, context=self._context
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(f"GET {path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise NoAnswerError(f"GET {path}: status {answer.status}")
        return body

    def items(self, path: str) -> list[dict[str, Any]]:
        """Give the objects of a list. Raises `NoAnswerError`."""
        found: list[dict[str, Any]] = json.loads(self.read(path))["items"]
        return found
