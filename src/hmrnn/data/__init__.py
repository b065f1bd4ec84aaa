"""Corpora: text as indices into a vocabulary, and pen strokes."""

from hmrnn.data.stroke_batches import StrokeBatch, StrokeBatches
from hmrnn.data.stroke_corpus import load_strokes, write_archive
from hmrnn.data.stroke_files import read_strokes, save_strokes
from hmrnn.data.strokes import Scale, StrokeCorpus, Strokes
from hmrnn.data.text import Corpus, load_corpus, read_symbols, read_symbols_and_spaces
from hmrnn.data.vocabulary import Vocabulary
from hmrnn.data.wikipedia import clean_wikipedia

__all__ = [
    "Corpus",
    "Scale",
    "StrokeBatch",
    "StrokeBatches",
    "StrokeCorpus",
    "Strokes",
    "Vocabulary",
    "clean_wikipedia",
    "load_corpus",
    "load_strokes",
    "read_strokes",
    "read_symbols",
    "read_symbols_and_spaces",
    "save_strokes",
    "write_archive",
]
