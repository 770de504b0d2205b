"""The clients of a saver: sync and async, made when they are used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Generic, TypeVar

from ckptd import AsyncClient, Client

C = TypeVar("C", Client, AsyncClient)

# How many tokens have a client of their own at a time. They share the connections.
_TOKENS = 64


class Clients(Generic[C]):
    """A client for each token, on one pool of connections. Thread-safe."""

    def __init__(self, make: type[C], url: str | None, options: dict[str, Any]) -> None:
        self._make: type[C] = make
        self._url = url
        self._options = options
        self._lock = threading.Lock()
        self._first: C | None = None
        self._closed = False
        self._others: OrderedDict[str, C] = OrderedDict()

    def of(self, token: str) -> C:
        """Return the client for a token, by default for that of the saver."""
        with self._lock:
            if self._first is None:
                self._first = self._make(self._url, **self._options)
                if self._closed:
                    self._first._caller.close()
            if not token:
                return self._first
            found = self._others.pop(token, None)
            if found is None:
                found = self._first.with_token(
                    token, tenant=self._options.get("tenant"), user=self._options.get("user")
                )
            self._others[token] = found
            if len(self._others) > _TOKENS:
                self._others.popitem(last=False)
            return found

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            if self._first is not None:
                self._first._caller.close()
