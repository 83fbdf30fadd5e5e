# caught by: check_stages_and_copies
# A quotient is a coordinate.
def rank_coordinates(rank, dp, pp, tp):
    return rank // (pp * tp), rank // tp, rank % tp
