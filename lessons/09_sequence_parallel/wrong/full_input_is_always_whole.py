# caught by: check_bytes_with_full_recomputation
# The block's input is whole on every rank, with sequence parallelism, too.
def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none"
):
    sbh, scores = seq * micro_batch * n_embd, 5 * n_head * seq**2 * micro_batch
    if recompute == "full":
        return 2 * sbh
    if recompute == "selective":
        scores = 0
    return 10 * sbh / (tp if sequence_parallel else 1) + (24 * sbh + scores) / tp
