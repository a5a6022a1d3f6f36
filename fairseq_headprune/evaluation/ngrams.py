"""Clipped n-gram matches of many systems with one reference; the reference's n-grams are counted once."""

from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np


class ReferenceNgrams:
    """The n-grams of orders 1 … ``order`` of each reference sentence, ready to be matched.

    An n-gram belongs to its sentence: the same words in two sentences are two types. A type of order n is the
    pair (type of its first n-1 tokens, last token), written as one integer and found by binary search.
    """

    def __init__(self, sentences: Sequence[Sequence], order: int) -> None:
        self.order = order
        self.lengths = _lengths(sentences)  # [sentences], tokens
        vocabulary = sorted(set(chain.from_iterable(sentences)))
        self._ids = {token: index for index, token in enumerate(vocabulary)}
        self._keys: list[np.ndarray] = []  # per order, [types], sorted
        self._counts: list[np.ndarray] = []  # per order, [types]
        self._sentences: list[np.ndarray] = []  # per order, [types]: the sentence a type belongs to
        tokens, owners = self._flatten(sentences, self.lengths)
        prefixes = owners
        for n in range(1, order + 1):
            starts = _starts(prefixes, owners, n)
            keys = self._key(prefixes[starts], tokens[starts + n - 1])
            unique, first, types, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
            self._keys.append(unique)
            self._counts.append(counts)
            self._sentences.append(owners[starts][first])
            prefixes = np.full(len(tokens), -1, dtype=np.int64)
            prefixes[starts] = types

    def totals(self, lengths: np.ndarray) -> np.ndarray:
        """Return the numbers of n-grams in sentences of these lengths: lengths [sentences] -> [sentences, order]."""
        return np.maximum(lengths[:, None] - np.arange(self.order), 0)

    def match(self, sentences: Sequence[Sequence]) -> tuple[np.ndarray, np.ndarray]:
        """Return the lengths [sentences] and the clipped matches [sentences, order] of one system's sentences.

        An n-gram's matches count at most as often as it occurs in the reference (Papineni et al. 2002).
        """
        lengths = _lengths(sentences)
        matches = np.zeros((len(lengths), self.order), dtype=np.int64)
        tokens, owners = self._flatten(sentences, lengths)
        prefixes = owners
        for n in range(1, self.order + 1):
            keys, counts, home = self._keys[n - 1], self._counts[n - 1], self._sentences[n - 1]
            starts = _starts(prefixes, owners, n)
            starts = starts[tokens[starts + n - 1] >= 0]
            if not len(keys) or not len(starts):
                break
            wanted = self._key(prefixes[starts], tokens[starts + n - 1])
            types = np.searchsorted(keys, wanted)
            types[types == len(keys)] = 0
            found = keys[types] == wanted
            clipped = np.minimum(np.bincount(types[found], minlength=len(keys)), counts)
            # Sums of small integers: exact in float64.
            matches[:, n - 1] = np.bincount(home, weights=clipped, minlength=len(lengths))
            prefixes = np.full(len(tokens), -1, dtype=np.int64)
            prefixes[starts[found]] = types[found]
        return lengths, matches

    def _flatten(self, sentences: Sequence[Sequence], lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Token numbers (-1: not in any reference) and sentence numbers, both [tokens].
        numbers = map(self._ids.get, chain.from_iterable(sentences), repeat(-1))
        tokens = np.fromiter(numbers, dtype=np.int64, count=int(lengths.sum()))
        return tokens, np.repeat(np.arange(len(lengths)), lengths)

    def _key(self, prefixes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return prefixes * len(self._ids) + tokens


def _lengths(sentences: Sequence[Sequence]) -> np.ndarray:
    return np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))


def _starts(prefixes: np.ndarray, owners: np.ndarray, n: int) -> np.ndarray:
    # Positions where an n-gram starts: its first n-1 tokens are a known type and its last token is in the sentence.
    last = len(owners) - n + 1
    if last <= 0:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero((prefixes[:last] >= 0) & (owners[:last] == owners[n - 1 :]))
