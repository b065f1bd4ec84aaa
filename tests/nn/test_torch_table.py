"""What holds of PyTorch for HMLSTM and hmrnn.nn.LSTM: a test for each line of the table in docs/reference/torch.md."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.utils.flop_counter import FlopCounterMode

import hmrnn
from refusals import refused

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "torch.md"
T, B, INPUT, H = 5, 4, 3, 6
KINDS: dict[str, Any] = {"HMLSTM": hmrnn.HMLSTM, "LSTM": hmrnn.nn.LSTM}
LINES: dict[str, list[str]] = {}
"""For each line of the table the networks for which it does not hold."""


def line(name: str, *without: str) -> Callable[[Any], Any]:
    """A test of a line of the table, for both networks; it does not hold for those in ``without``."""
    LINES[name] = [*without]
    return pytest.mark.parametrize("kind", KINDS)


def test_the_table_has_these_lines() -> None:
    rows = [row.strip("| ").split(" | ") for row in PAGE.read_text().splitlines() if row.startswith("| ")][1:]
    assert {name: [kind for kind, cell in zip(KINDS, cells) if cell.startswith("no")] for name, *cells in rows} == LINES
    assert all(cell.startswith(("yes", "no")) for _, *cells in rows for cell in cells)


def network(kind: str, **options: Any) -> Any:
    return KINDS[kind](INPUT, H, 2, **options)


def hidden(out: Any) -> tuple[Any, ...]:
    """h at every step: of every layer of HMLSTM, of the top one of LSTM."""
    return out.hidden if isinstance(out, hmrnn.Output) else (out,)


def tensors(found: Any) -> list[Tensor]:
    """What a pass gives: h, then the state."""
    out, state = found
    ends = (*state.h, *state.c, state.z) if isinstance(state, hmrnn.State) else state
    return [*hidden(out), *ends]


def loss(found: Any) -> Tensor:
    return sum(a.square().sum() for a in tensors(found))  # type: ignore[return-value]


def same(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    for a, b in zip(tensors(found), tensors(wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance, check_dtype=False)


def steps(rnn: nn.Module, x: Tensor, processes: int = 1) -> None:
    """Two updates; gradients are averaged over processes."""
    optimizer = torch.optim.SGD(rnn.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (loss(rnn(x)) / processes).backward()
        optimizer.step()


@line("`torch.compile`")
def test_compile(kind: str) -> None:
    x = torch.randn(1, B, INPUT)
    for engine in {"HMLSTM": ["reference"], "LSTM": ["reference", "torch"]}[kind]:
        plain = network(kind, engine=engine)
        same(torch.compile(plain, backend="eager", fullgraph=True)(x), plain(x))
    broken = torch._dynamo.explain(network(kind))(x).break_reasons
    assert {(at := reason.user_stack[-1]).name for reason in broken} == {"hmlstm"}, at


@line("`torch.export`")
def test_export(kind: str) -> None:
    rnn, (x, other) = network(kind), torch.randn(2, 2, B, INPUT)
    exported = torch.export.export(rnn, (x,), dynamic_shapes=({1: torch.export.Dim.AUTO},)).module()
    same(exported(other[:, :2]), rnn(other[:, :2]))
    with pytest.raises(AssertionError):
        exported(other[:1])


class Stepping(nn.Module):
    def __init__(self, rnn: Any) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, state: Any) -> Any:
        return self.rnn.step(x, state) if isinstance(self.rnn, hmrnn.HMLSTM) else self.rnn(x[None], state)


@line("`torch.export` of a step")
def test_export_of_a_step(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    stepping, (_, state) = Stepping(rnn), rnn(x)
    found, wanted = torch.export.export(stepping, (x[0], state)).module()(x[1], state), stepping(x[1], state)
    torch.testing.assert_close(tuple(found), tuple(wanted))


@line("`torch.func.functional_call`")
def test_functional_call(kind: str) -> None:
    rnn, other, x = network(kind), network(kind), torch.randn(T, B, INPUT)
    same(torch.func.functional_call(rnn, dict(other.named_parameters()), (x,)), other(x))
    torch.func.grad(lambda p: loss(torch.func.functional_call(rnn, p, (x,))))(dict(other.named_parameters()))


@line("`torch.vmap` over models")
def test_vmap_over_models(kind: str) -> None:
    models, x = [network(kind) for _ in range(3)], torch.randn(T, B, INPUT)
    base = copy.deepcopy(models[0]).to("meta")
    found = torch.vmap(
        lambda p, b: tuple(tensors(torch.func.functional_call(base, (p, b), (x,))))
    )(*torch.func.stack_module_state(models))  # fmt: skip
    for k, model in enumerate(models):
        torch.testing.assert_close([a[k] for a in found], tensors(model(x)))


@line("`torch.autocast`")
def test_autocast(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    with torch.autocast("cpu", torch.bfloat16):
        found = rnn(x.bfloat16())
        loss(found).backward()
    assert {a.dtype for a in (*tensors(found), *(p.grad for p in rnn.parameters()))} == {torch.float32}
    same(found, rnn(x.bfloat16().float()))


@line("`copy.deepcopy`, `pickle`, `torch.save`")
def test_copies(kind: str) -> None:
    rnn, x, file = network(kind), torch.randn(T, B, INPUT), io.BytesIO()
    rnn(x)
    torch.save(rnn, file)
    file.seek(0)
    twins = [copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn)), torch.load(file, weights_only=False)]
    for twin in twins:
        steps(twin, x)
        same(twin(x), twins[0](x), 0)
        assert not torch.equal(twin.U[0], rnn.U[0])


@line("`.double()`, `.bfloat16()`")
def test_another_dtype(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    same(copy.deepcopy(rnn).double()(x.double()), rnn(x))
    assert {a.dtype for a in tensors(rnn.bfloat16()(x.bfloat16()))} == {torch.bfloat16}
    with refused("x"):
        rnn(x)


@line("`PackedSequence`")
def test_packed(kind: str) -> None:
    rnn, x, lengths = network(kind), torch.randn(T, B, INPUT), torch.tensor([2, 5, 1, 3])
    alone = [rnn(x[:n, k, None]) for k, n in enumerate(lengths)]
    for packed in (
        pack_padded_sequence(x, lengths, enforce_sorted=False),
        pack_sequence([x[:n, k] for k, n in enumerate(lengths)], enforce_sorted=False),
        pack_padded_sequence(x.transpose(0, 1), lengths, batch_first=True, enforce_sorted=False),
    ):
        out, state = rnn(packed)
        theirs, _ = nn.LSTM(INPUT, H)(packed)
        assert all(map(torch.equal, hidden(out)[-1][1:], theirs[1:]))  # batch sizes, and the order of sequences
        padded, ends = pad_packed_sequence(hidden(out)[-1])
        assert torch.equal(ends, lengths)
        for k, (n, (one, end)) in enumerate(zip(lengths, alone)):
            torch.testing.assert_close(padded[:n, k], hidden(one)[-1][:, 0])
            torch.testing.assert_close(state[0][-1][k], end[0][-1][0])


@line("one sequence, `(T, I)`")
def test_unbatched(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, INPUT)
    found = rnn(x)
    batched = rnn(x[:, None])
    assert all(torch.equal(a, b.squeeze(-2)) for a, b in zip(tensors(found), tensors(batched), strict=True))
    for a, b in zip(tensors(rnn(x, found[1])), tensors(rnn(x[:, None], batched[1])), strict=True):
        assert torch.equal(a, b.squeeze(-2))


@line("`batch_first`")
def test_batch_first(kind: str) -> None:
    rnn, turned, x = network(kind), network(kind, batch_first=True), torch.randn(T, B, INPUT)
    turned.load_state_dict(rnn.state_dict())
    (out, state), (other, end) = rnn(x), turned(x.transpose(0, 1))
    assert all(torch.equal(a.transpose(0, 1), b) for a, b in zip(hidden(out), hidden(other), strict=True))
    same((out, state), (out, end), 0)


def in_two_processes(folder: Path, work: Callable[[int], None]) -> None:
    """Do it in a group of two, with gloo."""
    children = []
    for rank in (0, 1):
        if (child := os.fork()) == 0:
            signal.alarm(60)
            try:
                dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
                work(rank)
                dist.destroy_process_group()
                os._exit(0)
            except BaseException:
                (folder / f"error.{rank}").write_text(traceback.format_exc())
            os._exit(1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0], [path.read_text() for path in folder.glob("error.*")]


def updated_alike(kind: str, wrap: Callable[[nn.Module], nn.Module]) -> Callable[[int], None]:
    """Two updates by halves of the batch are those of one process by the whole."""
    torch.manual_seed(1)
    rnn, x = network(kind), torch.randn(T, B, INPUT)

    def work(rank: int) -> None:
        wrapped = wrap(copy.deepcopy(rnn))
        steps(wrapped, x.chunk(2, dim=1)[rank])
        alone = copy.deepcopy(rnn)
        steps(alone, x, 2)
        for p, wanted in zip(wrapped.parameters(), alone.parameters(), strict=True):
            whole = p.full_tensor() if hasattr(p, "full_tensor") else p
            torch.testing.assert_close(whole, wanted)

    return work


@line("`DistributedDataParallel`")
def test_ddp(kind: str, tmp_path: Path) -> None:
    in_two_processes(tmp_path, updated_alike(kind, DistributedDataParallel))


@line("FSDP: `fully_shard`")
def test_fsdp(kind: str, tmp_path: Path) -> None:
    def sharded(rnn: nn.Module) -> nn.Module:
        made = fully_shard(rnn, mesh=init_device_mesh("cpu", (2,)))
        assert sum(p.to_local().numel() for p in made.parameters()) < sum(p.numel() for p in made.parameters())
        return made

    in_two_processes(tmp_path, updated_alike(kind, sharded))


@line("`torch.utils.flop_counter`")
def test_flops(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    with FlopCounterMode(display=False) as counter:
        found = rnn(x)
    same(found, rnn(x))
    assert counter.get_total_flops() == 2 * T * B * sum(p.numel() for p in rnn.parameters() if p.dim() == 2)
    rnn.engine = "native"
    with refused("engine"), FlopCounterMode(display=False):
        rnn(x)


@line("forward hooks")
def test_forward_hooks(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    wanted = rnn(2 * x)
    rnn.register_forward_pre_hook(lambda rnn, given: (2 * given[0],))
    rnn.register_forward_hook(lambda rnn, given, found: (*found, "seen"))
    *found, seen = rnn(x)
    same(found, wanted)
    assert seen == "seen"


@line("full backward hooks", "HMLSTM")
def test_backward_hooks(kind: str) -> None:
    rnn, x, seen = network(kind), torch.randn(T, B, INPUT, requires_grad=True), []
    if kind == "HMLSTM":
        for register in (rnn.register_full_backward_hook, rnn.register_full_backward_pre_hook):
            with refused():
                register(lambda *given: None)
        return
    rnn.register_full_backward_hook(lambda rnn, inputs, outputs: seen.append((inputs[0], outputs[0])))
    rnn(x)[0].sum().backward()
    assert torch.equal(seen[0][0], x.grad)  # type: ignore[arg-type]
    assert torch.equal(seen[0][1], torch.ones(T, B, H))


@line("parametrizations: weight norm and others")
@pytest.mark.parametrize(
    "of", [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_parametrizations(kind: str, of: Callable[..., nn.Module]) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    of(rnn.U, "1")
    steps(rnn, x)
    rnn.eval()
    found, U = rnn(x), rnn.U[1].detach()
    parametrize.remove_parametrizations(rnn.U, "1")
    assert torch.equal(rnn.U[1], U)
    same(found, rnn(x), 0)


@line("`torch.nn.utils.prune`")
def test_prune(kind: str) -> None:
    rnn, x = network(kind), torch.randn(T, B, INPUT)
    prune.l1_unstructured(rnn.U, "0", amount=0.5)
    before = rnn.U[0].detach()
    steps(rnn, x)
    found = rnn(x)
    prune.remove(rnn.U, "0")
    assert ((rnn.U[0] == 0) == (before == 0)).all()
    assert (rnn.U[0] == 0).sum() == rnn.U[0].numel() // 2
    assert not torch.equal(rnn.U[0], before)
    same(found, rnn(x), 0)


@line("`state_dict` of an `nn.LSTM`", "HMLSTM")
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True}], ids=str)
def test_weights_of_torch(kind: str, options: dict[str, Any]) -> None:
    theirs, x = nn.LSTM(INPUT, H, 2, **options), torch.randn(T, B, INPUT)
    if kind == "HMLSTM":
        with pytest.raises(RuntimeError, match="weight_ih_l0"):
            network(kind).load_state_dict(theirs.state_dict())
        return
    model, whole = nn.Sequential(network(kind, **options)), nn.Sequential(theirs)
    model.load_state_dict(whole.state_dict())
    same(model(x), theirs(x))
    same(network(kind, **options).from_torch(theirs)(x), theirs(x))
    for wrong in (nn.LSTM(INPUT, H, 3), nn.LSTM(INPUT, H, 2, proj_size=2), nn.LSTM(INPUT, 8, 2), nn.GRU(INPUT, 8, 2)):
        with pytest.raises(RuntimeError):
            network(kind).load_state_dict(wrong.state_dict())


@line("`torch.jit.script`", *KINDS)
def test_script(kind: str) -> None:
    with pytest.raises(ValueError, match="annotation"):
        torch.jit.script(network(kind))
