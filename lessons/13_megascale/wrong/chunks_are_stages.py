# caught by: check_megascale_rows
# With v chunks a stage, the pipeline is v times as long.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    m = global_batch // (n_gpus // (tp * pp)) // micro_batch
    stages = pp * virtual_stages
    return (stages - 1) / (m + stages - 1)
