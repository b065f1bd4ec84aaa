"""The page of ``hmrnn explore``: read, write and draw in a browser. It needs the extra ``page``."""
