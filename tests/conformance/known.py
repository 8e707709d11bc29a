# Differences from TensorFlow that are meant: (op, direction) or (op, direction, dtype), and why.
# docs/conformance.md tells the reasons at length. A row that no longer differs does no harm; remove it.
KNOWN = {
    ("floor_divide", "forward", "f16"): "TensorFlow rounds the quotient to f16 before the floor",
    ("floor_divide", "forward", "bf16"): "TensorFlow rounds the quotient to bf16 before the floor",
    ("floor_divide (edges)", "forward"): "a negative quotient too small for its type has the floor -1; TensorFlow has -0",
    ("nn_conv2d (empty batch)", "forward"): "TensorFlow with oneDNN gives the shape of the input",
}
