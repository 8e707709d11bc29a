# Cases of the bench of ops: indices, orders, random numbers. See case.py.
from case import case


def indexing():
    case("gather_0", "a k", "torch.index_select(a, 0, k)", "raw.GatherV2(params=a, indices=k, axis=0)", moved="copy")
    case("gather_0_i32", "a k32", "torch.index_select(a, 0, k32)", "raw.GatherV2(params=a, indices=k32, axis=0)", call="gather_0",
         moved="copy")
    case("gather_1", "a k", "torch.index_select(a, 1, k)", "raw.GatherV2(params=a, indices=k, axis=1)", "math")
    case("batch_gather", "a kk", "torch.gather(a, 1, kk)", "tf.gather(a, kk, axis=1, batch_dims=1)", "math")
    case("gather_nd", "a knd", "a[knd[:, 0], knd[:, 1]]", "raw.GatherNd(params=a, indices=knd)", "math", out=False)
    case("scatter_nd", "kr a", "torch.zeros_like(a).index_add_(0, kr[:, 0], a)", "raw.ScatterNd(indices=kr, updates=a, shape=square_shape64)",
         "math", out=False, tolerance=1e-3)
    case("scatter_update", "a kr b", "", "raw.TensorScatterUpdate(tensor=a, indices=kr, updates=b)", "math")
    case("scatter_add", "a kr b", "a.index_add(0, kr[:, 0], b)", "raw.TensorScatterAdd(tensor=a, indices=kr, updates=b)", "math",
         out=False, tolerance=1e-3)
    case("scatter_max", "a kr b", "", "raw.TensorScatterMax(tensor=a, indices=kr, updates=b)", "math")
    case("one_hot", "k", "F.one_hot(k, len(k)).to(torch.float32)", "tf.one_hot(k, side)", out=False, moved="fill")
    case("segment_sum", "a k", "torch.zeros_like(a).index_add_(0, k, a)", "raw.UnsortedSegmentSum(data=a, segment_ids=k, num_segments=side)",
         "math", out=False, tolerance=1e-3)
    case("top_k", "a", "torch.topk(a, 8, dim=1)", "raw.TopKV2(input=a, k=8)", "math", out=False)
    case("sort", "a", "torch.sort(a, dim=1)[0]", "tf.sort(a, axis=1)", "math", out=False)
    case("argsort", "a", "torch.argsort(a, dim=1, stable=True)", "tf.argsort(a, axis=1, stable=True)", "math", out=False)
    case("unique", "many", "", "raw.Unique(x=many)", "math")
    case("searchsorted", "sorted flat", "torch.searchsorted(sorted, flat, out_int32=True)", "tf.searchsorted(sorted, flat)", "math",
         out=False, largest="4m")


def random_numbers():
    for name, torch, tf in (("random_uniform", "rand", "random_uniform"), ("random_normal", "randn", "random_normal"),
                            ("truncated_normal", "", "truncated_normal")):
        case(name, "seed a", torch and "torch.%s(a.shape)" % torch,
             "raw.Stateless%sV2(shape=square_shape, key=key, counter=counter, alg=1, dtype=tf.float32)"
             % "".join(part.capitalize() for part in tf.split("_")), "math", out=False, compared=False)


indexing()
random_numbers()
