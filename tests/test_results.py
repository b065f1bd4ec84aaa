"""The recorded results: complete, and the tables made from them up to date."""

import argparse
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from hmrnn.cli.settings import train_arguments
from hmrnn.config import Config

pytestmark = tiny.needs_results
RESULTS = Path(__file__).parents[1] / "results"


def test_the_tables_are_those_of_the_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["table.py", "--check"])
    script = tiny.script(RESULTS / "table.py")
    script.main()  # or it exits, and says which page is out of date
    monkeypatch.setattr(sys, "argv", ["table.py", "ptb-search"])  # on no page
    script.main()
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| LN-")]) == 31


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*/result.json")), ids=lambda path: path.parent.name)
def test_a_result_agrees_with_its_curve_and_config(path: Path) -> None:
    result = json.loads(path.read_text())
    lines = [json.loads(line) for line in (path.parent / "curve.jsonl").read_text().splitlines()]
    best = min((line for line in lines if line["validation"] is not None), key=lambda line: line["validation"])
    validation = result["validation_bits" if "validation_bits" in result else "validation_nats"]
    assert best["validation"] == pytest.approx(validation, abs=1e-6)
    assert best["epoch"] == result["best_epoch"]
    assert result["seconds"] == lines[-1]["seconds"]
    assert result["epochs"] == pytest.approx(lines[-1]["epoch"], abs=0.06)  # rounded to one digit
    assert [math.ceil(line["epoch"]) for line in lines] == list(range(1, len(lines) + 1))
    assert all(len(line["rates"]) == len(result["test"]["rates"]) for line in lines)
    config = json.loads((path.parent / "config.json").read_text())
    assert result["seed"] == config["train"]["seed"]
    assert not any(Path(place).is_absolute() for place in config["data"].get("path", ()))  # of one's own machine
    assert re.match(r"[0-9a-f]{7}\b", result["commit"])


def test_results_are_small() -> None:
    """Curves instead of metrics, no logs, pages that can be read."""
    files = [path for path in RESULTS.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 3_000_000
    assert not [path for path in files if path.name in ("metrics.jsonl", "log.txt")]
    assert len((RESULTS / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_resolve(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    assert links
    for link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings], link


METRICS = [
    {"event": "train", "step": 10, "epoch": 0.9, "nats": -100.0, "rates": [0.5], "seconds": 1.0},
    {"event": "train", "step": 12, "epoch": 1.0, "nats": -400.0, "rates": [0.5], "seconds": 1.5},
    {"event": "detector", "step": 12, "epoch": 1.0, "layer": 1},
    {"event": "valid", "step": 12, "epoch": 1.0, "nats": -300.0, "rates": [0.25]},
    {"event": "train", "step": 30, "epoch": 1.2, "nats": -1000.0, "rates": [0.5], "seconds": 2.0},
    {"event": "train", "step": 40, "epoch": 1.8, "nats": -1400.0, "rates": [0.75], "seconds": 3.0},
]


def test_a_curve_has_one_line_per_epoch() -> None:
    """Means weighted by updates; the second epoch was not finished, so it has no validation."""
    assert tiny.script(RESULTS / "reproduce.py").curve(METRICS) == [
        {"epoch": 1.0, "training": -150.0, "validation": -300.0, "rates": [0.25], "seconds": 1.5},
        {"epoch": 1.8, "training": -1142.857143, "validation": None, "rates": [0.75], "seconds": 3.0},
    ]


def test_a_finished_run_is_recorded_as_three_files(tmp_path: Path) -> None:
    script, table = (tiny.script(RESULTS / f"{name}.py") for name in ("reproduce", "table"))
    run, into = tmp_path / "runs" / "hm-seed7", tmp_path / "out" / "hm-seed7"
    run.mkdir(parents=True)
    (run / "config.json").write_text(
        json.dumps({"data": {"path": ["/one/lines"]}, "train": {"device": "cpu", "precision": "bf16"}})
    )
    lines = [line | {"symbols_per_second": 1000 * k} if line["event"] == "train" else line
             for k, line in enumerate(METRICS)]  # fmt: skip
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    row = script.Row("HM", "")
    tests = [{"log_likelihood": 310.0, "rates": [0.25], "saved": 0.5}, {"boundaries": [], "saved": 0.1}]
    script.record(script.TABLES["iamondb"], row, 7, run, into, "model: 1,234 parameters", tests)
    assert sorted(path.name for path in into.iterdir()) == ["config.json", "curve.jsonl", "result.json"]
    assert json.loads((into / "config.json").read_text())["data"] == {"path": ["data/lines"]}
    ((name, result),) = table.results(into.parent)
    assert name == "hm-seed7"
    assert (result["parameters"], result["seed"], result["validation_nats"]) == (1234, 7, -300.0)
    assert (result["epochs"], result["best_epoch"], result["seconds"]) == (1.8, 1.0, 3.0)
    assert result["characters_per_second"] == 2500
    assert result["test"] == tests[0] | {"boundaries": []}
    assert table.training(into) == pytest.approx(-1142.857, abs=0.001)


AGAIN = sorted(path for path in RESULTS.glob("*/*/test-*.json") if path.name != "test-dynamic.json")


@pytest.mark.parametrize("path", AGAIN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_model_evaluated_again_gives_the_same(path: Path) -> None:
    """As one stream, or on a CPU with weights in half precision: within 0.0001 bits or 0.05 nats."""
    again, test = (json.loads(file.read_text()) for file in (path, path.parent / "result.json"))
    test = test["test"]
    read = ("symbols", "sequences", "points", "text", "strokes")
    assert [again.get(name) for name in read] == [test.get(name) for name in read]
    assert ("bits" in again, "log_likelihood" in again) == ("bits" in test, "log_likelihood" in test)
    if "bits" in test:
        assert again["bits"] == pytest.approx(test["bits"], abs=0.0001)
    else:
        assert again["log_likelihood"] == pytest.approx(test["log_likelihood"], abs=0.05)
    assert again["rates"] == pytest.approx(test["rates"], abs=0.0002)


def test_the_page_has_the_figures_of_the_files_it_links_to() -> None:
    links = re.findall(r"\[(\d+\.(\d+))\]\((\S+/test-[\w-]+\.json)\)", (RESULTS / "rows.md").read_text())
    assert {RESULTS / file for _, _, file in links} & set(AGAIN)
    for figure, digits, file in links:
        test = json.loads((RESULTS / file).read_text())
        assert figure == f"{test.get('bits', test.get('log_likelihood')):.{len(digits)}f}", file


def test_rates_and_decay_are_compared_by_what_was_measured() -> None:
    """The best learning rates and weight decays, against the validation of the runs with those settings."""
    runs = [path.parent for name in ("ptb-regularisers", "ptb-gains") for path in RESULTS.glob(f"{name}/*/result.json")]
    measured = {}
    for run in runs:
        config, result = (json.loads((run / f"{name}.json").read_text()) for name in ("config", "result"))
        train, regularise = config["train"], config["regularise"]
        network = {"hm-lstm": "HM-LSTM", "ln-lstm": "LN-LSTM"}.get(config["model"]["rnn"])
        usual = train["recurrent_gain"] == 1 if network == "LN-LSTM" else config["detectors"]["rates"] == [0.9, 0.6]
        odd = regularise["zoneout"] or regularise["average"] or config["detectors"]["on_copy"] != "evaluate"
        if network and usual and not odd and train["cool_down"] and config["model"]["layer_norm"]:
            less = regularise["weight_drop"] == 0.15
            key = network, train["learning_rate"], regularise["weight_decay"], less
            assert key not in measured
            measured[key] = f"{result['validation_bits']:.4f}"
    page = (RESULTS / "searches.md").read_text()
    found = [json.loads((run / "result.json").read_text()) for run in runs]
    for heading, figures in (
        ("Regularisers", [one["validation_bits"] for one in found]),
        ("Initial gains", [figure for one in found for figure in (one["validation_bits"], one["test"]["bits"])]),
    ):
        section = page.partition(f"\n## {heading}")[2].partition("\n## ")[0]
        said = set(re.findall(r"\b1\.\d{4}\b", section))
        assert len(said) > 8
        assert said <= {f"{figure:.4f}" for figure in figures}, heading
    for less in (False, True):
        for network in ("HM-LSTM", "LN-LSTM"):
            runs_of = {key[1:3]: figure for key, figure in measured.items() if (key[0], key[3]) == (network, less)}
            rate, decay = min(runs_of, key=lambda settings: runs_of[settings])
            assert re.search(rf"{runs_of[rate, decay]}[^()]*\({rate:g}, {decay:g}\)", page), (network, less)


@pytest.mark.parametrize(
    ("rate", "dead"), [(0.0, True), (0.0019, True), (0.002, False), (0.98, False), (0.981, True), (1.0, True)]
)
def test_a_row_with_a_dead_level_is_marked(rate: float, dead: bool, tmp_path: Path) -> None:
    """In the table of text and in that of seeds, whichever level it is; other seeds stay as they are."""
    table = tiny.script(RESULTS / "table.py")
    assert table.dead(rate) is dead
    mark = " (dead)" if dead else ""
    for levels, shown in (([rate, 0.5], f"{rate:.3f}{mark}, 0.500"), ([0.5, rate], f"0.500, {rate:.3f}{mark}")):
        for seed, bits, rates in ((1, 1.25, [0.5, 0.5]), (2, 1.5, levels)):
            shutil.copytree(RESULTS / "ptb/step-seed1", tmp_path / str(seed), dirs_exist_ok=True)
            result = json.loads((tmp_path / str(seed) / "result.json").read_text())
            result |= {"seed": seed, "test": result["test"] | {"bits": bits, "rates": rates}}
            (tmp_path / str(seed) / "result.json").write_text(json.dumps(result))
        assert [row.split(" | ")[5] for row in table.table(tmp_path).splitlines()[2:]] == ["0.500, 0.500", shown]
        (row,) = table.table_of_seeds(tmp_path).splitlines()[2:]
        assert row.split(" | ")[1:3] == [f"1.2500, 1.5000{mark}", "1.3750"]


def test_a_table_of_handwriting(tmp_path: Path) -> None:
    table = tiny.script(RESULTS / "table.py")
    given = json.loads((RESULTS / "ptb/step-seed1/result.json").read_text())
    del given["validation_bits"]
    for name, nats, rates in (("lstm", 1000.4, []), ("hm", 1100.6, [0.3, 0.0])):
        scores = [{"name": f"level {l}", "tolerance": {"0": {"f1": 0.1 * l}}} for l in (1, 2) if rates]
        test = {"log_likelihood": nats, "rates": rates, "saved": 0.5, "boundaries": scores}
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"detectors": {"estimator": "step"}}')
        (tmp_path / name / "curve.jsonl").write_text('{"training": -100.0}\n{"training": -1133.3}\n')
        result = given | {"model": name, "validation_nats": -nats + 10, "test": test}
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    hm, lstm = table.table_of_strokes(tmp_path).splitlines()[2:]
    assert "| 1133 | 1091 | 1101 | 0.300, 0.000 (dead) | 50 % |" in hm  # training of the last epoch
    assert hm.endswith("| 0.10, 0.20 |")
    assert "| 1133 | 990 | 1000 | - | - |" in lstm
    (tmp_path / "hm/result.json").write_text(json.dumps(given))
    with pytest.raises(SystemExit, match="missing validation_bits or validation_nats"):
        table.table_of_strokes(tmp_path)


def test_the_best_runs_of_a_folder_are_chosen_by_validation_not_by_test(tmp_path: Path) -> None:
    table = tiny.script(RESULTS / "table.py")
    given = json.loads((RESULTS / "ptb/step-seed1/result.json").read_text())
    runs = (("a", "hm-lstm", 1.3, 1.1), ("b", "hm-lstm", 1.2, 1.25), ("c", "ln-lstm", 1.4, 1.3))
    for name, rnn, validation, bits in runs:
        shutil.copytree(RESULTS / "ptb/step-seed1", tmp_path / name)
        (tmp_path / name / "config.json").write_text(json.dumps({"model": {"rnn": rnn}}))
        result = given | {"validation_bits": validation, "test": given["test"] | {"bits": bits}}
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    assert [name for name, _ in table.best(tmp_path)] == ["b", "c"]
    assert [row.split(" | ")[2:4] for row in table.table_of_best(tmp_path).splitlines()[2:]] == [
        ["1.2000", "1.2500"], ["1.4000", "1.3000"],
    ]  # fmt: skip


@pytest.mark.parametrize(("epochs", "shown"), [(24, "24"), (34.0, "34"), (32.3, "32.3")])
def test_epochs_of_a_row(epochs: float, shown: str) -> None:
    table = tiny.script(RESULTS / "table.py")
    run = RESULTS / "ptb/step-seed1"
    assert table.cost(run, json.loads((run / "result.json").read_text()) | {"epochs": epochs})[2] == shown


def test_soft_boundaries_save_nothing() -> None:
    table = tiny.script(RESULTS / "table.py")
    for name, shown in (("soft-seed1", "-"), ("step-seed1", "35 %")):
        run = RESULTS / "ptb" / name
        assert table.saved(run, json.loads((run / "result.json").read_text())["test"]) == shown


def test_dynamic_evaluation_is_a_row_of_its_own_and_marked(tmp_path: Path) -> None:
    table = tiny.script(RESULTS / "table.py")
    shutil.copytree(RESULTS / "ptb/step-seed1", tmp_path / "run")
    given = json.loads((tmp_path / "run/result.json").read_text())
    assert len(table.row(tmp_path / "run", given).splitlines()) == 1
    (tmp_path / "run/test-dynamic.json").write_text(json.dumps({"bits": 1.1, "rates": [0.5, 0.2], "saved": 0.4}))
    plain, dynamic = table.row(tmp_path / "run", given).splitlines()
    assert f"| {given['test']['bits']:.4f} |" in plain
    assert "not comparable" in dynamic
    assert "| 1.1000 (dynamic) | 0.500, 0.200 | 40 % |" in dynamic
    assert dynamic.count("|") == plain.count("|")


def matters(setting: str, config: Config) -> bool:
    """Whether a setting has an effect; recorded runs have all kinds of values where it has none."""
    if setting == "train.recurrent_gain":
        return config.train.recurrent_gain is not None
    if setting == "detectors.slope":
        return config.model.detectors > 0 and config.detectors.slope[0] > 0
    if setting == "detectors.pull_to":
        return config.detectors.pull_weight > 0
    return config.model.detectors > 0 or not setting.startswith("detectors.")


def test_every_row_that_can_be_reproduced_is_a_command_with_the_settings_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tiny.script(RESULTS / "reproduce.py")
    options = argparse.Namespace(path=["DIR"], device="auto", precision="bf16", more="")
    rows = [(name, row) for name, table in script.TABLES.items() for row in table.rows]
    made = [script.command(script.TABLES[name], script.TABLES[name].rows[row], 1, options) for name, row in rows]
    for words, (name, row) in zip(made, rows):
        assert words[0] == "train"
        config = train_arguments([*words[1:], "--out", "run"]).config
        config.check()
        for run in (RESULTS / name).glob(f"{row}-seed*"):
            assert not [what for what in tiny.differences(run, config) if matters(what, config)], run
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "text8", "--list", "--seeds", "1"])
    script.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("# ln-lstm: LN-LSTM 3x1024 (recorded: 1.3760)"), printed[0]
    listed = [shlex.split(line)[1:] for line in printed if not line.startswith("#")]
    expected = [(words, row) for words, (name, row) in zip(made, rows) if name == "text8"]
    assert listed == [[*words, "--out", f"runs/text8/{row}-seed1"] for words, row in expected]
    for arguments, message in (([], "--path is missing"), (["--path", "nowhere"], "there is no nowhere")):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", "ptb", *arguments])
        with pytest.raises(SystemExit) as end:
            script.main()
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_a_row_trained_again_stands_beside_the_recorded_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In a copy of the project, where all rows are recorded, it is trained nevertheless; the second time not."""
    script = tiny.script(RESULTS / "reproduce.py")
    again = []
    recorded = json.loads((RESULTS / "text8/held-seed1/result.json").read_text())["test"]["bits"]

    def run(arguments: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if "train" in arguments:
            directory = Path(arguments[arguments.index("--out") + 1])
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "metrics.jsonl").write_text('{"event": "train"}')
            again.append(arguments[-1] if arguments[-2] != "--out" else "")
        return subprocess.CompletedProcess(arguments, 0, stdout='{"bits": 1.5}')

    def record(table: object, row: object, seed: int, run: Path, into: Path, *_: object) -> None:
        into.mkdir(parents=True)
        (into / "result.json").write_text("{}")

    monkeypatch.setattr(script.subprocess, "run", run)
    monkeypatch.setattr(script, "record", record)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/text8/held-seed8").mkdir(parents=True)  # killed before its first checkpoint
    (tmp_path / "runs/text8/held-seed9/last-00000010").mkdir(parents=True)
    for seed, beside in ((1, f"(recorded: {recorded:.4f})"), (8, "(not recorded)"), (9, "(not recorded)")):
        arguments = ["text8", "--path", str(tmp_path), "--rows", "held", "--seeds", str(seed)]
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
        script.main()
        said = capsys.readouterr()
        assert said.out == f"runs/results/text8/held-seed{seed}: 1.5000 {beside}\n"
        assert f"runs/text8/held-seed{seed}.log" in said.err  # where to look meanwhile
        script.main()
        assert "is there already" in capsys.readouterr().out
    assert again == ["", "--overwrite", "--resume"]
