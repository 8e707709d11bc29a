# The text of mu_summary against that of Keras's summary, line by line, for models that Keras made: chains, models whose
# layers are connected otherwise, models in models, with Keras's options and widths. A part of fitting.py.
import ctypes
import os
import pathlib
import tempfile

import keras

L = keras.layers


def chain():
    model = keras.Sequential([keras.Input((8, 8, 1)), L.Conv2D(1200, 3, name="first"), L.BatchNormalization(), L.Flatten(),
                              L.Dropout(0.5), L.Dense(3)], name="chain")
    model.get_layer("first").trainable = False
    return model


def functional_chain():
    x = inputs = keras.Input((4,), batch_size=16, name="four")
    for units in (5, 6):
        x = L.Dense(units, name=f"dense_of_{units}")(x)
    return keras.Model(inputs, x, name="functional_chain")


def connected():
    """Two inputs, a shared layer, a residual connection, a layer of several outputs."""
    left, right = keras.Input((6, 4), name="left"), keras.Input((4,), name="right")
    shared = L.Dense(4, name="shared")
    sequence, state, cell = L.LSTM(4, return_sequences=True, return_state=True, name="lstm")(shared(left))
    total = L.Add(name="sum")([shared(right), state, cell])
    flat = L.Flatten(name="flat")(sequence)
    both = L.Concatenate(name="both")([total, flat, right])
    return keras.Model([left, right], [L.Dense(1, name="a")(both), L.Dense(2, name="b")(both)], name="connected")


def branches():
    inputs = keras.Input((3,), batch_size=2, name="x")
    return keras.Model(inputs, {"a": L.Dense(1, name="a")(inputs), "b": L.ReLU(name="b")(inputs)}, name="branches")


def attention():
    x = keras.Input((5, 4), name="x")
    y, scores = L.MultiHeadAttention(2, 3, name="mha")(x, x, return_attention_scores=True)
    return keras.Model(x, [L.Add(name="sum")([x, y]), scores], name="attention")


def nested():
    tower = keras.Sequential([keras.Input((6,)), L.Dense(8, activation="relu", name="t1"), L.Dense(5, name="t2")], name="tower")
    a, b = keras.Input((5,), name="a"), keras.Input((5,), name="b")
    product = L.Multiply(name="product")([a, b])
    match = keras.Model([a, b], [L.Dense(1, name="score")(product), product], name="match")
    u, v = keras.Input((6,), name="u"), keras.Input((6,), name="v")
    return keras.Model([u, v], match([tower(u), tower(v)]), name="nested")


def nested_chain():
    inner = keras.Sequential([keras.Input((3,)), L.Dense(4, name="inner_dense"), L.ReLU(name="inner_relu")], name="inner")
    middle = keras.Sequential([keras.Input((3,)), inner, L.Dense(2, name="middle_dense")], name="middle")
    return keras.Sequential([keras.Input((3,)), middle, L.Dense(1, name="last")], name="nested_chain")


def without_weights():
    return keras.Sequential([L.Flatten(name="flat"), L.Dense(3, name="d")], name="unbuilt")


def trained():
    model = functional_chain()
    model.compile(keras.optimizers.Adam(), "mse")
    model.train_on_batch(keras.ops.ones((16, 4)), keras.ops.ones((16, 6)))
    return model


def long_names():
    """Words that are longer than their column: names, shapes, connections."""
    x = inputs = keras.Input((2, 3, 1000000, 7, 1), name="x" * 27)
    x = L.Reshape((6000000, 7, 1), name="a_name_that_no_column_of_a_table_has_place_for_and_that_is_cut")(x)
    y = L.GlobalAveragePooling2D(name="b" * 25)(x)
    sum_of_both = L.Add(name="exactly_or_about_as_long")([L.Dense(1, name="dense_layer_number_one_of_two")(y), y])
    return keras.Model(inputs, sum_of_both, name="a_model_with_a_long_name" * 5)


def long_chain():
    inner = keras.Sequential([keras.Input((3,)), L.Dense(4, name="inner_dense_layer_with_many_words_in_its_name")], name="in" * 20)
    return keras.Sequential([keras.Input((3,)), L.Dense(3, name="d" * 60), inner],
                            name="long_chain")


# Name, model, options. Keras's default is for a terminal of 80 columns.
SUMMARIES = [
    ("a chain", chain, {}), ("a chain, trainable", chain, {"show_trainable": True, "line_length": 130}),
    ("a chain, 60 columns", chain, {"line_length": 60}), ("a chain, 123 columns", chain, {"line_length": 123}),
    ("a known batch size", functional_chain, {}), ("connected", connected, {}),
    ("connected, 140 columns, trainable", connected, {"line_length": 140, "show_trainable": True}),
    ("branches", branches, {"line_length": 90}), ("scores of attention", attention, {"line_length": 120}), ("models in a model", nested, {}),
    ("models in a model, expanded", nested, {"expand_nested": True, "line_length": 110}),
    ("models in a chain, expanded", nested_chain, {"expand_nested": True, "show_trainable": True, "line_length": 125}),
    ("a range", chain, {"layer_range": ["batch", "dropout"]}),
    ("a range in the other order", connected, {"layer_range": ["both", "^s"], "line_length": 108}),
    *(("long names", long_names, {"line_length": length}) for length in (70, 81, 99, 150)),
    *(("a chain of long names", long_chain, {"line_length": length, "expand_nested": True, "show_trainable": length > 75})
      for length in (50, 76, 100)),
    ("positions", chain, {"positions": [0.6, 0.9, 1.0], "line_length": 77}), ("positions that end early", chain, {"positions": [0.2, 0.5, 0.8]}),
    ("positions beyond the line", chain, {"positions": [0.5, 1.0, 1.6], "line_length": 90}),
    ("positions, connected and trainable", connected, {"positions": [0.4, 0.6, 0.7, 0.9], "line_length": 133, "show_trainable": True}),
    ("without weights", without_weights, {}), ("with an optimizer", trained, {}),
]


def their_text(model, options):
    lines = []
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "200" if "line_length" in options else "80"
    try:
        model.summary(print_fn=lines.append, **options)
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return "\n".join(lines)


def our_text(mu, model, options, folder):
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    path = pathlib.Path(folder) / "summary.txt"
    out = libc.fopen(str(path).encode(), b"w")
    try:
        mu.mu_summary(model=model, out=out, **options)
    finally:
        libc.fclose(ctypes.c_void_p(out))
    return path.read_text()


def compare_summary(report, mu, name, make, options):
    keras.backend.clear_session()
    model = make()
    theirs = their_text(model, options)
    ours_options = options | ({"layer_range": [item.encode() for item in options["layer_range"]]} if "layer_range" in options else {})
    with mu.pool(), tempfile.TemporaryDirectory() as folder:
        if model.built:
            model.save(f"{folder}/model.keras")
            loaded = mu.mu_load_model(f"{folder}/model.keras")
        else:
            loaded = mu.mu_layer_from_config(model.to_json())
        ours = our_text(mu, loaded, ours_options, folder)
    ours, theirs = ([line.rstrip() for line in text.strip().splitlines()] for text in (ours, theirs))
    different = [pair for pair in zip(ours, theirs) if pair[0] != pair[1]]
    says = "" if ours == theirs else f"; {len(ours)} and {len(theirs)} lines, first {different[0] if different else ''}"
    report.check(f"summary, {name}", f"{len(theirs)} lines{says}", ours == theirs)
