# What is not as in TensorFlow, and why: differences that are meant, and functions that have nothing to be compared with.
#
# A difference is named by op, direction and kind of sample; docs/conformance.md tells them too. What is not listed counts
# as a failure; a row that no longer differs does no harm and can go.
# It must not hold what is only not done yet.
KNOWN = {
    ("floor_divide", "forward", "random"): "TensorFlow rounds the quotient to f16 or bf16 before it takes the floor",
    ("floor_divide", "forward", "edges"): "a negative quotient too small for its type has the floor -1; TensorFlow has -0",
    ("nn_mish", "gradient", "edges"): "TensorFlow has NaN at the largest numbers, where the slope is 1",
    ("nn_gelu (exact)", "gradient", "edges"): "x times the density is infinity times 0; TensorFlow's own gelu has NaN too",
    ("nn_conv2d (empty batch)", "forward", "random"): "TensorFlow with oneDNN gives the shape of the input",
}

NOT_COMPARED = {
    "mu_assert": "has no result",
    "mu_print": "has no result",
    "mu_stateless_permutation": "shuffles by another algorithm than TensorFlow's",
    "mu_stateless_random_bernoulli": "TensorFlow has no stateless one",
    "mu_stateless_random_categorical": "draws by another algorithm than TensorFlow's",
}
