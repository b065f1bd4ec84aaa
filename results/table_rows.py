"""The rows of the tables in results/, as flags of ``hmrnn train``; ``reproduce.py`` trains them."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    title: str
    flags: str


class Table(NamedTuple):
    """A corpus and what is trained on it."""

    data: str  # its name in the results
    preset: str
    flags: str  # shared by all rows
    rows: dict[str, Row]
    evaluations: tuple[str, ...] = ("",)  # flags of ``hmrnn evaluate``; the first gives the figures of the table


HM = "LN-HM-LSTM 3x512"
PTB = "--train.epochs 34 --train.cool-down 0.6 --train.patience 99 --regularise.shift --regularise.weight-drop 0.25"
PTB += " --regularise.dropout-output 0.25 --regularise.dropout-between 0.1 --regularise.dropout-embedding 0.1"
# initial gains of U and V: for each network the best of three values
GAIN, GAIN_LSTM = "--train.recurrent-gain 0.3", "--train.recurrent-gain 1"
GAIN_FIRST = "--train.recurrent-gain 0.1"  # of rows trained before these were compared
# annealed rows of handwriting have 0.02 per epoch: with the preset's 0.004 the slope hardly changes in so few epochs
STROKES = "--train.epochs 38 --train.cool-down 0.6 --train.patience 99 --train.batch-size 48"
STROKES += " --train.learning-rate 0.003"
STROKES_DROPPED = "--train.epochs 50 --train.cool-down 0.9 --regularise.weight-drop 0.1"
LN_STROKES = "--train.epochs 34 --model.layer-norm --train.recurrent-gain 0.3 --train.skip-nonfinite"
HM_STROKES = f"{LN_STROKES} --detectors.bounds 0.3 0.5"
SLOPES = "--detectors.slope 0.02 3"
HM_STROKES += " --detectors.rates 0.85 0.15 --detectors.rate-weight 0 --detectors.rate-control 0.05"
SPACELESS = "--data.remove-spaces --train.epochs 12 --train.cool-down 0.6 --train.patience 99 --regularise.shift"
SPACELESS += " --regularise.weight-drop 0.25 --regularise.dropout-output 0.2"
PRIOR = "--detectors.rates 0.22 0.05 --detectors.rate-weight 0.5"
# detectors start at these rates and are held near them
HELD = "--detectors.rates {0} --detectors.start-at-rates --detectors.rate-weight 0.2"
USUAL = f"{GAIN} {HELD.format('0.9 0.6')}"  # the rates of most rows
# prefix of the row's name, network, flags
NETWORKS = (
    ("", f"{HM}, rates held at 0.9, 0.6", USUAL),
    ("ln-lstm-", "LN-LSTM 3x512", f"--model.rnn ln-lstm {GAIN_LSTM}"),
)
LARGE = f"--model.hidden-size 1024 --model.output-size 1024 --train.epochs 50 --train.cool-down 0.8 {USUAL}"
UNCERTAIN = "--detectors.pull-weight 1 --detectors.pull-to uncertainty --detectors.pull-delay 1"
STEERED = f"--train.epochs 8 {GAIN}"
STILL = "--detectors.slope 0 5"
UNDROPPED = "--regularise.weight-drop 0 --regularise.dropout-output 0 --regularise.dropout-between 0"
UNDROPPED += " --regularise.dropout-embedding 0"
LESS = "--regularise.weight-drop 0.15 --regularise.dropout-output 0.15 --regularise.dropout-between 0.1"
SHORT = "--train.epochs 12 --train.cool-down 0.9"
WIKIPEDIA = "--train.batch-size 256 --train.learning-rate 0.0015 --train.cool-down 0.9 --train.patience 99"
WIKIPEDIA += " --train.skip-nonfinite --train.validation-symbols 1000000 --regularise.shift"
DROPPED = "--regularise.weight-drop 0.15 --regularise.dropout-output 0.15 --regularise.dropout-between 0.05"

LIGHT = "--regularise.weight-drop 0.1 --regularise.dropout-output 0.1 --regularise.dropout-between 0.05"
HEAVY = "--regularise.weight-drop 0.25 --regularise.dropout-output 0.2 --regularise.dropout-between 0.1"


PENDING = "--model.no-flush --model.top-down pending"
BEST = f"{PENDING} --detectors.on-copy hold"  # the cell that predicts best at word rates
SAID_BEST = "no FLUSH, top-down pending, on_copy hold"


def wikipedia(data: str, preset: str, epochs: int, epochs_dropped: int = 0, epochs_heavy: int = 0) -> Table:
    """LN-LSTM and HM-LSTM for ``epochs``, slopes from 1 to 3, and for other numbers of epochs with dropout."""
    lstm, hm = "LN-LSTM 3x1024", "LN-HM-LSTM 3x1024, step, slope annealed, rates held at 0.9, 0.6"
    rows = {}
    for number, suffix, more, said in (
        (epochs, "", "", ""),
        (epochs_dropped, "-dropped", DROPPED, "; weight drop 0.15, output 0.15, between 0.05"),
        (epochs_heavy, "-heavy", HEAVY, "; weight drop 0.25, output 0.2, between 0.1"),
    ):
        if number:
            length, slopes = f"--train.epochs {number}", f"--detectors.slope {2 / number:.2f} 3"
            rows["ln-lstm" + suffix] = Row(lstm + said, f"{length} {more} --model.rnn ln-lstm {GAIN_LSTM}")
            rows["held" + suffix] = Row(hm + said, f"{length} {more} {USUAL} {slopes}")
            rows["held-best" + suffix] = Row(f"{hm}, {SAID_BEST}{said}", f"{length} {more} {USUAL} {slopes} {BEST}")
    return Table(data, preset, WIKIPEDIA, rows)


# two epochs of enwik8, nothing dropped; detectors start at word rates and are held there as in the preset text
BRIEF = "--train.epochs 2 --train.batch-size 192 --train.learning-rate 0.002 --train.cool-down 0.9 --train.patience 99"
BRIEF += " --train.skip-nonfinite --train.validation-symbols 1000000"
WORDS = "--detectors.rates 0.19 0.045 --detectors.start-at-rates --detectors.rate-weight 0"
WORDS += " --detectors.rate-control 0.02 --detectors.pull-to uncertainty --detectors.pull-weight 0.3"
WORDS += " --detectors.pull-margin 1"


def hierarchy(sizes: str, output: int, more: str = "--model.no-flush") -> str:
    """Flags of an HM-LSTM at word rates."""
    return f"--model.hidden-size {sizes} --model.output-size {output} {WORDS} {more}"


def cell() -> Table:
    """One factor of the cell at a time, from an HM-LSTM without FLUSH at word rates."""
    sizes, net = "768 1024 1024", "LN-HM-LSTM 768/1024/1024"
    rows = {
        name: Row(f"{net}{said}", hierarchy(sizes, 1024, more))
        for name, said, more in (
            ("base", ", no FLUSH", "--model.no-flush"),
            ("flush", " as in the paper", ""),
            ("pending", ", no FLUSH, top-down pending", PENDING),
            ("always", ", no FLUSH, top-down always", "--model.no-flush --model.top-down always"),
            ("none", ", no FLUSH, no top-down", "--model.no-flush --model.top-down none"),
            ("hold", ", no FLUSH, on_copy hold", "--model.no-flush --detectors.on-copy hold"),
            ("both", f", {SAID_BEST}", BEST),
            ("dense", ", no FLUSH, no COPY", "--model.no-flush --model.no-copy"),
            ("sample", ", no FLUSH, sampled boundaries", "--model.no-flush --detectors.estimator sample"),
            ("soft", ", no FLUSH, soft boundaries", "--model.no-flush --detectors.estimator soft"),
            ("first", ", no FLUSH, output of the first layer alone", "--model.no-flush --model.output-layers first"),
            ("gumbel", ", no FLUSH, gumbel boundaries", "--model.no-flush --detectors.estimator gumbel"),
            ("hidden", ", no FLUSH, detectors with 64 hidden units", "--model.no-flush --detectors.hidden 64"),
            ("reinforce", ", no FLUSH, REINFORCE", "--model.no-flush --detectors.estimator reinforce"),
        )
    }
    return Table("enwik8", "enwik8", BRIEF, rows, ("", "--boundaries"))


def frontier() -> Table:
    """Bits against multiply-adds: LN-LSTMs and HM-LSTMs without FLUSH at word rates, in several sizes.

    The HM-LSTM of 768/1024/1024 units is the row pending of ``enwik8-cell``.
    """
    rows = {
        f"ln-lstm-{size}": Row(
            f"LN-LSTM 3x{size}",
            f"--model.rnn ln-lstm {GAIN_LSTM} --model.hidden-size {size} --model.output-size {2 * size}",
        )
        for size in (256, 384, 512, 768, 1024)
    }
    for low, high in ((384, 512), (576, 768), (960, 1280), (1152, 1536)):
        title = f"LN-HM-LSTM {low}/{high}/{high}, no FLUSH, top-down pending"
        rows[f"hm-{low}"] = Row(title, hierarchy(f"{low} {high} {high}", high, PENDING))
    return Table("enwik8", "enwik8", BRIEF, rows, ("", "--boundaries"))


def penn() -> Table:
    """Hierarchies at word rates and LN-LSTMs that multiply about as often, with less and with more dropout."""
    sizes, net, rows = "576 768 768", "LN-HM-LSTM 576/768/768", {}
    for suffix, said, flags in (
        ("", "", LIGHT),
        ("-more", "; weight drop 0.25, output 0.2, between 0.1", HEAVY),
    ):
        for size in (256, 384):
            lstm = f"--model.rnn ln-lstm {GAIN_LSTM} --model.hidden-size {size} --model.output-size {2 * size}"
            rows[f"ln-lstm-{size}{suffix}"] = Row(f"LN-LSTM 3x{size}{said}", f"{lstm} {flags}")
        for low, high in ((384, 512), (576, 768)):
            title = f"LN-HM-LSTM {low}/{high}/{high}, {SAID_BEST}{said}"
            rows[f"hm-{low}{suffix}"] = Row(title, f"{hierarchy(f'{low} {high} {high}', high, BEST)} {flags}")
    for name, said, more in (
        ("flush", " as in the paper", ""),
        ("base", ", no FLUSH", "--model.no-flush"),
        ("none", ", no FLUSH, no top-down", "--model.no-flush --model.top-down none"),
        ("dense", ", no FLUSH, no COPY", "--model.no-flush --model.no-copy"),
    ):
        rows[name] = Row(f"{net}{said}", f"{hierarchy(sizes, 768, more)} {LIGHT}")
    shared = "--train.epochs 8 --train.batch-size 128 --train.learning-rate 0.003 --train.cool-down 0.9"
    return Table(
        "Penn Treebank, characters",
        "ptb",
        f"{shared} --train.patience 99 --train.skip-nonfinite",
        rows,
        ("", "--boundaries"),
    )


def long() -> Table:
    """LN-LSTM and HM-LSTM on Penn Treebank, 47 to 85 epochs: four settings for both, one for each, the best again."""
    rows = {}
    for suffix, epochs, drop, output, between, decay in (
        ("", 85, 0.35, 0.3, 0.15, 0.05),
        ("-decay", 68, 0.35, 0.3, 0.15, 0.2),
        ("-less-dropout-decay", 68, 0.25, 0.25, 0.1, 0.2),
        ("-less-weight-drop-decay", 68, 0.25, 0.4, 0.25, 0.2),
    ):
        said = f"; weight drop {drop}, output {output}, between {between}, embedding 0.1, weight decay {decay}"
        flags = f"--train.epochs {epochs} --regularise.weight-drop {drop} --regularise.dropout-output {output}"
        flags += f" --regularise.dropout-between {between} --regularise.weight-decay {decay}"
        rows["ln-lstm" + suffix] = Row(f"LN-LSTM 3x512{said}", f"{flags} --model.rnn ln-lstm {GAIN_LSTM}")
        held = f"{HM}, step, slope annealed, rates held at 0.9, 0.6"
        rows["held" + suffix] = Row(held + said, f"{flags} {USUAL}")
    # the dropout that was best, and the learning rate and weight decay that suit each network in six epochs
    for name, rate, decay in (("ln-lstm", 0.002, 0.5), ("held", 0.004, 0.2)):
        title, flags = rows[f"{name}-less-dropout-decay"]
        title = title.replace("weight decay 0.2", f"weight decay {decay}, learning rate {rate}")
        flags += f" --train.epochs 62 --train.learning-rate {rate} --regularise.weight-decay {decay}"
        rows[f"{name}-tuned"] = Row(title, flags)
        title, flags = rows[f"{name}-less-dropout-decay"]  # again, since dropout between layers has a mask per sequence
        rows[f"{name}-own-masks"] = Row(f"{title}, masks of each sequence", f"{flags} --train.epochs 47")
    more = f"{PTB} --train.cool-down 0.8 --train.skip-nonfinite"
    return Table("Penn Treebank, characters", "ptb", more, rows)


def large() -> Table:
    """HM-LSTMs of twice the width."""
    rows, many = {}, "--train.batch-size 128 --train.skip-nonfinite"
    best = f"--train.epochs 100 {many} --regularise.weight-decay 0.2 --train.learning-rate 0.003"
    own, said_own = f"{best} --train.epochs 87", ", weight decay 0.2, learning rate 0.003, masks of each sequence"
    for name, drop, output, between, more, said in (
        ("held", 0.4, 0.3, 0.15, "", ""),
        (
            "held-long",
            0.5,
            0.4,
            0.3,
            f"--train.epochs 125 {many} --regularise.weight-decay 0.05",
            ", weight decay 0.05",
        ),
        ("held-decay", 0.4, 0.4, 0.2, best, ", weight decay 0.2, learning rate 0.003"),
        ("held-own-masks", 0.5, 0.4, 0.3, own, said_own),
    ):
        title = "LN-HM-LSTM 3x1024, step, slope annealed, rates held at 0.9, 0.6; "
        title += f"weight drop {drop}, output {output}, between {between}, embedding 0.1{said}"
        flags = f"{LARGE} --regularise.weight-drop {drop} --regularise.dropout-output {output}"
        rows[name] = Row(title, f"{flags} --regularise.dropout-between {between} {more}".strip())
    return Table("Penn Treebank, characters", "ptb", PTB, rows)


def baselines() -> Table:
    """Networks without detectors beside torch's LSTM: four epochs each, nothing dropped; unrolled ones also in small.

    The output of an echo state network is trained by gradient, or fitted by ridge regression in one epoch.
    """
    kinds = (
        ("lstm", "LSTM", ""),
        ("peephole", "Peephole LSTM", ""),
        ("coupled", "Peephole LSTM, coupled gates", ""),
        ("skip", "RNN with a delay of 8", "--model.delay 8"),
        ("time-delay", "Time-delay network, 8 steps per layer", "--model.kernel 8"),
        ("output-rnn", "RNN that reads its output", ""),
        ("echo-state", "Echo state network, spectral radius 0.9", "--model.spectral-radius 0.9"),
    )
    rows = {
        name: Row(f"{title}, 3x512; nothing dropped", f"--model.rnn {name} {flags} {UNDROPPED}")
        for name, title, flags in kinds
    }
    small = "--model.hidden-size 128 --model.output-size 128 --train.epochs 1 --train.cool-down 0.8"
    for name, title, flags in kinds[:4]:  # for a CPU
        rows[f"{name}-128"] = Row(f"{title}, 3x128; nothing dropped", f"--model.rnn {name} {flags} {small} {UNDROPPED}")
    ridge = f"{rows['echo-state'].flags} --model.ridge 1 --train.epochs 1 --regularise.no-shift"
    rows["echo-state-ridge"] = Row("Echo state network, spectral radius 0.9, 3x512; ridge regression", ridge)
    return Table("Penn Treebank, characters", "ptb", f"{PTB} --train.epochs 4", rows)


def tuned() -> dict[str, Row]:
    """Learning rate and weight decay of each network, with the dropout of the table and with less."""
    rows = {}
    for lstm, less, rate, decay in (
        (False, False, 0.004, 0.2),
        (True, False, 0.004, 0.2),
        (False, False, 0.008, 0.2),
        (False, True, 0.004, 0.2),
        (False, True, 0.002, 0.2),
        (True, True, 0.002, 0.2),
        (False, True, 0.004, 0.5),
        (True, True, 0.002, 0.5),
        (True, True, 0.004, 0.2),
        (True, True, 0.002, 1.0),
    ):
        name, net, flags = NETWORKS[lstm]
        name += f"{'less-dropout-' * less}learning-rate-{rate}-decay-{decay}"
        said = f"{net}, learning rate {rate}, weight decay {decay}"
        flags += f" --train.learning-rate {rate} --regularise.weight-decay {decay} --train.skip-nonfinite"
        if less:
            said, flags = f"{said}; weight drop 0.15, output 0.15, between 0.1", f"{flags} {LESS}"
        rows[name] = Row(said, flags)
    return rows


def handwriting(data: str, more: str, evaluations: tuple[str, ...] = ("",)) -> Table:
    """LSTM and HM-LSTM, with ``more`` after the settings of all of these tables."""
    said = "; weight drop 0.1" if more.startswith(STROKES_DROPPED) else ""
    hm = "LN-HM-LSTM 3x400, step"
    rows = {
        "lstm": Row(f"LSTM 3x400{said}", f"--model.rnn lstm {more}"),
        "ln-lstm": Row(f"LN-LSTM 3x400{said}", f"--model.rnn ln-lstm {LN_STROKES} {more}"),
        "hm": Row(f"{hm}{said}", f"{HM_STROKES} {STILL} {more}"),
        "hm-annealed": Row(f"{hm}, slope annealed{said}", f"{HM_STROKES} {SLOPES} {more}"),
        "hm-best": Row(f"{hm}, slope annealed, {SAID_BEST}{said}", f"{HM_STROKES} {SLOPES} {BEST} {more}"),
    }
    return Table(data, "iamondb", STROKES, rows, evaluations)


TABLES = {
    "ptb": Table(
        "Penn Treebank, characters", "ptb", PTB,
        {
            "ln-lstm": Row("LN-LSTM 3x512", f"--model.rnn ln-lstm {GAIN_LSTM}"),
            "ln-cw-rnn": Row("LN-CW-RNN 3x512, 12 epochs", f"--model.rnn cw-rnn {SHORT}"),
            "ln-cw-rnn-undropped": Row(
                "LN-CW-RNN 3x512, nothing dropped, 14 epochs", f"--model.rnn cw-rnn --train.epochs 14 {UNDROPPED}"
            ),
            "sample": Row(f"{HM}, sample", f"--detectors.estimator sample {STILL} {GAIN} --train.skip-nonfinite"),
            "sample-held": Row(
                f"{HM}, sample, rates held at 0.9, 0.6",
                f"--detectors.estimator sample {STILL} {USUAL} --train.skip-nonfinite",
            ),
            "soft": Row(f"{HM}, soft", f"--detectors.estimator soft {STILL} {GAIN}"),
            "step": Row(f"{HM}, step", f"{STILL} {GAIN}"),
            "step-annealed": Row(f"{HM}, step, slope annealed", GAIN),
            "held": Row(f"{HM}, step, slope annealed, rates held at 0.9, 0.6", USUAL),
            "held-best": Row(f"{HM}, step, slope annealed, rates held at 0.9, 0.6, {SAID_BEST}", f"{USUAL} {BEST}"),
            "words-best": Row(
                f"LN-HM-LSTM 768/1024/1024, step, slope annealed, word rates, {SAID_BEST}",
                f"{hierarchy('768 1024 1024', 1024, BEST)} --train.skip-nonfinite",
            ),
        },
    ),
    "ptb-long": long(),
    "ptb-regularisers": Table(
        "Penn Treebank, characters", "ptb", f"{PTB} --train.epochs 6",
        {
            "held": Row(f"{HM}, rates held at 0.9, 0.6", USUAL),
            "held-higher": Row(f"{HM}, rates held at 0.95, 0.85", f"{GAIN} {HELD.format('0.95 0.85')}"),
            "held-lower": Row(f"{HM}, rates held at 0.8, 0.4", f"{GAIN} {HELD.format('0.8 0.4')}"),
            "held-lower-2": Row(f"{HM}, rates held at 0.9, 0.4", f"{GAIN} {HELD.format('0.9 0.4')}"),
            "held-lower-1": Row(f"{HM}, rates held at 0.7, 0.6", f"{GAIN} {HELD.format('0.7 0.6')}"),
            **{
                f"{name}learning-rate-{rate}": Row(
                    f"{net}, learning rate {rate}", f"{flags} --train.learning-rate {rate}"
                )
                for name, net, flags in NETWORKS
                for rate in (0.001, 0.004)
            },
            **tuned(),
            "zoneout": Row(
                f"{HM}, rates held at 0.9, 0.6, zoneout 0.05",
                f"{USUAL} --regularise.zoneout 0.05",
            ),
            **{
                f"{name}weight-decay{suffix}": Row(
                    f"{net}, weight decay {decay}", f"{flags} --regularise.weight-decay {decay}"
                )
                for name, net, flags in NETWORKS
                for suffix, decay in (("", 0.05), ("-0.2", 0.2))
            },
            "average": Row(
                f"{HM}, rates held at 0.9, 0.6, weights averaged over 1000 updates",
                f"{USUAL} --regularise.average 0.999",
            ),
            "hold": Row(f"{HM}, rates held at 0.9, 0.6, on_copy hold", f"{USUAL} --detectors.on-copy hold"),
            "plateau": Row(
                f"{HM}, rates held at 0.9, 0.6, no cool-down, rate divided on a plateau",
                f"{USUAL} --train.cool-down 0 --train.patience 1",
            ),
            "bias": Row(f"{HM}, detectors' bias 1 at the start", f"{GAIN} --detectors.bias 1"),
            "no-layer-norm": Row(
                "HM-LSTM 3x512, rates held at 0.9, 0.6", f"--model.no-layer-norm {HELD.format('0.9 0.6')}"
            ),
            "ln-lstm-zoneout": Row(
                "LN-LSTM 3x512, zoneout 0.05", f"--model.rnn ln-lstm {GAIN_LSTM} --regularise.zoneout 0.05"
            ),
            "ln-cw-rnn": Row("LN-CW-RNN 3x512, nothing dropped, 12 epochs", f"--model.rnn cw-rnn {SHORT} {UNDROPPED}"),
        },
    ),
    "ptb-baselines": baselines(),
    "ptb-large": large(),
    "ptb-cell": penn(),
    "ptb-without-spaces": Table(
        "Penn Treebank, characters, spaces removed", "ptb", SPACELESS,
        {
            "free": Row(HM, GAIN_FIRST),
            "prior": Row(f"{HM}, rate prior 0.22, 0.05", f"{GAIN_FIRST} {PRIOR}"),
            "words": Row(
                f"{HM}, rate prior 0.9, 0.21, pulled to uncertainty",
                f"--train.epochs 16 {GAIN} {HELD.format('0.9 0.21')} {UNCERTAIN}",
            ),
            "words-few": Row(
                f"{HM}, rate prior 0.9, 0.12, pulled to uncertainty", f"{STEERED} {HELD.format('0.9 0.12')} {UNCERTAIN}"
            ),
            "words-many": Row(
                f"{HM}, rate prior 0.9, 0.3, pulled to uncertainty", f"{STEERED} {HELD.format('0.9 0.3')} {UNCERTAIN}"
            ),
            "words-prior": Row(f"{HM}, rate prior 0.9, 0.21, not pulled", f"{STEERED} {HELD.format('0.9 0.21')}"),
            "hold": Row(f"{HM}, hold", f"{GAIN_FIRST} --detectors.on-copy hold"),
            "hold-prior": Row(f"{HM}, hold, rate prior 0.22, 0.05", f"{GAIN_FIRST} --detectors.on-copy hold {PRIOR}"),
        },
        ("--boundaries",),
    ),
    "enwik8": wikipedia("enwik8", "enwik8", 7, epochs_dropped=13, epochs_heavy=17),
    "enwik8-cell": cell(),
    "enwik8-frontier": frontier(),
    "text8": wikipedia("text8 made from enwik8", "text8", 3),
    "iamondb": handwriting("IAM-OnDB, the paper's protocol", "", ("", "--boundaries")),
    "iamondb-weight-drop": handwriting("IAM-OnDB, the paper's protocol", STROKES_DROPPED, ("", "--boundaries")),
    "iamondb-official": handwriting("IAM-OnDB, official split", f"{STROKES_DROPPED} --data.split official"),
}  # fmt: skip
