# Cases of the op benchmark: sort, top_k, unique and segments for types and forms that cases_index.py does not cover.
# See case.py.
from case import INPUTS, Input, case, of

INPUTS |= {
    "word": Input("int32", of("d", "d"), -2**31, 2**31), "long": Input("int64", of("d", "h"), -2**62, 2**62),
    "ksorted": Input("int64", of("d"), 0, "d", "sorted"), "few": Input("float32", of("n"), 0, 1),
}


def sorts():
    for of_type, x in (("i32", "word"), ("i64", "long"), ("i64_close", "l"), ("f64", "e"), ("bf16", "bf"), ("u8", "by")):
        case(f"sort_{of_type}", x, f"torch.sort({x}, dim=1)[0]", f"tf.sort({x}, axis=1)", "math", call="sort", out=False)
    for of_type, x in (("i32", "word"), ("i64", "long"), ("f64", "e")):
        case(f"argsort_{of_type}", x, f"torch.argsort({x}, dim=1, stable=True)", f"tf.argsort({x}, axis=1, stable=True)", "math",
             call="argsort", out=False)
    case("sort_0", "a", "torch.sort(a, dim=0)[0]", "tf.sort(a, axis=0)", "math", out=False)
    case("sort_down", "a", "torch.sort(a, dim=1, descending=True)[0]", "tf.sort(a, axis=1, direction='DESCENDING')", "math", out=False)
    case("sort_flat", "flat", "torch.sort(flat)[0]", "tf.sort(flat)", "math", out=False)


def greatest():
    for of_type, x in (("i32", "word"), ("i64", "long"), ("f64", "e"), ("bf16", "bf"), ("i64_close", "l")):
        case(f"top_k_{of_type}", x, f"torch.topk({x}, 8, dim=1)", f"raw.TopKV2(input={x}, k=8)", "math", call="top_k", out=False,
             compared=of_type not in ("bf16", "i64_close"))
    for name, x, k in (("half", "a", "a.shape[1] // 2"), ("most", "a", "a.shape[1] - 1"), ("eighth", "a", "a.shape[1] // 8"),
                       ("half_i64", "long", "long.shape[1] // 2"), ("half_i32", "word", "word.shape[1] // 2")):
        case(f"top_k_{name}", x, f"torch.topk({x}, {k}, dim=1)", f"raw.TopKV2(input={x}, k={k})", "math",
             call=f"top_k_{name.split('_')[0]}", out=False)
    case("top_k_flat", "flat", "torch.topk(flat, 8)", "raw.TopKV2(input=flat, k=8)", "math", call="top_k", out=False)


def others():
    for of_type, x in (("i32", "word"), ("f32", "few")):
        case(f"unique_{of_type}", x, "", f"raw.Unique(x=tf.reshape({x}, [-1]))", "math", call="unique_flat")
    for name, torch in (("sum", "sum"), ("mean", "mean"), ("max", "amax"), ("min", "amin"), ("prod", "prod")):
        case(f"sorted_segment_{name}", "a ksorted", "", f"raw.Segment{name.capitalize()}(data=a, segment_ids=ksorted)", "math",
             compared=name != "prod")
        if name not in ("sum", "mean"):
            case(f"segment_{name}", "a k", "", f"raw.UnsortedSegment{name.capitalize()}(data=a, segment_ids=k, num_segments=side)",
                 "math", compared=name != "prod")
    case("segment_mean", "a k", "", "tf.math.unsorted_segment_mean(a, k, side)", "math")
    for of_type, torch, tf in (("i64", "int64", "int64"), ("i32", "int32", "int32"), ("bool", "bool", "bool"), ("bf16", "bfloat16", "bfloat16")):
        tf_ends = "" if of_type != "bool" else ", True, False"
        case(f"one_hot_{of_type}", "k", f"F.one_hot(k, len(k)).to(torch.{torch})", f"tf.one_hot(k, side{tf_ends}, dtype=tf.{tf})",
             out=False)


for family in (sorts, greatest, others):
    family()
