"""Corpora: text as indices into a vocabulary."""

from hmrnn.data.text import Corpus, load_corpus, read_symbols
from hmrnn.data.vocabulary import Vocabulary
from hmrnn.data.wikipedia import clean_wikipedia

__all__ = ["Corpus", "Vocabulary", "clean_wikipedia", "load_corpus", "read_symbols"]
