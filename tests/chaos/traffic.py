"""A background load whose every request must end in one of the ways that are allowed."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

CLIENTS = 4
DEADLINE_S = 60.0

ALLOWED = ("complete", "error", "sse error", "broken off")
FORBIDDEN = ("no answer", "wrong", "cut", "hung")


class Traffic:
    """Clients that ask one request after the other, every second one of them for a stream.

    Counts how requests ended, by the fault that was the last when they did:
    complete (and equal to the expected text), error (an HTTP status that says so, with a body), sse error (an event),
    broken off (a stream that the HTTP client itself finds incomplete), no answer (not even a status), wrong (another text),
    cut (a stream that ends as if it were complete), hung.
    """

    def __init__(self, url: str, expected: dict[str, str], max_tokens: int) -> None:
        """`expected` holds the greedy text of each prompt."""
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.fault = "none"
        self.examples: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """What errors said, by outcome."""
        self._url = url
        self._expected = expected
        self._max_tokens = max_tokens

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Ask all the while. All requests have ended when it returns."""
        stop = asyncio.Event()
        clients = [asyncio.create_task(self._client(stop, i)) for i in range(CLIENTS)]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*clients)

    async def _client(self, stop: asyncio.Event, number: int) -> None:
        prompts = itertools.cycle(list(self._expected)[number::CLIENTS])
        async with httpx.AsyncClient(base_url=self._url, timeout=DEADLINE_S) as http:
            while not stop.is_set():
                prompt, began = next(prompts), time.monotonic()
                ask = self._stream if number % 2 else self._plain
                try:
                    outcome, said = await asyncio.wait_for(ask(http, prompt), DEADLINE_S)
                except (TimeoutError, httpx.TimeoutException) as error:
                    outcome, said = "hung", f"{type(error).__name__} after {time.monotonic() - began:.0f} s"
                except httpx.TransportError as error:
                    outcome, said = "no answer", repr(error)
                self.outcomes[self.fault][outcome] += 1
                if outcome != "complete":
                    self.examples[outcome][said] += 1
                    await asyncio.sleep(0.2)

    def _body(self, prompt: str, stream: bool) -> dict[str, object]:
        return {"model": "tiny", "prompt": prompt, "max_tokens": self._max_tokens, "temperature": 0, "stream": stream}

    async def _plain(self, http: httpx.AsyncClient, prompt: str) -> tuple[str, str]:
        answer = await http.post("/v1/completions", json=self._body(prompt, stream=False))
        if answer.status_code != 200:
            return "error", f"{answer.status_code} {answer.text[:200]}"
        return self._judge(prompt, answer.json()["choices"][0]["text"])

    async def _stream(self, http: httpx.AsyncClient, prompt: str) -> tuple[str, str]:
        text = ""
        async with http.stream("POST", "/v1/completions", json=self._body(prompt, stream=True)) as answer:
            if answer.status_code != 200:
                return "error", f"{answer.status_code} {(await answer.aread()).decode()[:200]}"
            try:
                async for line in answer.aiter_lines():
                    if not line:
                        continue
                    data = line.removeprefix("data: ")
                    if data == "[DONE]":
                        return self._judge(prompt, text)
                    event = json.loads(data)
                    if "error" in event:
                        return self._judge_part(prompt, text, "sse error", str(event["error"]))
                    text += "".join(choice["text"] for choice in event["choices"])
            except httpx.RemoteProtocolError as error:
                return self._judge_part(prompt, text, "broken off", str(error))
        return "cut", f"ended after {len(text)} characters"

    def _judge_part(self, prompt: str, text: str, outcome: str, said: str) -> tuple[str, str]:
        """What came before the end must be the beginning of the right answer."""
        return (outcome, said) if self._expected[prompt].startswith(text) else self._judge(prompt, text)

    def _judge(self, prompt: str, text: str) -> tuple[str, str]:
        return ("complete", "") if text == self._expected[prompt] else ("wrong", f"{text!r}, not {self._expected[prompt]!r}")
