# Differences from TensorFlow that are meant: (op, direction) or (op, direction, dtype), and why.
# docs/conformance.md tells the reasons at length. A row that no longer differs does no harm; remove it.
KNOWN = {}
