# caught by: check_rows_of_other_papers
# A micro-batch is one sequence.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    busy = global_batch // (n_gpus // (tp * pp)) * virtual_stages
    return (pp - 1) / (busy + pp - 1)
