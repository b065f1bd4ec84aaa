"""Words of a text that marks none: a segmental head and its lexicon."""
