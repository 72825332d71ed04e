"""Claims about models/topics.py: the text is real, the ids spell it, windows predict the next."""

import numpy as np
import pytest

from tf_wu_shard.errors import OptionError
from tf_wu_shard.models.topics import UNKNOWN, Corpus, topics, windows

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_the_whole_vocabulary_leaves_no_word_unknown() -> None:
    corpus = topics()
    assert UNKNOWN not in corpus.ids
    assert corpus.ids.dtype == np.int32
    assert corpus.ids.max() == len(corpus.words) - 1
    assert len(corpus.ids) > 50_000


def test_ids_spell_the_text() -> None:
    corpus = topics()
    spelt = " ".join(corpus.words[index] for index in corpus.ids)
    assert 'the " assert " statement' in spelt
    assert "  " not in spelt


def test_ids_rank_words_by_count() -> None:
    corpus = topics()
    counts = np.bincount(corpus.ids, minlength=len(corpus.words))[1:]
    assert (np.diff(counts) <= 0).all()


def test_a_small_vocabulary_keeps_the_commonest_words() -> None:
    whole, small = topics(), topics(max_words=50)
    assert small.words == whole.words[:50]
    np.testing.assert_array_equal(small.ids, np.where(whole.ids < 50, whole.ids, UNKNOWN))


def test_a_vocabulary_of_one_word_is_refused() -> None:
    with pytest.raises(OptionError, match="max_words must be at least 2"):
        topics(max_words=1)


def test_targets_are_the_inputs_one_token_later() -> None:
    corpus = Corpus(np.arange(23, dtype=np.int32), tuple("abcdefghijklmnopqrstuvw"))
    inputs, targets = windows(corpus, length=5)
    assert inputs.shape == targets.shape == (4, 5)
    np.testing.assert_array_equal(targets, inputs + 1)
    assert sorted(inputs[:, 0].tolist()) == [0, 5, 10, 15]


def test_a_corpus_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(OptionError, match="3 tokens make no window of 5"):
        windows(Corpus(np.zeros(3, np.int32), ("a",)), length=5)
