"""Seconds, against figures worked out by hand. Case sim-01: what a collective's bytes are."""

import numpy as np
import pytest

from gpt_numpy.cost import CONSTANTS, Constants, Cost
from gpt_numpy.hardware import GPUS

A100 = GPUS["a100"]
PLAIN = A100._replace(nvlink=100e9, nvlink_latency=0.0)
FULL = CONSTANTS._replace(nvlink=1.0)
BF16, FP32 = np.dtype([("bfloat16", np.uint16)]), np.dtype(np.float32)


def test_a_rings_time_follows_from_the_whole_buffer():
    ring = Cost(PLAIN, FULL)
    assert ring.collective("all_reduce", 8, 1e9, range(8)) == pytest.approx(17.5e-3)
    for op in ("all_gather", "reduce_scatter"):
        assert ring.collective(op, 8, 8 * 125e6, range(8)) == pytest.approx(8.75e-3)
    assert ring.collective("all_reduce", 1, 1e9, range(1)) == 0
    assert ring.collective("all_reduce", 2, 1e9, range(2)) == pytest.approx(10e-3)
    slow = Cost(PLAIN._replace(nvlink_latency=5e-6), FULL)
    assert slow.collective("all_reduce", 8, 1e9, range(8)) == pytest.approx(17.57e-3)  # 14 steps
    assert slow.collective("send", 2, 1e9, (3, 4)) == pytest.approx(10.005e-3)
    assert slow.collective("barrier", 8, 0, range(8)) == pytest.approx(35e-6)


@pytest.mark.parametrize("ranks, cards", [
    (range(0, 64, 8), 1), (range(3, 67, 8), 1), (range(0, 64, 4), 2), (range(0, 64, 2), 4),
    ((0, 8), 1), ((8, 0), 1), ((7, 8), 1),
])  # fmt: skip
def test_across_nodes_a_ring_has_a_network_card_for_each_of_its_ranks_in_a_node(ranks, cards):
    assert Cost(A100).link(ranks) == (cards * 25e9, A100.nic_latency)


def test_inside_a_node_and_at_most_at_its_speed_the_link_is_nvlink():
    share = 300e9 * CONSTANTS.nvlink
    for ranks in (range(8), range(8, 16), (5, 7), (7, 5)):
        assert Cost(A100).link(ranks) == (share, A100.nvlink_latency)
    assert Cost(A100).link(range(32)) == (min(share, 200e9), A100.nic_latency)
    assert Cost(A100._replace(nvlink=100e9), FULL).link(range(32))[0] == 100e9


def test_a_kernel_takes_the_larger_of_arithmetic_and_memory_and_a_launch():
    c = Constants(matmul=0.5, short_k=100, launch=1e-5, memory=0.5, flash_1=0.25, flash_2=0.5)
    cost, big = Cost(A100, c), (1, 1000, 2000, 300)
    time = 2 * 1000 * 2000 * (300 + 100) / (312e12 * 0.5)
    assert cost.kernel("matmul", [big], 0, 0, BF16) == pytest.approx(1e-5 + time)
    assert cost.kernel("matmul", [big] * 2, 0, 0, FP32) == pytest.approx(1e-5 + 4 * time)
    assert cost.kernel("add", [], 10, 2.039e9, BF16) == pytest.approx(1e-5 + 2e-3)
    assert cost.kernel("exp", [], 19.5e9, 0, BF16) == pytest.approx(1e-5 + 1e-3)
    assert cost.kernel("matmul", [big], 0, 2.039e9, BF16) == pytest.approx(1e-5 + 2e-3)
    for version, share in ((1, 0.25), (2, 0.5)):
        seconds = Cost(A100, c, version).kernel("flash_attend backward", [big], 1e12, 0, BF16)
        assert seconds == pytest.approx(1e-5 + 2 * 1000 * 2000 * 300 / (312e12 * share))


def test_there_are_ten_constants_at_most_and_shares_are_shares():
    assert len(Constants._fields) <= 10
    shares = CONSTANTS._replace(short_k=1, launch=1)
    assert all(0 < share <= 1 for share in shares)
    assert CONSTANTS.flash_2 == Constants().flash_2  # from its paper, not from a fit
