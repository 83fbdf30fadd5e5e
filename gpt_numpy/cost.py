"""Seconds of a kernel and of a collective on a GPU: what makes time pass on a simulated device.

A kernel takes the larger of its arithmetic and its memory traffic, and a launch. A collective is a
ring: the bytes that each rank sends, over the slowest link of the ring, and a latency per step.
Peaks and bandwidths are those of hardware.py. What programs reach of them is in `Constants`, the
only numbers in the package that were fitted to measurements.
"""

from typing import NamedTuple

from gpt_numpy.flops import RING_ROUNDS, ring_seconds

VECTOR = 1 / 16  # of the matmul peak is that of other arithmetic: A100, 19.5 of 312 TFLOP/s


class Constants(NamedTuple):
    """What programs reach of the hardware. The defaults are what one expects before any fit.

    Refit with `python -m gpt_numpy.cluster --calibrate`; what it prints goes into CONSTANTS.
    """

    matmul: float = 0.85  # of the peak, by a matmul that sums over many k
    short_k: float = 800.0  # k: a matmul takes 1 + short_k / k times as long, since it also writes
    launch: float = 10e-6  # s per kernel
    memory: float = 0.8  # of the memory's bandwidth
    nvlink: float = 0.78  # of NVLink's bandwidth, by a ring
    flash_1: float = 0.3  # of the peak, by FlashAttention (arXiv 2205.14135)
    flash_2: float = 0.6  # by FlashAttention-2: "50-73%" (arXiv 2307.08691). No row to fit it to
    fixed: float = 0.3  # s per step on more than one node: data, host, what nothing else has
    stragglers: float = 0.01  # of the step per doubling of the nodes: the slowest sets the pace


PRIOR = Constants()
# Fitted to 8 runs and the times of a layer, to three digits. `memory` is so high because real
# programs fuse what is a kernel each here: adding biases and residuals.
CONSTANTS = Constants(
    matmul=0.902, short_k=847, launch=10.9e-6, memory=0.973, nvlink=0.803, flash_1=0.284,
    fixed=0.298, stragglers=0.00863,
)  # fmt: skip


class Cost:
    """Seconds on a GPU of hardware.py, in the form that device.py and mesh.py ask for."""

    def __init__(self, gpu, constants=CONSTANTS, flash=2):
        """flash: the version of FlashAttention that flash_attend is."""
        self.gpu, self.constants = gpu, constants
        self.flash = constants.flash_1 if flash == 1 else constants.flash_2

    def kernel(self, name, matmuls, flops, nbytes, dtype):
        """Seconds of a kernel: matmuls (batch, m, n, k), other flops, bytes read and written."""
        c, peak = self.constants, self.gpu.peak * 2 / max(2, dtype.itemsize)  # fp32 as TF32: half
        if name.startswith("flash_attend"):
            compute = sum(2 * b * m * n * k for b, m, n, k in matmuls) / (peak * self.flash)
        else:
            work = sum(2 * b * m * n * (k + c.short_k) for b, m, n, k in matmuls)
            compute = work / (peak * c.matmul) + flops / (peak * VECTOR)
        return c.launch + max(compute, nbytes / (self.gpu.memory_bandwidth * c.memory))

    def collective(self, op, n, nbytes, ranks):
        """Seconds of a ring over n ranks, or of a send; nbytes is all of the buffer."""
        if n == 1:
            return 0.0
        bandwidth, latency = self.link(ranks)
        if op in RING_ROUNDS:
            return ring_seconds(op, n, nbytes, bandwidth, latency)
        return nbytes / bandwidth + (n - 1) * latency  # send, broadcast, barrier

    def link(self, ranks):
        """Bytes/s and latency in s of a ring through ranks of the cluster, in their order.

        Inside a node it is NVLink. Across nodes, g ranks in a node are g rings on g network cards.
        """
        size = self.gpu.node_size
        nvlink = self.gpu.nvlink * self.constants.nvlink
        if ranks[0] // size == ranks[-1] // size:
            return nvlink, self.gpu.nvlink_latency
        together = sum(rank // size == ranks[0] // size for rank in ranks[:size])
        return min(nvlink, together * self.gpu.nic), self.gpu.nic_latency
