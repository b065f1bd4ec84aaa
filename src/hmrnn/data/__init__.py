"""Data: files to arrays to batches, for text and pen strokes. This room knows no model."""

from hmrnn.data.strokes.batches import StrokeBatches
from hmrnn.data.strokes.corpus import load_strokes, write_archive
from hmrnn.data.strokes.files import read_strokes, save_strokes
from hmrnn.data.strokes.strokes import Scale, StrokeCorpus, Strokes
from hmrnn.data.text.corpus import Corpus, load_corpus, read_symbols_and_spaces
from hmrnn.data.text.vocabulary import Vocabulary

__all__ = [
    "Corpus",
    "Scale",
    "StrokeBatches",
    "StrokeCorpus",
    "Strokes",
    "Vocabulary",
    "load_corpus",
    "load_strokes",
    "read_strokes",
    "read_symbols_and_spaces",
    "save_strokes",
    "write_archive",
]
