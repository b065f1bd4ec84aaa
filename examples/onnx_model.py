"""Segments a text and continues it without torch and hmrnn, by onnxruntime (pip install onnxruntime).

hmrnn export -m english-small --onnx english.onnx
python examples/onnx_model.py english.onnx "When the boats came back "
"""

import json
import sys

import numpy as np
import onnxruntime


class OnnxModel:
    """What hmrnn export --onnx wrote, and the state of one sequence."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path)
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.config, self.reads = (json.loads(metadata[name]) for name in ("config", "reads"))
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.start()

    def start(self):
        """Go to the beginning of a sequence."""
        state = {a.name: a.shape[1] for a in self.session.get_inputs() if "." in a.name}
        self.state = {name: np.zeros((1, size), np.float32) for name, size in state.items()}

    def step(self, **given):
        """Read one symbol or point, x, with all else that the model takes; its outputs by name."""
        found = dict(zip(self.outputs, self.session.run(None, given | self.state)))
        self.state = {name: found[f"next.{name}"] for name in self.state}
        return found


class OnnxText(OnnxModel):
    """One of text; of the symbols that it does not know, each is read as the unknown one, or as a space."""

    def begin(self):
        """Read the end of a paragraph, as stood before the texts of training."""
        self.start()
        before = [sign for sign in " .\n" if sign in self.reads["symbols"]] if "\n" in self.reads["symbols"] else []
        return [self.read(sign) for sign in before]

    def read(self, character):
        symbols = self.reads["symbols"]
        other = len(symbols) if self.reads["unknown"] else symbols.index(" ")
        return self.step(x=np.array([symbols.index(character) if character in symbols else other]))

    def segment(self, text):
        """The segments of each level, the lowest first."""
        self.begin()
        ends = np.concatenate([self.read(character)["boundaries"] for character in text]) > 0.5
        ends[-1] = True
        return [[text[a:b] for a, b in zip([0, *at], at)] for at in (np.flatnonzero(end) + 1 for end in ends.T)]

    def generate(self, prompt, uniform, temperature=0.8):
        """A symbol for each of the numbers between 0 and 1; with temperature 0 always the likeliest."""
        found = [*self.begin(), *map(self.read, prompt)][-1]
        text = ""
        for number in uniform:
            p = found["probabilities"][0].astype(np.float64)
            sums = np.cumsum(p ** (1 / temperature)) if temperature else np.arange(len(p)) >= p.argmax()
            text += [*self.reads["symbols"], "\ufffd"][(sums <= number * sums[-1]).sum()]
            found = self.read(text[-1])
        return text


if __name__ == "__main__":
    file, text = sys.argv[1:]
    model = OnnxText(file)
    for segments in model.segment(text):
        print("|".join(segments))
    print(text + model.generate(text, np.random.default_rng().random(200)))
