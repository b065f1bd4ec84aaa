"""Looks for settings with Optuna (pip install optuna), and stops runs early that fall behind.

python examples/optuna_search.py book.txt
"""

import sys

import optuna

import hmrnn


class Watch:
    """A callback of hmrnn.train: ends a run whose validations are worse than those of others; knows the best one."""

    def __init__(self, trial):
        self.trial, self.best = trial, float("inf")

    def on_validation(self, line):
        self.best = min(self.best, line["bits"])
        self.trial.report(line["bits"], line["step"])
        if self.trial.should_prune():
            raise optuna.TrialPruned


def search(run, trials, pruner=None):
    """A study of the learning rate and the weight decay of a run."""

    def objective(trial):
        settings = {
            "train.learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True),
            "regularise.weight_decay": trial.suggest_float("weight_decay", 0, 0.1),
        }
        watch = Watch(trial)
        hmrnn.train(run.changed(settings), callbacks=[watch])
        return watch.best

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1), pruner=pruner)
    study.optimize(objective, trials)
    return study


if __name__ == "__main__":
    print(search(hmrnn.Config.load(sys.argv[1]), 20).best_params)
