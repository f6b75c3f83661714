"""Counts clients' requests in SGLang's tokenizer manager, and shows that the engine generates."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

WITHIN_S = 5.0
"""Time for the one token of a health check."""


class HealthCheck:
    """Generates tokens that are no client's, and tells clients' requests from its own."""

    def __init__(self, tokenizer_manager: Any) -> None:
        self._tokenizer = tokenizer_manager
        self._own: set[str] = set()

    @property
    def in_flight(self) -> int:
        """Clients' requests that are not answered to the end. May be asked for from any thread."""
        requests = self._tokenizer.rid_to_state
        return len(requests) - sum(rid in requests for rid in tuple(self._own))

    async def check(self) -> None:
        """Return once the engine has shown that it generates, by a token of the check's own. While SGLang is busy with
        clients' requests it ignores that of a health check; then anything that it generates for them will do.

        Raises:
            TimeoutError: if it has not.
        """
        from sglang.srt.constants import HEALTH_CHECK_RID_PREFIX
        from sglang.srt.managers.io_struct import GenerateReqInput

        rid = f"{HEALTH_CHECK_RID_PREFIX}_{uuid.uuid4().hex}"
        params = {"max_new_tokens": 1, "temperature": 0.0}
        request = GenerateReqInput(rid=rid, input_ids=[0], sampling_params=params, log_metrics=False)
        began, busy = time.time(), False
        tokens = self._tokenizer.generate_request(request, None)
        first = asyncio.ensure_future(anext(tokens))
        self._own.add(rid)
        try:
            while not first.done() and not (busy and self._tokenizer.last_receive_tstamp > began):
                if time.time() > began + WITHIN_S:
                    raise TimeoutError(f"no token within {WITHIN_S:g} s")
                busy = busy or self.in_flight > 0
                await asyncio.sleep(0.05)
            if first.done():
                first.result()
        finally:
            first.cancel()
            await asyncio.wait([first])
            await tokens.aclose()
            self._tokenizer.rid_to_state.pop(rid, None)
            self._own.discard(rid)
