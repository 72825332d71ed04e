"""Real English text without a download, as token ids: the reference topics that ship with CPython.

`pydoc_data.topics` is what `help("if")` prints, some 465,000 characters. It is tokenised by
tensorflow-text into words and punctuation marks, lower-cased; the vocabulary is counted from the
text itself. Enough to watch a language model learn, not for a claim about language.
"""

import collections
import dataclasses
import pydoc_data.topics

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from tf_wu_shard.errors import OptionError

UNKNOWN = 0

# A run of marks that draws a line or makes an operator is one token; any other mark is its own.
_MARK = r"-{2,}|={2,}|\*{2,}|[^\w\s]"


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """A tokenised text: `ids` [tokens] int32 below len(words); `words[id]` spells an id."""

    ids: np.ndarray
    words: tuple[str, ...]


def topics(max_words: int = 8192) -> Corpus:
    """Returns the text of all topics, in alphabetical order of topic, tokenised.

    Args:
        max_words: upper limit of the vocabulary, the unknown word included. Rarer words than fit
            get the id `UNKNOWN`; the whole text has some 3,600 different ones.

    Raises:
        OptionError: `max_words` below 2.
    """
    if max_words < 2:
        raise OptionError(f"topics: max_words must be at least 2, not {max_words}")
    text = "\n".join(body for _, body in sorted(pydoc_data.topics.topics.items()))
    tokens = _tokenize(text)
    counts = collections.Counter(tokens)
    # By falling count, equal counts by spelling: the ids must not depend on hash order.
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: max_words - 1]
    words = ("[unknown]", *ranked)
    id_of = {word: index for index, word in enumerate(words)}
    ids = np.array([id_of.get(token, UNKNOWN) for token in tokens], dtype=np.int32)
    return Corpus(ids, words)


def windows(corpus: Corpus, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a corpus into windows that do not overlap, in an order shuffled by `seed`.

    Returns:
        (ids, next ids), both [windows, length] int32; the tokens left over at the end are dropped.

    Raises:
        OptionError: the corpus is too short for one window.
    """
    count = (len(corpus.ids) - 1) // length
    if count < 1:
        raise OptionError(f"windows: {len(corpus.ids)} tokens make no window of {length}")
    order = np.random.default_rng(seed).permutation(count)
    inputs = corpus.ids[: count * length].reshape(count, length)
    targets = corpus.ids[1 : count * length + 1].reshape(count, length)
    return inputs[order], targets[order]


def _tokenize(text: str) -> list[str]:
    folded = tf_text.case_fold_utf8(tf.constant([text]))
    pieces = tf_text.regex_split(folded, rf"\s+|{_MARK}", keep_delim_regex_pattern=_MARK)
    return [piece.decode() for piece in pieces.flat_values.numpy()]
