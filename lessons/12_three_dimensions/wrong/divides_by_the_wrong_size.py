# caught by: check_three_different_sizes
# Which sizes one divides by does not matter: it works for 2 x 2 x 2.
def rank_coordinates(rank, dp, pp, tp):
    return rank // (dp * tp), rank // tp % dp, rank % tp
