"""Data sheets, typed in a second time as they print: GB/s of both directions, Gb/s, sparse."""

import pytest

from gpt_numpy.hardware import GPUS, gpu

# TFLOP/s with sparsity (V100: dense), GB, GB/s of memory, NVLink GB/s both ways, Gb/s a node of 8
DATA_SHEETS = {
    "v100": (125, 32, 900, 300, 4 * 100),
    "a100": (624, 80, 2039, 600, 8 * 200),
    "h100": (1979, 80, 3350, 900, 8 * 400),
    "h200": (1979, 141, 4800, 900, 8 * 400),
    "b200": (4500, 180, 8000, 1800, 8 * 400),
}


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_every_figure_is_the_data_sheets_in_base_units_and_one_direction(name):
    found, (tflops, gb, memory, nvlink, network) = gpu(name), DATA_SHEETS[name]
    assert found.peak == (tflops if name == "v100" else tflops / 2) * 1e12
    assert found.peak_sparse == (None if name == "v100" else tflops * 1e12)
    assert (found.memory, found.memory_bandwidth) == (gb * 1e9, memory * 1e9)
    assert found.nvlink == nvlink / 2 * 1e9
    assert found.nic == network / 8 / 8 * 1e9  # 8 bits, 8 GPUs
    assert found.node_size == 8 and found.sources
    assert 1e-6 < found.nvlink_latency < found.nic_latency < 1e-4  # seconds


def test_all_the_gpus_are_there():
    assert set(GPUS) == set(DATA_SHEETS)


@pytest.mark.parametrize("name", ["a100", "A100", "a100-80g", "A100-80G"])
def test_a_gpu_is_found_by_short_or_full_name(name):
    assert gpu(name) is GPUS["a100"]


@pytest.mark.parametrize("name", ["a100-40g", "h1", "", "tpu-v4"])
def test_an_unknown_gpu_is_refused_in_one_line_that_lists_the_valid_names(name):
    with pytest.raises(ValueError) as error:
        gpu(name)
    message = str(error.value)
    assert repr(name) in message and "\n" not in message
    assert all(valid in message for valid in DATA_SHEETS)
