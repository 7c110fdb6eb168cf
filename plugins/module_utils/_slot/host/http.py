# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP through `requests`, without proxies from the environment and with bounded answers."""

from __future__ import annotations

import importlib.util
import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ..effects import Upload
from ..types import Reply

if TYPE_CHECKING:
    import requests

# A host that is only being looked at in check mode may not have it yet.
HAS_REQUESTS = importlib.util.find_spec("requests") is not None

QUIET_S = 1.0
TOGETHER_S = 5.0  # so long the first waits for the last to be there
MAX_ANSWER = 32 * 2**20  # bytes; a stream takes about 250 for each token


class RequestsHttp:
    """Answers as Reply; never raises for the network's sake. Who is asked is this very host, so the name in a
    frontdoor's certificate is not looked at, or another node, whose answers prove themselves.

    Every request has a connection of its own: an engine may close one without having said so, and the next request on
    it would then look like a failure of the engine.

    waiting: entered while an answer is waited for.
    """

    def __init__(self, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._waiting = waiting

    def get(self, url: str, timeout_s: float) -> Reply:
        with self._waiting():
            return self._ask("GET", url, timeout_s)

    def get_each(self, urls: Sequence[str], timeout_s: float) -> list[Reply]:
        if not urls:
            return []
        with self._waiting(), ThreadPoolExecutor(len(urls)) as threads:
            return list(threads.map(lambda url: self._ask("GET", url, timeout_s), urls))

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        with self._waiting():
            return self._ask("POST", url, timeout_s, json=body)

    def upload(self, url: str, fields: Mapping[str, str], file: Upload, timeout_s: float) -> Reply:
        with self._waiting():
            return self._ask("POST", url, timeout_s, data=fields, files={"file": (file.name, file.data, file.kind)})

    def post_together(
        self, url: str, bodies: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> Generator[tuple[int, Reply, float] | None, None, None]:
        replies: queue.SimpleQueue[tuple[int, Reply, float]] = queue.SimpleQueue()
        together = threading.Barrier(len(bodies))

        def ask(index: int) -> None:
            with suppress(threading.BrokenBarrierError):
                together.wait(TOGETHER_S)
            begun = time.monotonic()
            try:
                reply = self._ask("POST", url, timeout_s, json=bodies[index])
            except Exception as error:  # an answer that never comes would be waited for
                reply = Reply(0, error=f"{type(error).__name__}: {error}"[:200])
            replies.put((index, reply, time.monotonic() - begun))

        # Nobody waits for them: they hold nothing but a connection, which ends with the engine at the latest.
        for index in range(len(bodies)):
            threading.Thread(target=ask, args=(index,), daemon=True).start()
        for _body in bodies:
            come: tuple[int, Reply, float] | None = None
            while come is None:
                with self._waiting(), suppress(queue.Empty):
                    come = replies.get(timeout=QUIET_S)
                yield come

    def _ask(self, method: str, url: str, timeout_s: float, **sent: Any) -> Reply:
        import requests  # slow to import: only who asks pays for it
        import urllib3

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

        limits = (min(5.0, timeout_s), timeout_s)
        begun = time.monotonic()
        try:
            with requests.Session() as session:
                session.trust_env = False
                session.verify = False
                session.headers["Connection"] = "close"
                with session.request(
                    method, url, **sent, timeout=limits, stream=True, allow_redirects=False
                ) as response:
                    return self._read(response, begun, timeout_s)
        except (requests.Timeout, TimeoutError):
            return Reply(0, error="timeout")
        except requests.ConnectionError as error:
            words = str(error)
            return Reply(0, error="refused" if "refused" in words.lower() else f"the connection broke: {words[-160:]}")
        except requests.RequestException as error:
            return Reply(0, error=f"{type(error).__name__}: {error}"[:200])

    @staticmethod
    def _read(response: requests.Response, begun: float, timeout_s: float) -> Reply:
        data, arrivals = bytearray(), []
        for chunk in response.iter_content(65536):
            data += chunk
            seconds = time.monotonic() - begun
            arrivals.append((seconds, len(data)))
            if len(data) > MAX_ANSWER:
                break
            if seconds > timeout_s:
                raise TimeoutError
        return Reply(response.status_code, data.decode("utf-8", "replace"), arrivals=tuple(arrivals))


class NoHttp:
    """Stands in where `requests` is not installed and only a prediction is asked for: nobody answers."""

    def get(self, url: str, timeout_s: float) -> Reply:
        return Reply(0, error="refused")

    def get_each(self, urls: Sequence[str], timeout_s: float) -> list[Reply]:
        return [Reply(0, error="refused") for _url in urls]

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        return Reply(0, error="refused")

    def upload(self, url: str, fields: Mapping[str, str], file: Upload, timeout_s: float) -> Reply:
        return Reply(0, error="refused")

    def post_together(
        self, url: str, bodies: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> Generator[tuple[int, Reply, float] | None, None, None]:
        yield from ((index, Reply(0, error="refused"), 0.0) for index in range(len(bodies)))
