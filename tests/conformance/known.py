# What is not as in TensorFlow, and why: differences that are meant, and functions that have nothing to be compared with.
#
# A difference is named by op, direction and kind of sample; docs/conformance.md tells them too. What is not listed counts
# as a failure; a row of KNOWN that no longer differs does no harm and can go.
# It must not hold what is only not done yet.
NAN_ORDER = "NaN has no order: Muster's sorts put it last, its extremes are NaN; TensorFlow's depend on where it stands"
NAN_SOFTMAX = "in f32 and bf16 oneDNN gives 0 beside a NaN, TensorFlow's own kernel in f64 has NaN as Muster"
F16_SUM = "TensorFlow adds 16-bit floats up in their own type along columns, Muster in f32"
LIMIT = "TensorFlow divides by a product that became 0, infinite or NaN"

KNOWN = {
    ("floor_divide", "forward", "random"): "TensorFlow rounds the quotient to f16 or bf16 before it takes the floor",
    ("floor_divide", "forward", "edges"): "a negative quotient too small for its type has the floor -1; TensorFlow has -0",
    ("nn_mish", "gradient", "edges"): "TensorFlow has NaN at the largest numbers, where the derivative is 1",
    ("nn_gelu (tanh)", "gradient", "edges"): "TensorFlow's cube overflows f16 at the largest numbers; the derivative is 1 or 0",
    ("nn_gelu (exact)", "gradient", "edges"): "x times the density is infinity times 0; TensorFlow's own gelu has NaN too",
    ("nn_conv2d (empty batch)", "forward", "random"): "TensorFlow with oneDNN gives the shape of the input",
    ("nn_conv2d (empty batch)", "forward", "edges"): "TensorFlow with oneDNN gives the shape of the input",
    ("cast to i16", "forward", "edges"): "C leaves it undefined; Muster wraps in every type, TensorFlow clamps bf16 alone",
    ("cast to i8", "forward", "edges"): "C leaves it undefined; Muster wraps in every type, TensorFlow clamps bf16 alone",
    ("cast to u8", "forward", "edges"): "C leaves it undefined; Muster wraps in every type, TensorFlow clamps bf16 alone",
    ("cumprod", "gradient", "edges"): "behind a 0 TensorFlow takes 0 for quotients, so the derivative at the 0 itself is lost",
    ("sort", "forward", "edges"): NAN_ORDER, ("sort", "gradient", "edges"): NAN_ORDER,
    ("argsort", "forward", "edges"): NAN_ORDER,
    ("top_k", "forward", "edges"): NAN_ORDER, ("top_k", "gradient", "edges"): NAN_ORDER,
    ("argmax", "forward", "edges"): NAN_ORDER, ("argmin", "forward", "edges"): NAN_ORDER,
    ("searchsorted", "forward", "edges"): NAN_ORDER,
    ("tensor_scatter_min", "forward", "edges"): NAN_ORDER, ("tensor_scatter_min", "gradient", "edges"): NAN_ORDER,
    ("tensor_scatter_max", "forward", "edges"): NAN_ORDER, ("tensor_scatter_max", "gradient", "edges"): NAN_ORDER,
    ("segment_max", "forward", "edges"): NAN_ORDER, ("segment_max", "gradient", "edges"): NAN_ORDER,
    ("segment_min", "forward", "edges"): NAN_ORDER, ("segment_min", "gradient", "edges"): NAN_ORDER,
    ("unsorted_segment_max", "forward", "edges"): NAN_ORDER, ("unsorted_segment_max", "gradient", "edges"): NAN_ORDER,
    ("unsorted_segment_min", "forward", "edges"): NAN_ORDER, ("unsorted_segment_min", "gradient", "edges"): NAN_ORDER,
    ("nn_max_pool1d", "forward", "edges"): NAN_ORDER, ("nn_max_pool1d", "gradient", "edges"): NAN_ORDER,
    ("nn_max_pool2d", "forward", "edges"): NAN_ORDER + "; -infinity is the lowest finite number there",
    ("nn_max_pool2d", "gradient", "edges"): NAN_ORDER,
    ("nn_max_pool3d", "forward", "edges"): NAN_ORDER, ("nn_max_pool3d", "gradient", "edges"): NAN_ORDER,
    ("unique", "forward", "edges"): "0 and -0 are equal; TensorFlow tells them apart in f16 and bf16 alone",
    ("nn_softmax", "forward", "edges"): NAN_SOFTMAX,
    ("reduce_sum (long)", "forward", "edges"): F16_SUM, ("reduce_mean (long)", "forward", "edges"): F16_SUM,
    ("reduce_logsumexp (long)", "forward", "edges"): F16_SUM,
    ("reduce_sum (too large for f16)", "forward", "edges"): F16_SUM,
    ("reduce_mean (too large for f16)", "forward", "edges"): F16_SUM,
    ("segment_mean", "forward", "edges"): "TensorFlow adds integers up in their own type, which overflows; Muster in int64",
    ("unsorted_segment_prod", "gradient", "edges"): LIMIT, ("segment_prod", "gradient", "edges"): LIMIT,
    ("cholesky", "forward", "edges"): "what is not positive definite is an error; TensorFlow gives NaN where a NaN stands",
    ("cholesky", "gradient", "edges"): "what is not positive definite is an error; TensorFlow gives NaN where a NaN stands",
    ("nn_conv1d_transpose", "forward", "edges"): "in bf16 oneDNN multiplies what lies beside an odd channel by 0, here NaN",
    ("nn_conv2d_transpose", "forward", "edges"): "in bf16 oneDNN multiplies what lies beside an odd channel by 0, here NaN",
    ("nn_conv3d_transpose", "forward", "edges"): "in bf16 oneDNN multiplies what lies beside an odd channel by 0, here NaN",
    ("nn_depthwise_conv2d", "forward", "edges"): "the same in TensorFlow's bf16; Muster agrees with both in f64",
    ("nn_separable_conv2d", "forward", "edges"): "the same in TensorFlow's bf16; Muster agrees with both in f64",
    ("nn_separable_conv2d", "gradient", "edges"): "the same in TensorFlow's bf16; Muster agrees with both in f64",
    ("nn_conv1d (dilated)", "forward", "edges"): "in bf16 TensorFlow multiplies padding by 0 and infinity",
    ("image_affine_transform", "gradient", "random"): "TensorFlow moves the gradient by the inverse transform",
    ("image_affine_transform", "gradient", "edges"): "TensorFlow moves the gradient by the inverse transform",
    ("nn_conv3d", "gradient", "edges"): "TensorFlow's f64 and f16 have NaN throughout; its f32 agrees with Muster",
}

NOT_COMPARED = {
    "mu_assert": "has no result",
    "mu_print": "has no result",
    "mu_stateless_permutation": "shuffles by another algorithm than TensorFlow's",
    "mu_stateless_random_bernoulli": "TensorFlow has no stateless one",
    "mu_stateless_random_categorical": "draws by another algorithm than TensorFlow's",
}

# Types that both sides take, but that have nothing to compare there: by function and type.
NOT_COMPARED_TYPES = {
    ("nn_stateless_dropout", "f64"): "draws in f32", ("nn_stateless_dropout", "f16"): "draws in f32",
    ("nn_stateless_dropout", "bf16"): "draws in f32",
    ("image_affine_transform", "f64"): "TensorFlow weighs pixels by float32",
    **{("linspace", name): "TensorFlow makes float64 of integers" for name in ("i64", "i32", "i16", "i8", "u8")},
}

# Types that TensorFlow takes and Muster refuses, with the reason, by function and type. A refusal that is not here fails,
# and so does an entry that Muster does not refuse alone.
LACKING = {}
