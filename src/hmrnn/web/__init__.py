"""A page over segment and generate: ``hmrnn explore``, which alone imports it; needs the extra ``page``."""
