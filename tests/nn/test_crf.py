"""LinearChainCRF against enumeration of all sequences of tags."""

from __future__ import annotations

import itertools

import pytest
import torch

from hmrnn.nn.crf import LinearChainCRF

N, B, K = 4, 5, 3
COUNTED = torch.tensor([4, 1, 3, 2, 4])


@pytest.fixture
def crf() -> LinearChainCRF:
    torch.manual_seed(1)
    made = LinearChainCRF(K).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


@pytest.fixture
def emissions() -> torch.Tensor:
    return torch.randn(N, B, K, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def _all(crf: LinearChainCRF, emissions: torch.Tensor, b: int) -> dict[tuple[int, ...], float]:
    """The score of every sequence of tags, by its definition."""
    A, first, last = (p.detach() for p in (crf.transitions, crf.first, crf.last))
    scores = {}
    for tags in itertools.product(range(K), repeat=int(COUNTED[b])):
        total = first[tags[0]] + last[tags[-1]] + sum(emissions[n, b, tag] for n, tag in enumerate(tags))
        scores[tags] = float(total + sum(A[i, j] for i, j in itertools.pairwise(tags)))
    return scores


def test_nats_decoding_and_marginals_are_those_of_enumeration(crf: LinearChainCRF, emissions: torch.Tensor) -> None:
    log_z, marginals = crf.log_partition(emissions, COUNTED), crf.marginals(emissions, COUNTED)
    best = crf.decode(emissions, COUNTED)
    for b in range(B):
        scores = _all(crf, emissions, b)
        values = torch.tensor(list(scores.values()), dtype=torch.float64)
        torch.testing.assert_close(log_z[b], values.logsumexp(0))
        chances = dict(zip(scores, (values - values.logsumexp(0)).exp().tolist()))
        assert tuple(best[: COUNTED[b], b].tolist()) == max(scores, key=lambda tags: scores[tags])
        assert not best[COUNTED[b] :, b].any()
        for n in range(N):
            wanted = [sum(p for tags, p in chances.items() if n < len(tags) and tags[n] == k) for k in range(K)]
            torch.testing.assert_close(marginals[n, b], torch.tensor(wanted, dtype=torch.float64))
        tags = torch.zeros(N, B, dtype=torch.long)
        for sequence, p in itertools.islice(chances.items(), 5):
            tags[: len(sequence), b] = torch.tensor(sequence)
            nats = crf.nats(emissions, tags, COUNTED)[b]
            torch.testing.assert_close(nats.exp().reciprocal(), torch.tensor(p, dtype=torch.float64))


def test_gradients_are_exact(crf: LinearChainCRF, emissions: torch.Tensor) -> None:
    tags = torch.randint(K, (N, B), generator=torch.Generator().manual_seed(3))
    leaves = [emissions.requires_grad_(), crf.transitions, crf.first, crf.last]
    assert torch.autograd.gradcheck(lambda *_: crf.nats(emissions, tags, COUNTED), leaves)


def test_padding_has_no_influence(crf: LinearChainCRF, emissions: torch.Tensor) -> None:
    tags = torch.randint(K, (N, B), generator=torch.Generator().manual_seed(4))
    before = crf.nats(emissions, tags, COUNTED)
    changed = torch.where((torch.arange(N)[:, None] < COUNTED)[..., None], emissions, 1e6)
    torch.testing.assert_close(crf.nats(changed, tags, COUNTED), before)
