# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory, products, copies and collectives with a stack's own torch. That stack's Python runs this file alone.

``bench_torch.py memory|gemm|copy|collectives|peer_access DEVICE CARDS`` where DEVICE is cpu or xpu. The last line of
the standard output is ``{"measures": {id: GB/s or TFLOP/s}}`` or ``{"error": text}``. On a processor everything is
smaller.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

MIB = 1024 * 1024
# Bytes of one memory buffer and of a collective, edge of a product, rounds.
SIZES = {"cpu": (256 * MIB, 16 * MIB, 1024, 5), "xpu": (1024 * MIB, 128 * MIB, 8192, 20)}
COLLECTIVES = ("allreduce", "allgather", "alltoall")
# oneCCL has other ways for small messages, such as those of one token, than for large ones.
PEER_SIZES = (16 * 1024, MIB, 128 * MIB)


def best(action: Callable[[], Any], finish: Callable[[], Any], rounds: int) -> float:
    """Return the median seconds of ``rounds`` actions, after two that don't count."""
    times = []
    for number in range(rounds + 2):
        begun = time.perf_counter()
        action()
        finish()
        if number >= 2:
            times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 2]


def waiter(torch: Any, device: str) -> Callable[[], Any]:
    return torch.xpu.synchronize if device == "xpu" else lambda: None


def names(device: str, cards: int) -> list[str]:
    return [f"xpu:{card}" for card in range(cards)] if device == "xpu" else ["cpu"]


def memory(torch: Any, device: str, cards: int) -> dict[str, float]:
    """Measure a copy within each card's memory (read and written bytes count), and between host and card."""
    size, _collective, _edge, rounds = SIZES[device]
    found = {}
    for number, place in enumerate(names(device, cards)):
        one = torch.ones(size // 4, dtype=torch.float32, device=place)
        two = torch.empty_like(one)
        seconds = best(partial(two.copy_, one), waiter(torch, device), rounds)
        label = f"memory.card{number}" if device == "xpu" else "memory.host"
        found[f"{label}.copy"] = 2 * size / seconds / 1e9
        if device == "xpu":
            host = torch.ones(size // 4, dtype=torch.float32).pin_memory()
            up = best(partial(two.copy_, host, non_blocking=True), waiter(torch, device), rounds)
            down = best(partial(host.copy_, two, non_blocking=True), waiter(torch, device), rounds)
            found[f"{label}.torch_h2d"], found[f"{label}.torch_d2h"] = size / up / 1e9, size / down / 1e9
    return found


def gemm(torch: Any, device: str, cards: int) -> dict[str, float]:
    """Measure a square product on each card, and check its result."""
    _size, _collective, edge, rounds = SIZES[device]
    found = {}
    kinds = {"float32": torch.float32} if device == "cpu" else {"bfloat16": torch.bfloat16, "float16": torch.float16}
    for number, place in enumerate(names(device, cards)):
        for kind, dtype in kinds.items():
            one = torch.full((edge, edge), 0.5, dtype=dtype, device=place)
            two = torch.full((edge, edge), 0.25, dtype=dtype, device=place)
            out = torch.empty((edge, edge), dtype=dtype, device=place)
            seconds = best(partial(torch.mm, one, two, out=out), waiter(torch, device), rounds)
            if float(out[0, 0]) != edge / 8 or float(out[-1, -1]) != edge / 8:
                raise ValueError(f"{place} multiplies {kind} wrongly: {float(out[0, 0])} instead of {edge / 8}")
            label = f"gemm.card{number}" if device == "xpu" else "gemm.host"
            found[f"{label}.{kind}"] = 2 * edge**3 / seconds / 1e12
    return found


def copy(torch: Any, device: str, cards: int) -> dict[str, float]:
    """Measure a copy from every card to every other one, and check it."""
    size, _collective, _edge, rounds = SIZES[device]
    found = {}
    for source in range(cards):
        for target in range(cards):
            if source == target:
                continue
            one = torch.full((size // 4,), float(source + 1), dtype=torch.float32, device=f"xpu:{source}")
            two = torch.zeros(size // 4, dtype=torch.float32, device=f"xpu:{target}")
            seconds = best(partial(two.copy_, one), waiter(torch, device), rounds)
            if float(two[-1]) != source + 1:
                raise ValueError(f"what card {source} gave did not arrive at card {target}")
            found[f"p2p.torch.{source}-{target}"] = size / seconds / 1e9
    return found


def reduced(dist: Any, mine: Any, result: Any) -> None:
    result.copy_(mine)  # a sum in place would grow from round to round
    dist.all_reduce(result)


def one_rank(rank: int, ranks: int, device: str, meeting: str, out: str, sizes: dict[str, int]) -> None:
    import torch
    import torch.distributed as dist

    rounds = SIZES[device][-1]
    place = f"xpu:{rank}" if device == "xpu" else "cpu"
    if device == "xpu":
        torch.xpu.set_device(rank)
    backend = "xccl" if device == "xpu" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    dtype = torch.float16 if device == "xpu" else torch.float32
    finish, found = waiter(torch, device), {}
    for name, size in sizes.items():
        part = size // torch.empty(0, dtype=dtype).element_size() // ranks
        # Small integers, which both types hold exactly: data in a wrong place is found, and data that did not arrive.
        pattern = torch.arange(part * ranks, dtype=torch.int32, device=place).remainder_(7).to(dtype)
        mine = pattern + (rank + 1)
        for collective in COLLECTIVES:
            result = torch.empty_like(mine)
            if collective == "allreduce":
                action: Callable[[], Any] = partial(reduced, dist, mine, result)
                right, factor = pattern * ranks + ranks * (ranks + 1) // 2, 2.0
            elif collective == "allgather":
                action = partial(dist.all_gather_into_tensor, result, mine[:part].contiguous())
                right, factor = torch.cat([pattern[:part] + other + 1 for other in range(ranks)]), 1.0
            else:
                action = partial(dist.all_to_all_single, result, mine)
                own = pattern[rank * part : (rank + 1) * part]
                right, factor = torch.cat([own + other + 1 for other in range(ranks)]), 1.0
            dist.barrier()
            seconds = best(action, finish, rounds)
            result.zero_()  # what an earlier round left is no result
            action()
            finish()
            if not torch.equal(result, right):
                wrong = int((result != right).sum())
                raise ValueError(
                    f"{collective} of {size} bytes: {wrong} of {part * ranks} values of rank {rank} are wrong"
                )
            found[name.format(collective)] = size / seconds * factor * (ranks - 1) / ranks / 1e9
    dist.destroy_process_group()
    if rank == 0:
        with open(out, "w", encoding="utf-8") as stream:
            json.dump(found, stream)


def among_all(torch: Any, device: str, cards: int, sizes: dict[str, int]) -> dict[str, float]:
    """Measure the bus bandwidth of collectives among all cards, or two processes; every rank checks its results.

    :param sizes: bytes of each measure, by its name with a place for the collective.
    """
    ranks = cards if device == "xpu" else 2
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        arguments = (ranks, device, os.path.join(folder, "meeting"), out, sizes)
        torch.multiprocessing.spawn(one_rank, args=arguments, nprocs=ranks, join=True)
        with open(out, encoding="utf-8") as stream:
            found: dict[str, float] = json.load(stream)
    return found


def collectives(torch: Any, device: str, cards: int) -> dict[str, float]:
    return among_all(torch, device, cards, {"collectives.{}": SIZES[device][1]})


def peer_access(torch: Any, device: str, cards: int) -> dict[str, float]:
    return among_all(torch, device, cards, {f"peer_access.{{}}.{size // 1024}KiB": size for size in PEER_SIZES})


def main() -> int:
    what, device, cards = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        import torch

        if device == "xpu" and torch.xpu.device_count() < cards:
            raise ValueError(f"torch sees {torch.xpu.device_count()} of {cards} cards: see doctor.yml")
        actions = {function.__name__: function for function in (memory, gemm, copy, collectives, peer_access)}
        answer: dict[str, Any] = {"measures": actions[what](torch, device, cards)}
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        answer = {"error": f"{type(error).__name__}: {lines[-1]}"[:300]}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    raise SystemExit(main())
