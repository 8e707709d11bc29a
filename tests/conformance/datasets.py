# Data that models need in TensorFlow and in Muster: tf.train.Example and SequenceExample, CSV, lines, images, the stages of
# tf.data that choose, pad and bucket, Keras's layers for strings and categories, value by value, and `muster fit` on a
# TFRecord file of TensorFlow's.
#
# Both sides get the same files or elements; everything must agree exactly, except resized images (1e-3 of 255) and
# weights of tf-idf (1e-5). Last, every public method of the installed tf.data.Dataset is here, is one of STAGES, or is in
# NOT_THERE with the reason.
import ctypes
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import muster
from report import Report

STRINGS = ["", "a", "ab", "abc", "hello", "The quick brown fox", "ünïcödé ☃", "x" * 16, "y" * 17, "z" * 33, "w" * 65,
           "v" * 128, "u" * 300, "-17", "0"]
VARIABLE = 1
LENGTH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)

# Methods of tf.data.Dataset and what does the same here.
STAGES = {
    "batch": "mu_dataset_batch", "bucket_by_sequence_length": "mu_dataset_bucket_by_sequence_length",
    "cache": "mu_dataset_cache", "cardinality": "mu_dataset_cardinality", "choose_from_datasets": "mu_choose_from_datasets",
    "concatenate": "mu_dataset_concatenate", "counter": "mu_dataset_range", "element_spec": "mu_dataset_element_spec",
    "enumerate": "mu_dataset_enumerate", "filter": "mu_dataset_filter", "flat_map": "mu_dataset_flat_map",
    "from_generator": "mu_dataset_generator", "from_tensor_slices": "mu_dataset_from_tensor_slices",
    "from_tensors": "mu_dataset_from_tensors", "interleave": "mu_dataset_interleave", "map": "mu_dataset_map",
    "options": "mu_dataset_options", "with_options": "mu_dataset_options", "padded_batch": "mu_dataset_padded_batch",
    "prefetch": "mu_dataset_prefetch", "range": "mu_dataset_range", "rebatch": "mu_dataset_rebatch",
    "repeat": "mu_dataset_repeat", "sample_from_datasets": "mu_sample_from_datasets", "scan": "mu_dataset_scan",
    "shard": "mu_dataset_shard", "shuffle": "mu_dataset_shuffle", "skip": "mu_dataset_skip", "take": "mu_dataset_take",
    "take_while": "mu_dataset_take_while", "unbatch": "mu_dataset_unbatch", "unique": "mu_dataset_unique",
    "window": "mu_dataset_window", "zip": "mu_dataset_zip", "get_single_element": "mu_next",
}
NOT_THERE = {
    "apply": "a function call in C", "as_numpy_iterator": "Python only: mu_iterate",
    "fingerprint": "of TensorFlow's graph of the pipeline", "group_by_window": "few users beside bucketing, which is there",
    "ignore_errors": "hides damaged data; a reader continues with the next file after an error",
    "list_files": "mu_dataset_paths takes what glob(3) gives", "load": "mu_dataset_cache with a file",
    "save": "mu_dataset_cache with a file", "snapshot": "mu_dataset_cache with a file",
    "prefetch_to_device": "distributed datasets place their elements", "ragged_batch": "no ragged tensors: padded_batch",
    "random": "mu_dataset_range and mu_random_ functions in a map", "reduce": "MU_EACH is a loop of the program",
    "rejection_resample": "few users: filter, or sample_from_datasets", "sparse_batch": "no sparse tensors: padded_batch",
    "from_sparse_tensor_slices": "deprecated", "from_list": "experimental",
}


def check(report, name, ours, theirs, tolerance=0):
    """Compares nests of arrays, element by element."""
    failures = []
    if len(ours) != len(theirs):
        failures.append(f"{len(ours)} arrays; TensorFlow has {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or (a.dtype != object and a.dtype != b.dtype):
            failures.append(f"array {i}: {a.dtype} {a.shape}; TensorFlow has {b.dtype} {b.shape}")
        elif a.dtype == object or tolerance == 0:
            if not np.array_equal(a, b):
                failures.append(f"array {i}: {a.tolist()!r:.300}; TensorFlow has {b.tolist()!r:.300}")
        elif a.size and not np.max(np.abs(a - b)) <= tolerance:
            failures.append(f"array {i}: differs by {np.max(np.abs(a - b))}")
    report.row(name, f"{len(theirs)} arrays", passed=int(not failures), failures=failures)


def flat(mu, value):
    """The arrays of a value in order."""
    if mu.mu_value_kind_of(value) == 0:
        return [mu.array(mu.mu_value_tensor(value))]
    return [array for i in range(mu.mu_value_count(value)) for array in flat(mu, mu.mu_value_at(value, i))]


def elements(mu, dataset):
    iterator = mu.mu_iterate(dataset)
    out = []
    while value := mu.mu_next(iterator):
        out += flat(mu, value)
    return out


def numpy_of(value):
    return np.asarray(value.numpy(), dtype=object) if value.dtype == tf.string else value.numpy()


def dense(value):
    return numpy_of(tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value)


def tf_elements(dataset):
    return [numpy_of(leaf) for element in dataset for leaf in tf.nest.flatten(element)]


# ---- Examples -------------------------------------------------------------------------------------

def outcome(read):
    """What a data set has, or that it is refused."""
    try:
        return [array.tolist() for array in read()]
    except (muster.MusterError, tf.errors.InvalidArgumentError):
        return "refused"


def features(mu, rows):
    """A C array of mu_feature from (name, dtype, variable, shape, default, lengths)."""
    kind = mu.declared.structs["mu_feature"]
    array = (kind * len(rows))()
    for feature, (name, dtype, variable, shape, default, lengths) in zip(array, rows):
        feature.name = name.encode()
        feature.dtype = dtype
        feature.length = VARIABLE if variable else 0
        feature.shape.rank = len(shape)
        for i, size in enumerate(shape):
            feature.shape.dims[i] = size
        feature.default_value = mu.any_tensor(default) if default is not None else None
        feature.lengths = lengths.encode() if lengths else None
    return array


def feature_of(values):
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**fields):
    return tf.train.Example(features=tf.train.Features(
        feature={key: feature_of(value) for key, value in fields.items()})).SerializeToString()


def test_examples(mu, report):
    records = [example(name=[b"Ann"], age=[3], point=[1.5, -2.0], tags=[b"x", b"y"], scores=[1.0, 2.0, 3.0]),
               example(name=[b"\xff\x00"], age=[-2**63], point=[0.0, 7.0], scores=[4.0], other=[1]),
               example(name=[b""], point=[np.pi, 1e30], tags=[b"long" * 100])]
    spec = {"name": tf.io.FixedLenFeature([], tf.string), "age": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
            "point": tf.io.FixedLenFeature([2, 1], tf.float32),
            "scores": tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True, default_value=-7.0),
            "tags": tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)}
    rows = [("age", 9, False, (), np.int64(-1), None), ("name", 7, False, (), None, None),
            ("point", 1, False, (2, 1), None, None), ("scores", 1, True, (), np.float32(-7), None),
            ("tags", 7, True, (), None, None)]
    parsed = tf.io.parse_example(records, spec)
    with mu.pool():
        ours = mu.mu_parse_example(mu.any_tensor(np.array(records, dtype=object)), len(rows), features(mu, rows))
        check(report, "parse_example", flat(mu, ours), [numpy_of(parsed[key]) for key in sorted(parsed)])
        for i, record in enumerate(records):
            one = tf.io.parse_single_example(record, {**spec, "tags": tf.io.VarLenFeature(tf.string)})
            one["tags"] = tf.sparse.to_dense(one["tags"])
            ours = mu.mu_parse_example(mu.any_tensor(np.array(record, dtype=object)), len(rows), features(mu, rows))
            check(report, f"parse_single_example {i}", flat(mu, ours), [numpy_of(one[key]) for key in sorted(one)])
    with mu.pool(), tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ours.tfrecord"
        writer = mu.mu_tfrecord_writer_new(path)
        for i in range(3):
            fields = mu.mu_map_of(3, ["f", "i", "s"], [mu.mu_of(mu.any_tensor(value)) for value in (
                np.float32([i, 2.5]), np.int64([i, -i]), np.array([b"a", b"\x00"], dtype=object))])
            mu.mu_tfrecord_write(writer, mu.mu_serialize_example(fields))
        mu.mu_tfrecord_writer_close(writer)
        theirs = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(path)]
        wanted = [tf.train.Example.FromString(example(f=[float(i), 2.5], i=[i, -i], s=[b"a", b"\x00"])) for i in range(3)]
        report.check("serialize_example, TFRecord", "3 records read by TensorFlow", theirs == wanted)


def message_field(number, contents):
    return bytes([number << 3 | 2, len(contents)]) + contents


def test_example_forms(mu, report):
    """Bytes that no writer of TensorFlow's makes: what its parsers refuse is refused here, alone and as a step of a sequence.

    Of an Example TensorFlow drops a second list and a second packed field without a word; here they are refused (DROPPED)."""
    packed, single, other, empty = message_field(1, b"\1\2"), b"\x08\3\x08\4", message_field(2, b"z"), message_field(1, b"")
    lists = {"packed": packed, "single": single, "none": b"", "packed twice": packed * 2, "packed, single": packed + single,
             "single, packed": single + packed, "empty packed, single": empty + single, "unknown, packed": other + packed,
             "packed, unknown": packed + other, "single, unknown": single + other, "cut": message_field(1, b"\x82"),
             "an integer too long": message_field(1, b"\xff" * 10 + b"\1")}
    longs, floats, unknown = message_field(3, packed), message_field(2, message_field(1, bytes(8))), message_field(9, b"z")
    made = {f"list: {name}": message_field(3, contents) for name, contents in lists.items()}
    made |= {"list, unknown": longs + unknown, "unknown, list": unknown + longs, "two lists": longs * 2,
             "floats, integers": floats + longs, "integers, floats": longs + floats, "no list": b""}
    dropped = {"list: packed twice", "list: packed, single", "list: empty packed, single", "two lists", "integers, floats"}
    key = message_field(1, b"k")
    entries = {name: [key + message_field(2, feature)] for name, feature in made.items()}
    value = message_field(2, longs)
    entries |= {"entry: no value": [key], "entry: no key": [value], "entry: two values": [key + value * 2],
                "entry: unknown": [key + value + unknown], "key twice": [key + value, key + message_field(2, message_field(3, single))],
                "key twice, empty": [key + value, key + message_field(2, b"")]}
    spec = {"k": tf.io.VarLenFeature(tf.int64)}
    row = features(mu, [("k", 9, True, (), None, None)])
    for name, parts in entries.items():
        record = message_field(1, b"".join(message_field(1, part) for part in parts))
        with mu.pool():
            text = mu.any_tensor(np.array(record, dtype=object))
            ours = outcome(lambda: flat(mu, mu.mu_parse_example(text, 1, row)))
            theirs = outcome(lambda: [tf.sparse.to_dense(tf.io.parse_single_example(record, spec)["k"]).numpy()])
            if name in dropped:
                report.check(f"Example, {name}", f"{ours}; TensorFlow: {theirs}, without the rest", ours == "refused" != theirs)
            else:
                report.check(f"Example, {name}", f"{ours}; TensorFlow: {theirs}", ours == theirs)
    entries |= {"key twice, empty first": [key + message_field(2, b""), key + value]}
    forms = {"any number": (spec, row),
             "2": ({"k": tf.io.FixedLenFeature([2], tf.int64)}, features(mu, [("k", 9, False, (2,), None, None)])),
             "2 by default": ({"k": tf.io.FixedLenFeature([2], tf.int64, [8, 9])}, features(mu, [("k", 9, False, (2,), np.array([8, 9]), None)])),
             "none": ({"k": tf.io.FixedLenFeature([0], tf.int64)}, features(mu, [("k", 9, False, (0,), None, None)]))}
    for (form, (context, ours_of)), (name, parts) in itertools.product(forms.items(), entries.items()):
        record = message_field(1, b"".join(message_field(1, part) for part in parts))
        with mu.pool():
            text = mu.any_tensor(np.array(record, dtype=object))
            ours = outcome(lambda: flat(mu, mu.mu_value_at(mu.mu_parse_sequence_example(text, 1, ours_of, 0, None), 0)))
            theirs = outcome(lambda: [dense(tf.io.parse_single_sequence_example(record, context)[0]["k"])])
            report.check(f"context of {form}, {name}", f"{ours}; TensorFlow: {theirs}", ours == theirs or (name in dropped and ours == "refused"))
    for name, feature in made.items():
        steps = message_field(1, feature) + message_field(1, longs)
        record = message_field(2, message_field(1, key + message_field(2, steps)))
        with mu.pool():
            text = mu.any_tensor(np.array(record, dtype=object))
            ours = outcome(lambda: flat(mu, mu.mu_value_at(mu.mu_parse_sequence_example(text, 0, None, 1, row), 1)))
            theirs = outcome(lambda: [tf.sparse.to_dense(tf.io.parse_single_sequence_example(record, None, spec)[1]["k"]).numpy()])
            report.check(f"step of a SequenceExample, {name}", f"{ours}; TensorFlow: {theirs}", ours == theirs)


def test_sequences(mu, report):
    def sequence(words, points):
        return tf.train.SequenceExample(
            context=tf.train.Features(feature={"id": feature_of([len(words)])}),
            feature_lists=tf.train.FeatureLists(feature_list={
                "words": tf.train.FeatureList(feature=[feature_of(step) if step else tf.train.Feature() for step in words]),
                "points": tf.train.FeatureList(feature=[feature_of(step) for step in points])})).SerializeToString()

    records = [sequence([[b"a", b"b"], [b"c"]], [[1.0, 2.0], [3.0, 4.0]]), sequence([[b"d"]], [[5.0, 6.0]]), sequence([], [])]
    context, lists, lengths = tf.io.parse_sequence_example(
        records, {"id": tf.io.FixedLenFeature([], tf.int64)},
        {"points": tf.io.FixedLenSequenceFeature([2], tf.float32), "words": tf.io.VarLenFeature(tf.string)})
    words = tf.sparse.to_dense(lists["words"])
    with mu.pool():
        ours = mu.mu_parse_sequence_example(
            mu.any_tensor(np.array(records, dtype=object)), 1, features(mu, [("id", 9, False, (), None, None)]), 2,
            features(mu, [("points", 1, False, (2,), None, None), ("words", 7, True, (), None, None)]))
        check(report, "parse_sequence_example", flat(mu, ours), [numpy_of(v) for v in (context["id"], lists["points"], words)])


# ---- Text -----------------------------------------------------------------------------------------

def test_text(mu, report):
    text = 'name,x,n\n"Ann, ""A""",1.5,3\nBo,,4\n,2e3,-5\n"two\nlines",-0.25,7\n'
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        path = f"{folder}/data.csv"
        pathlib.Path(path).write_text(text)
        defaults = [mu.any_tensor(value) for value in (np.array(b"?", dtype=object), np.float32(-1), np.int64(9))]
        dtypes = (ctypes.c_int * 3)(7, 1, 9)
        theirs = tf.data.experimental.CsvDataset(path, [tf.constant("?"), tf.constant(-1.0), tf.constant(9, tf.int64)], header=True)
        check(report, "CsvDataset", elements(mu, mu.mu_dataset_csv(path=path, columns=3, dtypes=dtypes, skip_lines=1,
                                                                  record_defaults=defaults)), tf_elements(theirs))
        theirs = tf.data.experimental.CsvDataset(path, [tf.constant("?"), tf.int64], header=True, select_cols=[0, 2])
        ours = mu.mu_dataset_csv(path=path, columns=3, dtypes=(ctypes.c_int * 2)(7, 9), skip_lines=1,
                                 select_columns=(ctypes.c_int * 2)(0, 2), n_select_columns=2,
                                 record_defaults=[defaults[0], None])
        check(report, "CsvDataset select_cols", elements(mu, ours), tf_elements(theirs))
        for name, text in (("carriage returns", b'a,1\rb,2\r\n"c\rd",3\r'), ("a quote in a field", b'a"b,1\n'), ("a space before quotes", b' "a",1\n'),
                           ("text behind quotes", b'"a"b,1\n')):
            pathlib.Path(path).write_bytes(text)
            seen, wanted = outcome(lambda: elements(mu, mu.mu_dataset_csv(path=path, columns=2, dtypes=(ctypes.c_int * 2)(7, 9)))), \
                outcome(lambda: tf_elements(tf.data.experimental.CsvDataset(path, [tf.string, tf.int64])))
            report.check(f"CsvDataset, {name}", f"{seen}; TensorFlow: {wanted}", seen == wanted)
        path = f"{folder}/lines.txt"
        pathlib.Path(path).write_bytes("one\r\n\nzwei ü\r\nlast".encode())
        pathlib.Path(f"{folder}/records").write_bytes(bytes(range(29)))
        theirs = tf.data.FixedLengthRecordDataset(f"{folder}/records", 6, header_bytes=3, footer_bytes=2)
        ours = mu.mu_dataset_fixed_length_record(path=f"{folder}/records", record_bytes=6, header_bytes=3, footer_bytes=2)
        check(report, "FixedLengthRecordDataset", elements(mu, ours),
              [tf.io.decode_raw(record, tf.uint8).numpy() for record in theirs])
        check(report, "TextLineDataset", elements(mu, mu.mu_dataset_text_line(path)), tf_elements(tf.data.TextLineDataset(path)))
        pathlib.Path(path).write_bytes(b"a\rb\r\r\n\r\nc\n\r")
        check(report, "TextLineDataset, carriage returns", elements(mu, mu.mu_dataset_text_line(path)), tf_elements(tf.data.TextLineDataset(path)))


# ---- Stages ---------------------------------------------------------------------------------------

def slices(mu, rows):
    """A dataset of vectors of different lengths, from a zero-padded matrix that a map would need C for."""
    datasets = [mu.mu_dataset_from_tensors(mu.mu_of(mu.any_tensor(np.int64(row)))) for row in rows]
    joined = datasets[0]
    for dataset in datasets[1:]:
        joined = mu.mu_dataset_concatenate(joined, dataset)
    return joined


def test_stages(mu, report):
    rows = [[1], [2, 2, 2, 2], [3, 3], [5] * 5, [4], [6, 6, 6], [7] * 7, [8] * 2]
    theirs = tf.data.Dataset.from_generator(lambda: rows, output_signature=tf.TensorSpec([None], tf.int64))
    shape = mu.declared.structs["mu_shape"]
    with mu.pool():
        ours = slices(mu, rows)
        check(report, "padded_batch", elements(mu, mu.mu_dataset_padded_batch(dataset=ours, batch_size=3)),
              tf_elements(theirs.padded_batch(3)))
        wide = shape(1)
        wide.dims[0] = 9
        value = mu.mu_of(mu.any_tensor(np.int64(-1)))
        padded = mu.mu_dataset_padded_batch(dataset=ours, batch_size=3, padded_shapes=ctypes.addressof(wide), n_padded_shapes=1,
                                            padding_values=value, drop_remainder=True)
        check(report, "padded_batch shapes, values", elements(mu, padded),
              tf_elements(theirs.padded_batch(3, [9], np.int64(-1), drop_remainder=True)))
        length = LENGTH(lambda element, _: mu.mu_tensor_dim(mu.mu_value_tensor(element), 0))
        unknown = shape(1)
        unknown.dims[0] = -1
        for options in ({}, {"drop_remainder": True}, {"pad_to_bucket_boundary": True}):
            boundaries = [3, 5, 9]
            given = dict(options)
            if "pad_to_bucket_boundary" in options:
                given |= {"padded_shapes": ctypes.addressof(unknown), "n_padded_shapes": 1}
            bucketed = mu.mu_dataset_bucket_by_sequence_length(
                dataset=ours, element_length=ctypes.cast(length, ctypes.c_void_p), n_bucket_boundaries=3,
                bucket_boundaries=(ctypes.c_int64 * 3)(*boundaries), bucket_batch_sizes=(ctypes.c_int64 * 4)(2, 2, 2, 1), **given)
            wanted = theirs.bucket_by_sequence_length(lambda row: tf.shape(row)[0], boundaries, [2, 2, 2, 1], **options)
            check(report, f"bucket_by_sequence_length {' '.join(options)}", elements(mu, bucketed), tf_elements(wanted))
        choices = [0, 1, 1, 0, 2, 0, 1, 2, 2, 1]
        tf_sets = [tf.data.Dataset.range(10 * i, 10 * i + 2 + i) for i in range(3)]
        sets = (ctypes.c_void_p * 3)(*(mu.mu_dataset_range(10 * i, 10 * i + 2 + i, 1) for i in range(3)))
        chosen = mu.mu_dataset_from_tensor_slices(mu.mu_of(mu.any_tensor(np.int64(choices))))
        for stop in (True, False):
            ours = mu.mu_choose_from_datasets(n_datasets=3, datasets=sets, choices=chosen, continue_on_empty=not stop)
            wanted = tf.data.Dataset.choose_from_datasets(tf_sets, tf.data.Dataset.from_tensor_slices(np.int64(choices)), stop)
            check(report, f"choose_from_datasets stop={stop}", elements(mu, ours), tf_elements(wanted))
        ours = mu.mu_choose_from_datasets(n_datasets=3, datasets=sets, choices=mu.mu_dataset_repeat(mu.mu_dataset_range(0, 3, 1), -1), continue_on_empty=True)
        wanted = tf.data.Dataset.choose_from_datasets(tf_sets, tf.data.Dataset.range(3).repeat(), False)
        check(report, "choose_from_datasets, choices without end", elements(mu, ours), tf_elements(wanted))
        words = np.array([b"a", b"b", b"a", b"", b"b", b""], dtype=object)
        ours = mu.mu_dataset_from_tensor_slices(mu.mu_of(mu.any_tensor(words)))
        check(report, "unique of strings", elements(mu, mu.mu_dataset_unique(ours)),
              tf_elements(tf.data.Dataset.from_tensor_slices(words.astype("S")).unique()))
        check(report, "batch of strings", elements(mu, mu.mu_dataset_batch(dataset=ours, batch_size=4)),
              tf_elements(tf.data.Dataset.from_tensor_slices(words.astype("S")).batch(4)))


def test_list(report):
    methods = {name for name in dir(tf.data.Dataset) if not name.startswith("_")}
    known = set(STAGES) | set(NOT_THERE)
    report.check("methods of tf.data.Dataset", f"{len(methods)}; unknown: {sorted(methods - known)}", methods <= known)


# ---- Images ---------------------------------------------------------------------------------------

def test_images(mu, report):
    random = np.random.default_rng(3)
    smooth = tf.image.resize(random.integers(0, 256, (6, 5, 4)).astype(np.float32), (37, 50)).numpy().clip(0, 255).astype(np.uint8)
    files = {"gray.png": tf.io.encode_png(smooth[..., :1]), "gray_alpha.png": tf.io.encode_png(smooth[..., :2]),
             "rgb.png": tf.io.encode_png(smooth[..., :3]), "rgba.png": tf.io.encode_png(smooth),
             "deep.png": tf.io.encode_png(smooth[..., :3].astype(np.uint16) * 257),
             "rgb.jpg": tf.io.encode_jpeg(smooth[..., :3], quality=90),
             "progressive.jpg": tf.io.encode_jpeg(smooth[..., :3], progressive=True), "gray.jpg": tf.io.encode_jpeg(smooth[..., :1])}
    for name, contents in files.items():
        for channels in (0, 1, 3, 4) if name.endswith("png") else (0, 1, 3):
            with mu.pool(), report.guard(name):
                image = mu.mu_decode_image(mu.any_tensor(np.array(contents.numpy(), dtype=object)), channels)
                decode = tf.io.decode_png if name.endswith("png") else tf.io.decode_jpeg
                check(report, f"decode {name} channels={channels}", [mu.array(image)], [decode(contents, channels).numpy()])
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        for i, (name, contents) in enumerate(files.items()):
            place = pathlib.Path(folder) / "abc"[i % 3]
            place.mkdir(exist_ok=True)
            (place / name).write_bytes(contents.numpy())
        for mode in ("int", "categorical", None):
            theirs = keras.utils.image_dataset_from_directory(folder, label_mode=mode, image_size=(20, 30), batch_size=3,
                                                              shuffle=False, verbose=False)
            ours = mu.mu_dataset_image_folder(directory=folder, label_mode=mode or "none", image_size=[20, 30], batch_size=3,
                                              no_shuffle=True)
            if mode is None:
                order = elements(mu, mu.mu_dataset_image_folder(directory=folder, image_size=[20, 30], batch_size=3, no_shuffle=True))
                check(report, "image folder, none", elements(mu, ours), order[::2])
            else:
                check(report, f"image folder, {mode}", elements(mu, ours), tf_elements(theirs), tolerance=0.255)
        parts = [elements(mu, mu.mu_dataset_image_folder(directory=folder, image_size=[8, 8], batch_size=-1, seed=5,
                                                         validation_split=0.3, subset=subset)) for subset in ("training", "validation")]
        sizes = [len(part) // 2 for part in parts]
        wanted = [keras.utils.image_dataset_from_directory(folder, image_size=(8, 8), batch_size=None, seed=5, validation_split=0.3,
                                                           subset=s, verbose=False).cardinality().numpy() for s in ("training", "validation")]
        report.check("image folder, split", f"{sizes}", sizes == wanted)
        names = mu.array(mu.mu_image_folder_classes(folder)).tolist()
        report.check("image folder, classes", f"{names}", [name.decode() for name in names] == ["a", "b", "c"])


def photographs(folder, name):
    """JPEG and PNG files of several proportions, in two classes."""
    random = np.random.default_rng(6)
    for i, (height, width) in enumerate(((40, 60), (61, 40), (31, 17), (7, 90), (20, 30), (5, 4), (96, 11))):
        place = pathlib.Path(folder, name, "ab"[i % 2])
        place.mkdir(parents=True, exist_ok=True)
        smooth = tf.image.resize(random.integers(0, 256, (6, 5, 3)).astype(np.float32), (height, width)).numpy().clip(0, 255).astype(np.uint8)
        encoded = tf.io.encode_png(smooth) if i % 3 else tf.io.encode_jpeg(smooth, quality=95, chroma_downsampling=False)
        (place / f"{i}.{'png' if i % 3 else 'jpg'}").write_bytes(encoded.numpy())


def test_image_sizes(mu, report):
    """Each interpolation, for images that become smaller and larger, as they are, cut and padded."""
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        photographs(folder, "images")
        ways = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
        for way, kept, size in itertools.product(ways, ("", "crop", "pad"), ((20, 30), (48, 17))):
            if kept == "crop" and way in ("gaussian", "mitchellcubic"):
                continue  # Keras's smart_resize has no such
            keywords = {"interpolation": way} | ({f"{kept}_to_aspect_ratio": True} if kept else {})
            theirs = keras.utils.image_dataset_from_directory(f"{folder}/images", image_size=size, shuffle=False, verbose=False, **keywords)
            ours = mu.mu_dataset_image_folder(directory=f"{folder}/images", image_size=size, no_shuffle=True, **keywords)
            wanted = [array.astype(np.float32) if array.ndim == 4 else array for array in tf_elements(theirs)]
            check(report, f"image folder, {way} {kept} to {size}", elements(mu, ours), wanted, tolerance=0.01)


def test_text_folder(mu, report):
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        for i, words in enumerate(("a good film", "bad", "", "grüße\nall", "so so", "never again")):
            place = pathlib.Path(folder) / ("neg", "pos")[i % 2] / ("", "deep")[i // 3]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}.txt").write_text(words)
        for mode in ("int", "binary", "categorical"):
            theirs = keras.utils.text_dataset_from_directory(folder, label_mode=mode, batch_size=4, max_length=6, shuffle=False, verbose=False)
            ours = mu.mu_dataset_text_folder(directory=folder, label_mode=mode, batch_size=4, max_length=6, no_shuffle=True)
            check(report, f"text folder, {mode}", elements(mu, ours), tf_elements(theirs))
        sizes = [len(elements(mu, mu.mu_dataset_text_folder(directory=folder, batch_size=-1, seed=5, validation_split=0.3, subset=subset))) // 2
                 for subset in ("training", "validation")]
        wanted = [keras.utils.text_dataset_from_directory(folder, batch_size=None, seed=5, validation_split=0.3, subset=s,
                                                          verbose=False).cardinality().numpy() for s in ("training", "validation")]
        report.check("text folder, split", f"{sizes}", sizes == wanted)


# ---- Layers ---------------------------------------------------------------------------------------

VOCABULARY = ["the", "fox", "dog", "ü"]
TEXTS = ["The quick, brown fox!", "the the dog?", "  ", "fox\tfox\nDOG ü", "a-b c_d"]


def layer(mu, function, options):
    given = dict(options)
    for key in ("vocabulary", "idf_weights", "ngrams", "salt"):
        if key in given and given[key] is not None:
            values = given[key]
            given[f"n_{key}"] = len(values)
            if isinstance(values[0], str):
                given[key] = (ctypes.c_char_p * len(values))(*(value.encode() for value in values))
            else:
                given[key] = ((ctypes.c_double if key == "idf_weights" else ctypes.c_int64) * len(values))(*values)
    return getattr(mu, function)(**{key: value for key, value in given.items() if value is not None})


def call(mu, made, array):
    if not isinstance(array, list):
        return [mu.array(mu.mu_call(model=made, x=mu.any_tensor(array)))]
    values = [mu.mu_of(mu.any_tensor(tensor)) for tensor in array]
    return flat(mu, mu.mu_call_values(model=made, inputs=mu.mu_list_of(len(values), values)))


def same_options(report, name, theirs, config, options):
    """Keras's layer of our configuration has the options."""
    again, wanted = keras.layers.deserialize(config).get_config(), theirs.get_config()
    wrong = [key for key in options if json.dumps(again[key], default=str) != json.dumps(wanted[key], default=str)]
    report.row(f"{name}: our configuration in Keras", f"{len(options)} options", passed=not wrong, failures=wrong)


def compare_layer(mu, report, keras_class, function, options, inputs, adapt=None):
    name = f"{keras_class} {' '.join(f'{k}={v}' for k, v in options.items() if k != 'vocabulary')}"[:70]
    with mu.pool(), report.guard(name):
        theirs = getattr(keras.layers, keras_class)(**options)
        ours = layer(mu, function, options)
        if adapt is not None:
            theirs.adapt(tf.data.Dataset.from_tensor_slices(adapt).batch(2))
            data = mu.mu_dataset_batch(dataset=mu.mu_dataset_from_tensor_slices(mu.mu_of(mu.any_tensor(adapt))), batch_size=2)
            mu.mu_adapt(ours, data)
            vocabulary = mu.array(mu.mu_vocabulary(ours)).tolist()
            vocabulary = [word.decode() if isinstance(word, bytes) else word for word in vocabulary]
            report.check(f"{name}: vocabulary", f"{len(vocabulary)} tokens", vocabulary == list(theirs.get_vocabulary()))
        for array in inputs:
            given = [tf.constant(a.astype("S") if a.dtype == object else a) for a in array] if isinstance(array, list) else \
                tf.constant(array if array.dtype != object else array.astype(bytes) if array.size else array.astype("S"))
            wanted = theirs(given)
            check(report, name, call(mu, ours, array), [numpy_of(tf.convert_to_tensor(wanted))],
                  tolerance=1e-5 if options.get("output_mode") == "tf_idf" else 0)
        text = mu.mu_layer_config(ours)
        back = mu.mu_layer_from_config(text)
        same_options(report, name, theirs, json.loads(text), options)
        for array in inputs[:1]:
            check(report, f"{name}: from its configuration", call(mu, back, array), call(mu, ours, array))


def strings(values):
    return np.array([value.encode() for value in values], dtype=object)


def test_lookups(mu, report):
    words = strings(["the", "fox", "cat", "", "dog", "ü", "zebra"])
    column = words.reshape(-1, 1)
    for mode in ("one_hot", "multi_hot", "count", "tf_idf"):
        weights = {"idf_weights": [.5, 1., 2., .25]} if mode == "tf_idf" else {}
        for options in ({"mask_token": "cat"}, {"mask_token": "", "num_oov_indices": 3, "oov_token": "zebra"}):
            inputs = [column] if mode == "one_hot" else [words.reshape(1, -1), strings(["cat", "", "fox", ""]).reshape(2, 2)]
            compare_layer(mu, report, "StringLookup", "mu_string_lookup", {"vocabulary": VOCABULARY, "output_mode": mode, **weights, **options}, inputs)
    numbers = np.int64([12, 13, 0, 99, -5, 1138])
    for options in ({"mask_token": 0, "output_mode": "one_hot"}, {"mask_token": -5, "output_mode": "count", "num_oov_indices": 2}):
        compare_layer(mu, report, "IntegerLookup", "mu_integer_lookup", {"vocabulary": [12, -1, 13], **options}, [numbers.reshape(-1, 1)])
    compare_layer(mu, report, "IntegerLookup", "mu_integer_lookup", {"vocabulary": [12, -1]}, [np.int64([-1, 12, 3])])
    for options in ({}, {"mask_token": ""}, {"num_oov_indices": 3}, {"num_oov_indices": 2, "mask_token": "cat"},
                    {"output_mode": "one_hot"}, {"output_mode": "multi_hot"}, {"output_mode": "count", "num_oov_indices": 2},
                    {"output_mode": "tf_idf", "idf_weights": [.5, 1., 2., .25]},
                    {"output_mode": "multi_hot", "max_tokens": 9, "pad_to_max_tokens": True}):
        inputs = [words.reshape(1, -1), column] if options.get("output_mode", "int") in ("multi_hot", "count", "tf_idf") else [words, column]
        compare_layer(mu, report, "StringLookup", "mu_string_lookup", {"vocabulary": VOCABULARY, **options}, inputs)
    for options in ({"num_oov_indices": 5, "salt": [133, 137]}, {"num_oov_indices": 3, "mask_token": "cat", "salt": [5, 5]}):
        compare_layer(mu, report, "StringLookup", "mu_string_lookup", {"vocabulary": VOCABULARY, **options}, [words, column])
    for options in ({}, {"mask_token": 0}, {"num_oov_indices": 3}, {"output_mode": "count"},
                    {"num_oov_indices": 4, "oov_method": "farmhash"},
                    {"num_oov_indices": 5, "oov_method": "farmhash", "salt": [133, 137], "mask_token": 0}):
        inputs = [numbers.reshape(2, 3)]
        compare_layer(mu, report, "IntegerLookup", "mu_integer_lookup", {"vocabulary": [12, 13, 1138], **options}, inputs)
    compare_layer(mu, report, "StringLookup", "mu_string_lookup", {"vocabulary": VOCABULARY, "invert": True}, [np.int64([[0, 1], [4, 3]])])
    compare_layer(mu, report, "IntegerLookup", "mu_integer_lookup", {"vocabulary": [12, 13], "invert": True}, [np.int64([[0, 1], [2, 1]])])
    data = strings(["b", "a", "b", "c", "c", "d", "[UNK]"])
    for options in ({}, {"max_tokens": 3}, {"mask_token": "a"}):
        compare_layer(mu, report, "StringLookup", "mu_string_lookup", options, [data], adapt=data)
    compare_layer(mu, report, "StringLookup", "mu_string_lookup", {"output_mode": "tf_idf"}, [data.reshape(1, -1)], adapt=data.reshape(-1, 1))
    compare_layer(mu, report, "IntegerLookup", "mu_integer_lookup", {}, [numbers], adapt=np.int64([7, 12, 12, -3, 7, 99, -5]))


def test_hashing(mu, report):
    words, numbers = strings(STRINGS), np.int64([0, 1, -1, 123456789012, -2**63, 2**63 - 1])
    for options in ({"num_bins": 7}, {"num_bins": 1000003}, {"num_bins": 3, "mask_value": ""}, {"num_bins": 100, "salt": [133, 137]},
                    {"num_bins": 100, "salt": [5]}, {"num_bins": 4, "output_mode": "one_hot"}):
        theirs = dict(options)
        if options.get("salt") == [5]:
            theirs["salt"] = 5
        with mu.pool(), report.guard("Hashing"):
            made = json.loads(mu.mu_layer_config(layer(mu, "mu_hashing", options)))
            same_options(report, f"Hashing {options}", keras.layers.Hashing(**theirs), made, ["dtype", *theirs])
        for array in (words, words.reshape(-1, 1)) if "mask_value" in options else (words, numbers, words.reshape(-1, 1)):
            with mu.pool(), report.guard("Hashing"):
                keras_layer = keras.layers.Hashing(**theirs)
                wanted = keras_layer(tf.constant([bytes(w) for w in array.ravel()], shape=array.shape) if array.dtype == object else array)
                check(report, f"Hashing {options} {array.dtype} {array.shape}", call(mu, layer(mu, "mu_hashing", options), array),
                      [numpy_of(tf.convert_to_tensor(wanted))])
    for options in ({"num_bins": 3, "mask_value": -1}, {"num_bins": 50, "mask_value": 0, "output_mode": "multi_hot"}):
        with mu.pool(), report.guard("Hashing of integers"):
            theirs = keras.layers.Hashing(**options)
            ours = {"mask_integer" if key == "mask_value" else key: value for key, value in options.items()}
            made = layer(mu, "mu_hashing", ours)
            read = mu.mu_layer_from_config(json.dumps(keras.saving.serialize_keras_object(theirs)))
            wanted = [numpy_of(theirs(numbers.reshape(2, 3)))]
            for how, it in (("", made), (", Keras's configuration", read)):
                check(report, f"Hashing {options} of integers{how}", call(mu, it, numbers.reshape(2, 3)), wanted)
            same_options(report, f"Hashing {options} of integers", theirs, json.loads(mu.mu_layer_config(made)), ["dtype", *options])
    for mode in ("int", "one_hot"):
        with mu.pool(), report.guard("HashedCrossing"):
            first, second = strings(["a", "b", "c", "ü"]), np.int64([1, 2, 3, -4])
            for a, b in ((first, second), (first.reshape(-1, 1), second.reshape(-1, 1))):
                keras_layer = keras.layers.HashedCrossing(num_bins=50, output_mode=mode)
                wanted = keras_layer((tf.constant([bytes(w) for w in a.ravel()], shape=a.shape), tf.constant(b)))
                ours = layer(mu, "mu_hashed_crossing", {"num_bins": 50, "output_mode": mode})
                same_options(report, f"HashedCrossing {mode}", keras_layer, json.loads(mu.mu_layer_config(ours)), ["dtype", "num_bins"])
                check(report, f"HashedCrossing {mode} {a.shape}", call(mu, ours, [a, b]), [numpy_of(tf.convert_to_tensor(wanted))])


def test_vectorization(mu, report):
    texts = strings(TEXTS)
    rows = ({}, {"standardize": "lower"}, {"standardize": "strip_punctuation"}, {"standardize": None}, {"split": "character"},
            {"ngrams": [1, 2]}, {"ngrams": [2]}, {"output_sequence_length": 2}, {"output_sequence_length": 9},
            {"output_mode": "multi_hot"}, {"output_mode": "count", "ngrams": [1, 2, 3]}, {"output_mode": "tf_idf"},
            {"output_mode": "multi_hot", "max_tokens": 30, "pad_to_max_tokens": True}, {"max_tokens": 4})
    for row in rows:
        ours = {key: "none" if value is None else value for key, value in row.items()}
        name = f"TextVectorization {row}"[:60]
        with mu.pool(), report.guard(name):
            options = dict(row)
            if "ngrams" in options:
                options["ngrams"] = tuple(options["ngrams"])
            theirs = keras.layers.TextVectorization(**options)
            theirs.adapt(tf.data.Dataset.from_tensor_slices(TEXTS).batch(2))
            made = layer(mu, "mu_text_vectorization", ours)
            mu.mu_adapt(made, mu.mu_dataset_batch(dataset=mu.mu_dataset_from_tensor_slices(mu.mu_of(mu.any_tensor(texts))), batch_size=2))
            vocabulary = [word.decode() for word in mu.array(mu.mu_vocabulary(made)).tolist()]
            report.check(f"{name}: vocabulary", f"{len(vocabulary)}", vocabulary == list(theirs.get_vocabulary()))
            tolerance = 1e-5 if row.get("output_mode") == "tf_idf" else 0
            for array in (texts, texts.reshape(-1, 1)):
                wanted = theirs(tf.constant([bytes(w) for w in array.ravel()], shape=array.shape))
                check(report, name, call(mu, made, array), [wanted.numpy()], tolerance)
            config = json.loads(mu.mu_layer_config(made))
            read = keras.layers.TextVectorization.from_config({k: v for k, v in config["config"].items() if k != "dtype"})
            check(report, f"{name}: read by Keras", call(mu, made, texts), [read(tf.constant([bytes(w) for w in texts])).numpy()], tolerance)


def fit_model():
    """Two inputs, compiled: what `muster fit` trains."""
    layers = keras.layers
    image, sizes = layers.Input((4, 3, 1), name="image"), layers.Input((2,), name="sizes")
    both = layers.Concatenate()([layers.Flatten()(layers.Rescaling(1 / 255)(image)), sizes])
    model = keras.Model([image, sizes], layers.Dense(3)(layers.Dense(5, activation="tanh")(both)))
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_fit_command(path, report):
    """An epoch over images (PNG, also in colour for a model in gray, and their bytes alone) and floats, written by TensorFlow, trains as in Keras."""
    generator = np.random.default_rng(3)
    images = generator.integers(0, 256, (20, 4, 3, 1)).astype(np.uint8)
    sizes, labels = generator.normal(size=(20, 2)).astype(np.float32), generator.integers(0, 3, 20)
    command = pathlib.Path(path).resolve().parent / "tools/muster"
    for kind, encoded in (("PNG", lambda x: tf.io.encode_png(x).numpy()), ("uint8", lambda x: x.tobytes()),
                          ("PNG in colour", lambda x: tf.io.encode_png(np.repeat(x, 3, axis=2)).numpy())):
        with tempfile.TemporaryDirectory() as folder, report.guard(f"muster fit, {kind}"):
            with tf.io.TFRecordWriter(f"{folder}/train.tfrecord") as writer:
                for image, size, label in zip(images, sizes, labels):
                    writer.write(example(pixels=[encoded(image)], sizes=size.tolist(), label=[int(label)]))
            theirs = fit_model()
            theirs.save(f"{folder}/model.keras")
            options = ["--model", "model.keras", "--data", "train.tfrecord", "--inputs", "pixels,sizes", "--labels", "label",
                       "--batch-size", "10000", "--epochs", "3", "--strategy", "mirrored", "-o", "trained.keras"]
            ran = subprocess.run([command, "fit", *options], cwd=folder, capture_output=True, text=True)
            theirs.fit([images, sizes], labels, batch_size=20, epochs=3, shuffle=False, verbose=0)
            ours = keras.models.load_model(f"{folder}/trained.keras") if ran.returncode == 0 else None
            far = max(np.abs(a - b).max() for a, b in zip(ours.get_weights(), theirs.get_weights())) if ours else np.inf
            report.check(f"muster fit, {kind}", f"weights within {far:.1e}{ran.stderr}", far < 1e-6)


def fit_text_model():
    """Inputs of strings, one and two of them, in front of look-ups."""
    layers = keras.layers
    name, tags = layers.Input((), dtype="string", name="name"), layers.Input((2,), dtype="string", name="tags")
    rows = layers.Embedding(5, 3)(layers.StringLookup(vocabulary=["a", "b", "c"], mask_token="")(name))
    counts = layers.StringLookup(vocabulary=["x", "y"], output_mode="count")(tags)
    model = keras.Model([name, tags], layers.Dense(1)(layers.Concatenate()([rows, counts])))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_fit_strings(path, report):
    """Strings of records train a model that looks them up, as in Keras."""
    generator = np.random.default_rng(4)
    names, tags = generator.choice(["a", "b", "c", "d", ""], 20), generator.choice(["x", "y", "z"], (20, 2))
    labels = generator.normal(size=20).astype(np.float32)
    command = pathlib.Path(path).resolve().parent / "tools/muster"
    with tempfile.TemporaryDirectory() as folder, report.guard("muster fit, strings"):
        with tf.io.TFRecordWriter(f"{folder}/train.tfrecord") as writer:
            for name, tag, label in zip(names, tags, labels):
                writer.write(example(name=[name.encode()], tags=[t.encode() for t in tag], label=[float(label)]))
        theirs = fit_text_model()
        theirs.save(f"{folder}/model.keras")
        options = ["--model", "model.keras", "--data", "train.tfrecord", "--inputs", "name,tags", "--labels", "label",
                   "--batch-size", "10000", "--epochs", "3", "-o", "trained.keras"]
        ran = subprocess.run([command, "fit", *options], cwd=folder, capture_output=True, text=True)
        theirs.fit([tf.constant(names), tf.constant(tags)], tf.constant(labels), batch_size=20, epochs=3, shuffle=False, verbose=0)
        ours = keras.models.load_model(f"{folder}/trained.keras") if ran.returncode == 0 else None
        far = max(np.abs(a - b).max() for a, b in zip(ours.get_weights(), theirs.get_weights())) if ours else np.inf
        report.check("muster fit, strings", f"weights within {far:.1e}{ran.stderr}", far < 1e-6)


def folder_models():
    """Form of the folder, model, options of `muster fit`, and the data set of Keras's that they stand for."""
    layers, crossentropy = keras.layers, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    image = keras.Sequential([layers.Input((6, 9, 1)), layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2)])
    image.compile(keras.optimizers.SGD(0.1), crossentropy)
    yield ("images, cut", image, ["--crop-to-aspect-ratio", "--interpolation", "lanczos3"], keras.utils.image_dataset_from_directory,
           {"image_size": (6, 9), "color_mode": "grayscale", "crop_to_aspect_ratio": True, "interpolation": "lanczos3"})
    colours = keras.Sequential([layers.Rescaling(1 / 255), layers.GlobalMaxPooling2D(), layers.Dense(2, "softmax")])
    colours.build((None, None, None, 3))
    colours.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy")
    yield ("images, padded, one-hot", colours, ["--pad-to-aspect-ratio", "--image-size", "30,40", "--label-mode", "categorical"],
           keras.utils.image_dataset_from_directory, {"image_size": (30, 40), "pad_to_aspect_ratio": True, "label_mode": "categorical"})
    text = keras.Sequential([layers.Input((1,), dtype="string"), layers.TextVectorization(vocabulary=["good", "bad", "film"], output_sequence_length=4),
                             layers.Embedding(6, 3), layers.GlobalAveragePooling1D(), layers.Dense(1, "sigmoid")])
    text.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
    yield "texts", text, ["--max-length", "9", "--label-mode", "binary"], keras.utils.text_dataset_from_directory, {"max_length": 9, "label_mode": "binary"}


def test_fit_folders(path, report):
    """A folder of images or texts trains to Keras's weights, with the options of Keras's functions."""
    command = pathlib.Path(path).resolve().parent / "tools/muster"
    with tempfile.TemporaryDirectory() as folder:
        photographs(folder, "images")
        for i, words in enumerate(("a good film", "bad", "so bad a film", "a film", "good good", "bad film")):
            place = pathlib.Path(folder, "texts", ("neg", "pos")[i % 2])
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}.txt").write_text(words)
        for name, theirs, options, read, keywords in folder_models():
            with report.guard(f"muster fit, {name}"):
                theirs.save(f"{folder}/model.keras")
                data = f"{folder}/{name.split(',')[0]}"
                options += ["--model", "model.keras", "--data", data, "--epochs", "3", "--batch-size", "20", "-o", "trained.keras"]
                ran = subprocess.run([command, "fit", *options], cwd=folder, capture_output=True, text=True)
                theirs.fit(read(data, batch_size=20, verbose=False, **keywords), epochs=3, verbose=0)
                ours = keras.models.load_model(f"{folder}/trained.keras") if ran.returncode == 0 else None
                far = max(np.abs(a - b).max() for a, b in zip(ours.get_weights(), theirs.get_weights())) if ours else np.inf
                report.check(f"muster fit, {name}", f"weights within {far:.1e}{ran.stderr}", far < 2e-5)


def numbers_model(losses):
    """One input; one output with a sparse loss, or two of which only the first has one, under names that mislead."""
    x = keras.Input((4,))
    kinds = keras.layers.Dense(3, name="kinds")(x)
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **{"name": "entropy"} if losses == "first" else {})
    number = keras.layers.Dense(1, name="number")(x)
    error = keras.losses.MeanSquaredError(name="sparse_mse")
    model = keras.Model(x, kinds if losses == "first" else [kinds, number])
    model.compile(keras.optimizers.SGD(0.5), {"first": sparse, "both": [sparse, error], "second": [None, error]}[losses])
    return model


def idx_bytes(array):
    """The format of MNIST: floats (0x0D) or bytes (0x08), sizes in big-endian."""
    code = 0x0D if array.dtype == np.float32 else 0x08
    return bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_numbers(folder, form, x, kinds, number):
    """The samples in a form of files, and the options of `muster fit` that name them."""
    names = ["--inputs", "x", "--labels", "kind,number" if number is not None else "kind"]
    labels = {"kind": kinds} | ({"number": number} if number is not None else {})
    if form == "npz":
        np.savez(f"{folder}/d.npz", x=np.asfortranarray(x), **labels)
        return ["--data", "d.npz", *names]
    if form == "tfrecord":
        with tf.io.TFRecordWriter(f"{folder}/d.tfrecord") as writer:
            for i, row in enumerate(x):
                writer.write(example(x=row.tolist(), **{key: [value[i].item()] for key, value in labels.items()}))
        return ["--data", "d.tfrecord", *names]
    if form == "csv":
        np.savetxt(f"{folder}/d.csv", np.column_stack([x, kinds]), delimiter=",", fmt="%.9g")
        return ["--data", "d.csv"]
    files = [("x", x), ("y", kinds.astype(np.uint8))]
    for name, array in files:
        np.save(f"{folder}/{name}.npy", array) if form == "npy" else pathlib.Path(folder, f"{name}.idx").write_bytes(idx_bytes(array))
    return ["--data", f"x.{form}", "--labels", f"y.{form}"]


# Form of the files, which outputs have a loss, strategy: each strategy and each form once, two outputs where there are names.
FIT_FILES = [("npz", "first", "default"), ("npz", "both", "mirrored"), ("tfrecord", "both", "central_storage"),
             ("npz", "second", "mirrored"), ("csv", "first", "one_device"), ("npy", "first", "multi_worker"),
             ("idx", "first", "tpu"), ("csv", "first", "parameter_server")]


def test_fit_files(path, report):
    """Each form of files under a strategy trains to Keras's weights; only labels of a sparse loss become integers."""
    generator = np.random.default_rng(5)
    x, number = generator.normal(size=(12, 4)).astype(np.float32), generator.normal(size=12).astype(np.float32)
    kinds = generator.integers(0, 3, 12)
    command = pathlib.Path(path).resolve().parent / "tools/muster"
    wanted = {}
    with tempfile.TemporaryDirectory() as folder:
        for losses in ("first", "both", "second"):
            theirs = numbers_model(losses)
            theirs.save(f"{folder}/{losses}.keras")
            theirs.fit(x, kinds if losses == "first" else [kinds, number], batch_size=12, epochs=3, shuffle=False, verbose=0)
            wanted[losses] = theirs.get_weights()
        for form, losses, strategy in FIT_FILES:
            with report.guard(f"muster fit, {form}, {strategy}"):
                options = write_numbers(folder, form, x, kinds, None if losses == "first" else number)
                options += ["--model", f"{losses}.keras", "--epochs", "3", "--strategy", strategy, "-o", "trained.keras"]
                ran = subprocess.run([command, "fit", *options], cwd=folder, capture_output=True, text=True,
                                     env=os.environ | {"MUSTER_CPU_DEVICES": "2"})
                ours = keras.models.load_model(f"{folder}/trained.keras").get_weights() if ran.returncode == 0 else None
                far = max(np.abs(a - b).max() for a, b in zip(ours, wanted[losses])) if ours else np.inf
                said = ran.stderr if ran.returncode else ""
                report.check(f"muster fit, {form}, a loss for {losses}, {strategy}", f"weights within {far:.1e}{said}", far < 1e-6)


def main(path):
    mu = muster.Library(path)
    report = Report("Data: examples, text, images, stages, layers for strings and categories")
    test_list(report)
    for test in (test_examples, test_example_forms, test_sequences, test_text, test_text_folder, test_stages, test_images, test_image_sizes, test_lookups, test_hashing, test_vectorization):
        with report.guard(test.__name__):
            test(mu, report)
    test_fit_command(path, report)
    test_fit_files(path, report)
    test_fit_strings(path, report)
    test_fit_folders(path, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
