"""Text: files to symbols, vocabularies, corpora."""
