"""Small corpora that the tests write and read back."""

from pathlib import Path

from hmrnn.kinds.text.corpus import Corpus

PROSE = "The cat sat on the mat, née Ünal – 猫 😀.\n" * 5  # 5 lines of 40 characters


def write(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def decoded(corpus: Corpus) -> tuple[str, str, str]:
    decode = corpus.vocabulary.decode
    return decode(corpus.train), decode(corpus.valid), decode(corpus.test)


def ptb(content: str) -> str:
    """As Mikolov's files are: a space after every symbol, line ends among them."""
    return "".join(f"{'_' if c == ' ' else c} " for c in content)
