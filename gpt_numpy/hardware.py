"""GPUs and the links between them: what the makers' data sheets say, in base units.

A simulated device takes its speeds from here and an MFU its peak, so every figure has its source.
All bandwidths are of one direction: data sheets count both for NVLink, and are halved here.
"""

from __future__ import annotations

from typing import NamedTuple

# A ring's time per step besides its bytes, from NCCL's own tuning model: src/graph/tuning.cc of
# 2021, table hwLat, ring, Simple protocol (the one for large messages).
NVLINK_LATENCY = 3.4e-6  # s
NIC_LATENCY = 9.6e-6  # s


class GPU(NamedTuple):
    """One GPU in its usual 8-GPU server, in FLOP/s, bytes, bytes/s and seconds; 1 GB is 1e9 bytes.

    `peak` is for matmuls of dense 16-bit matrices; bf16 and fp16 run at one rate (V100: no bf16).
    `peak_sparse` is the figure that data sheets print larger. It needs two zeros among every four
    weights, which no GPT here has.
    """

    name: str
    peak: float  # FLOP/s, dense
    peak_sparse: float | None  # FLOP/s with 2:4 sparsity; None: has no such mode
    memory: float  # bytes
    memory_bandwidth: float  # bytes/s
    nvlink: float  # bytes/s out of one GPU, to the GPUs of its node
    nic: float  # bytes/s out of one GPU's share of the node's network cards
    sources: str  # NVIDIA's; the network is that of a node of 8
    node_size: int = 8  # GPUs
    nvlink_latency: float = NVLINK_LATENCY  # s per ring step
    nic_latency: float = NIC_LATENCY  # s per ring step


GPUS = {
    "v100": GPU(
        "V100-32G", 125e12, None, 32e9, 900e9, nvlink=150e9, nic=6.25e9,
        sources="V100 data sheet, SXM2; DGX-1 architecture white paper: 4 x 100 Gb/s",
    ),
    "a100": GPU(
        "A100-80G", 312e12, 624e12, 80e9, 2039e9, nvlink=300e9, nic=25e9,
        sources="A100 data sheet, 80GB SXM; DGX A100 data sheet: 8 x 200 Gb/s",
    ),
    "h100": GPU(
        "H100-80G", 989.5e12, 1979e12, 80e9, 3350e9, nvlink=450e9, nic=50e9,
        sources="H100 data sheet, SXM, half of 1,979; DGX H100 data sheet: 8 x 400 Gb/s",
    ),
    "h200": GPU(
        "H200-141G", 989.5e12, 1979e12, 141e9, 4800e9, nvlink=450e9, nic=50e9,
        sources="H200 data sheet, SXM, half of 1,979; DGX H200 data sheet: 8 x 400 Gb/s",
    ),
    "b200": GPU(
        "B200-180G", 2250e12, 4500e12, 180e9, 8000e9, nvlink=900e9, nic=50e9,
        sources="Blackwell brief, HGX B200; DGX B200 user guide: 1,440 GB, 8 x 400 Gb/s",
    ),
}  # fmt: skip


def gpu(name):
    """The GPU of that name, short ("a100") or full ("A100-80G"), upper or lower case.

    >>> gpu("A100").peak / 1e12, gpu("a100-80g").nvlink / 1e9  # TFLOP/s, GB/s
    (312.0, 300.0)
    """
    for key, found in GPUS.items():
        if name.lower() in (key, found.name.lower()):
            return found
    raise ValueError(f"unknown GPU {name!r}: choose one of {', '.join(GPUS)}")
