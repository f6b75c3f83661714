"""Token streams, and random windows of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from workers.tiny.tokenizer import BOS_ID, EOS_ID


@dataclass(frozen=True)
class Stream:
    """One long row of tokens, and where a window of it may begin."""

    tokens: Tensor
    starts: Tensor

    @classmethod
    def of_documents(cls, tokenizer: Tokenizer, texts: Iterable[str], device: str) -> Stream:
        """Whole texts, each ended by <|eos|>; a window may begin anywhere."""
        rows = _encode(tokenizer, texts)
        tokens = torch.tensor([token for row in rows for token in [*row, EOS_ID]], device=device)
        return cls(tokens, torch.arange(len(tokens), device=device))

    @classmethod
    def of_chats(cls, tokenizer: Tokenizer, texts: Iterable[str], device: str) -> Stream:
        """Chats one after another, so that a window reads as one chat of many turns. It begins where a turn begins."""
        rows = _encode(tokenizer, texts)
        lengths = torch.tensor([0, *map(len, rows)])
        tokens = torch.tensor([token for row in rows for token in row], device=device)
        return cls(tokens, lengths.cumsum(0)[:-1].to(device))

    def windows(self, starts: Tensor, length: int) -> Tensor:
        """<|bos|> and the `length - 1` tokens from each start on; the stream is a ring."""
        offsets = torch.arange(length - 1, device=self.tokens.device)
        body = self.tokens[(starts[:, None] + offsets) % len(self.tokens)]
        return torch.cat([torch.full_like(body[:, :1], BOS_ID), body], dim=1)

    def sample(self, count: int, length: int) -> Tensor:
        """Random windows."""
        picks = torch.randint(len(self.starts), (count,), device=self.tokens.device)
        return self.windows(self.starts[picks], length)

    def spread(self, count: int, length: int) -> Tensor:
        """Windows at even distances: the same ones each time."""
        picks = torch.linspace(0, len(self.starts) - 1, count + 1, device=self.tokens.device)[:-1].long()
        return self.windows(self.starts[picks], length)


@dataclass(frozen=True)
class Mixture:
    """Plain text with a share of chats."""

    text: Stream
    chat: Stream
    chat_share: float = 0.25

    def sample(self, count: int, length: int) -> Tensor:
        chats = round(count * self.chat_share)
        return torch.cat([self.text.sample(count - chats, length), self.chat.sample(chats, length)])


def _encode(tokenizer: Tokenizer, texts: Iterable[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
