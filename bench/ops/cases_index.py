# Cases of the op benchmark: indexing, sorting, random numbers. See case.py.
from case import INPUTS, Input, case, of, square

INPUTS["ids"] = Input("int64", of(2, "h"), 0, "d")
INPUTS["rising"] = Input("int64", of("d"), 0, "d", made="sorted")
INPUTS["many32"] = Input("int32", of("n"), 0, 1000)
INPUTS["alpha"] = Input("float32", square, 0.3, 6)
INPUTS["rate"] = Input("float32", square, 0.5, 30)


def indexing():
    case("gather_0", "a k", "torch.index_select(a, 0, k)", "raw.GatherV2(params=a, indices=k, axis=0)")
    case("gather_0_i32", "a k32", "torch.index_select(a, 0, k32)", "raw.GatherV2(params=a, indices=k32, axis=0)", call="gather_0")
    case("gather_1", "a k", "torch.index_select(a, 1, k)", "raw.GatherV2(params=a, indices=k, axis=1)", "math")
    case("batch_gather", "a kk", "torch.gather(a, 1, kk)", "tf.gather(a, kk, axis=1, batch_dims=1)", "math")
    case("gather_nd", "a knd", "a[knd[:, 0], knd[:, 1]]", "raw.GatherNd(params=a, indices=knd)", "math", out=False)
    case("scatter_nd", "kr a", "torch.zeros_like(a).index_add_(0, kr[:, 0], a)", "raw.ScatterNd(indices=kr, updates=a, shape=square_shape64)",
         "math", out=False)
    case("scatter_update", "a kr b", "", "raw.TensorScatterUpdate(tensor=a, indices=kr, updates=b)", "math")
    case("scatter_add", "a kr b", "a.index_add(0, kr[:, 0], b)", "raw.TensorScatterAdd(tensor=a, indices=kr, updates=b)", "math",
         out=False)
    case("scatter_max", "a kr b", "", "raw.TensorScatterMax(tensor=a, indices=kr, updates=b)", "math")
    case("one_hot", "k", "F.one_hot(k, len(k)).to(torch.float32)", "tf.one_hot(k, side)", out=False)
    case("segment_sum", "a k", "torch.zeros_like(a).index_add_(0, k, a)", "raw.UnsortedSegmentSum(data=a, segment_ids=k, num_segments=side)",
         "math", out=False)
    case("scatter_min", "a kr b", "", "raw.TensorScatterMin(tensor=a, indices=kr, updates=b)", "math")
    case("scatter_elements", "a knd flat", "a.index_put((knd[:, 0], knd[:, 1]), flat, accumulate=True)",
         "raw.TensorScatterAdd(tensor=a, indices=knd, updates=flat)", "math", call="scatter_add", out=False)
    case("gather_nd_rows", "a kr", "a[kr[:, 0]]", "raw.GatherNd(params=a, indices=kr)", "math", call="gather_nd", out=False)
    case("embedding", "a ids", "F.embedding(ids, a)", "tf.gather(a, ids)", "math", call="gather_0", out=False)
    case("gather_grad_0", "a k b", "torch.zeros_like(b).index_add_(0, k, a)",
         "raw.UnsortedSegmentSum(data=a, segment_ids=k, num_segments=side)", "math", out=False)
    case("gather_grad_1", "a k b", "torch.zeros_like(b).index_add_(1, k, a)", "", "math", out=False)
    case("batch_gather_grad", "a kk b", "torch.zeros_like(b).scatter_add_(1, kk, a)", "", "math", out=False)
    case("segment_elements", "flat many", "torch.zeros(1000).index_add_(0, many, flat)",
         "raw.UnsortedSegmentSum(data=flat, segment_ids=many, num_segments=1000)", "math", out=False)
    case("segment_sorted", "a rising", "", "raw.SegmentSum(data=a, segment_ids=rising)", "math")
    case("top_k", "a", "torch.topk(a, 8, dim=1)", "raw.TopKV2(input=a, k=8)", "math", out=False)
    case("sort", "a", "torch.sort(a, dim=1)[0]", "tf.sort(a, axis=1)", "math", out=False)
    case("argsort", "a", "torch.argsort(a, dim=1, stable=True)", "tf.argsort(a, axis=1, stable=True)", "math", out=False)
    case("unique", "many", "", "raw.Unique(x=many)", "math")
    case("unique_many_i32", "many32", "", "raw.Unique(x=many32)", "math", call="unique")
    # TensorFlow takes some 25 seconds for each call of the next size.
    case("unique_many_f32", "flat", "", "raw.Unique(x=flat)", "math", call="unique", largest="4m")
    case("searchsorted", "sorted flat", "torch.searchsorted(sorted, flat, out_int32=True)", "tf.searchsorted(sorted, flat)", "math",
         out=False)


def random_numbers():
    for name, torch, tf in (("random_uniform", "rand", "random_uniform"), ("random_normal", "randn", "random_normal"),
                            ("truncated_normal", "", "truncated_normal")):
        case(name, "seed a", torch and "torch.%s(a.shape)" % torch,
             "raw.Stateless%sV2(shape=square_shape, key=key, counter=counter, alg=1, dtype=tf.float32)"
             % "".join(part.capitalize() for part in tf.split("_")), "math", out=False, compared=False)
    stateless = "raw.StatelessRandom{}V2(shape=tf.shape({}), key=key, counter=counter, alg=1, dtype=tf.{})"
    for like, torch, of_type in (("e", "float64", "f64"), ("bf", "bfloat16", "bf16")):
        for name, function in (("Uniform", "rand"), ("Normal", "randn")):
            case(f"random_{name.lower()}_{of_type}", f"seed {like}", f"torch.{function}({like}.shape, dtype=torch.{torch})",
                 stateless.format(name, like, torch), "math", out=False, compared=False)
    for like, torch, name in (("i", "int32", "random_int"), ("l", "int64", "random_int_i64")):
        case(name, f"seed {like}", f"torch.randint(0, 1000, {like}.shape, dtype=torch.{torch})",
             f"raw.StatelessRandomUniformIntV2(shape=tf.shape({like}), key=key, counter=counter, alg=1, "
             f"minval=tf.constant(0, tf.{torch}), maxval=tf.constant(1000, tf.{torch}))", "math", out=False, compared=False)
    case("bernoulli", "seed a", "torch.empty(a.shape, dtype=torch.bool).bernoulli_(0.3)",
         "tf.random.stateless_uniform(tf.shape(a), seed) < 0.3", "math", out=False, compared=False)
    case("categorical", "seed a", "torch.multinomial(torch.exp(a), 1)", "raw.StatelessMultinomial(logits=a, num_samples=1, seed=seed)",
         "math", out=False, compared=False)
    case("gamma", "seed alpha", "torch._standard_gamma(alpha)",
         "raw.StatelessRandomGammaV3(shape=tf.shape(alpha), key=key, counter=counter, alg=1, alpha=alpha)", "math", out=False,
         compared=False)
    case("poisson", "seed rate", "torch.poisson(rate)", "tf.random.stateless_poisson(tf.shape(rate), seed, rate, tf.float32)",
         "math", out=False, compared=False)
    case("permutation", "seed flat", "torch.randperm(len(flat))", "tf.random.experimental.stateless_shuffle(tf.range(tf.size(flat)), seed)",
         "math", out=False, compared=False)


indexing()
random_numbers()
